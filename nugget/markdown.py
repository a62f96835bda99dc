"""Markdown as Nugget needs it: the title of a body, and its chunks.

Blocks are found by markdown-it-py (CommonMark 0.31 with GitHub tables), so a `#` inside a code fence, a quote or a
list is no section heading. Every chunk is a verbatim span of the body; only where a code fence or a table is too
long and has to be cut are its first lines (and a fence's last) repeated, so that each part still is one.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nugget.models import Chunk
from nugget.text import estimate_tokens, shorten

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_CRUMB_CHARS = 120
"""A longer heading is shortened in the breadcrumb and then also kept in the text."""

_FIRST_H1 = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))* {0,3}#[ \t]+([^\r\n]*?)(?:[ \t]+#+)?[ \t]*(?:[\r\n]|\Z)")
_LEADING_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_AFTER_LINE = re.compile(r"\n")
_AFTER_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_AFTER_WORD = re.compile(r"\s+")
_CONTAINERS = frozenset({"bullet_list_open", "ordered_list_open", "list_item_open", "blockquote_open"})
_Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """How large chunks are, in tokens of the text without its breadcrumb.

    A section above `max_tokens` is cut at block boundaries, a code fence only above `max_code_tokens`; a section
    below `min_tokens` joins its neighbour. `overlap` is the share of `max_tokens` by which the parts of one
    section overlap. The small default for `max_tokens` is what searches best: the offline embedding model reads
    256 word pieces, breadcrumb included.
    """

    max_tokens: int = 150
    min_tokens: int = 50
    overlap: float = 0.12
    max_code_tokens: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A heading with what follows it up to the next heading: lines `start` (its heading) or `content` to `end`.

    `levels` are those of `crumbs` (0 for the title where no heading carries it); `blocks` are the (line, token)
    indexes at which its top-level blocks start, `token_end` the index behind its last token.
    """

    crumbs: tuple[str, ...]
    levels: tuple[int, ...]
    level: int
    start: int
    content: int
    end: int
    blocks: tuple[tuple[int, int], ...]
    token_end: int
    size_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Atom:
    """A span that packing does not cut, with the white space that follows it. Only prose is repeated as overlap."""

    text: str
    size_tokens: int
    is_prose: bool


def title_of(body: str) -> str | None:
    """The text of the first level-one heading (`# Title` or underlined with `=`), None where there is none."""
    first = _FIRST_H1.match(body)
    if first and first[1].strip(" \t#"):
        return _one_line(first[1])
    if "#" not in body and "=" not in body:
        return None
    tokens = _block_tokens(body)
    for heading, inline in itertools.pairwise(tokens):
        if heading.type == "heading_open" and heading.tag == "h1" and heading.level == 0 and inline.content.strip():
            return _one_line(inline.content)
    return None


def chunk_markdown(
    body: str,
    *,
    title: str,
    count_tokens: _Count = estimate_tokens,
    limits: ChunkLimits = ChunkLimits(),
) -> list[Chunk]:
    """Cut a body into chunks, in order; an empty list where the body is blank.

    Sections are split at headings; what is too long is split at its blocks, then list entries, lines, sentences,
    words; what is too short joins the next section of the same parent (else the one before). A chunk's breadcrumb
    is the path of headings that holds for all of its text; the heading that it ends with is not repeated in the
    text. `count_tokens` is called about once a section.
    """
    if not body.strip():
        return []
    tokens = _block_tokens(body)
    lines = _normalise(body).split("\n")
    chunks: list[Chunk] = []
    for group in _join_small(list(_sections(lines, tokens, title=title, count_tokens=count_tokens)), limits):
        first, last = group[0], group[-1]
        crumbs = _common(section.crumbs for section in group)
        if len(group) == 1 and first.size_tokens > limits.max_tokens:
            atoms = _Cutter(lines=lines, tokens=tokens, limits=limits, count_tokens=count_tokens).section(first)
            texts = list(_pack(list(atoms), limits=limits, count_tokens=count_tokens))
        else:
            start = first.content if crumbs == first.crumbs else first.start
            texts = [_trim("\n".join(lines[start : last.end]))]
        for text in texts:
            chunk = Chunk(
                breadcrumb=" > ".join(crumbs),
                text=text or _trim("\n".join(lines[first.start : last.end])),
                heading_level=first.levels[len(crumbs) - 1] if crumbs else 0,
                position=len(chunks),
            )
            chunks.append(chunk)
    return chunks


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _block_tokens(body: str) -> list[Token]:
    return _parser().parse(body)


def _normalise(text: str) -> str:
    """Line ends as markdown-it-py counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _trim(text: str) -> str:
    return _LEADING_BLANK_LINES.sub("", text.rstrip())


def _common(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    first, *others = paths
    for other in others:
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, other, strict=False))
        first = tuple(crumb for crumb, _ in same)
    return first


def _sections(
    lines: Sequence[str], tokens: Sequence[Token], *, title: str, count_tokens: _Count
) -> Iterator[_Section]:
    """The sections in order, without those that are only a heading above a deeper one."""
    root = _one_line(title)
    path: list[tuple[int, str]] = []
    blocks: list[tuple[int, int]] = []
    level, start, content, is_whole = 0, 0, 0, True
    starts = [
        (index, token)
        for index, token in enumerate(tokens)
        if token.level == 0 and token.nesting >= 0 and token.map is not None
    ]
    for index, token in [*starts, (len(tokens), None)]:
        if token is not None and token.type != "heading_open":
            blocks.append((token.map[0], index))  # type: ignore[index]
            continue
        end, content_end, next_level = len(lines), len(lines), 0
        if token is not None:
            (end, content_end), next_level = token.map, int(token.tag[1])  # type: ignore[misc]
        text = "\n".join(lines[start:end])
        is_above_deeper = is_whole and next_level > level and not any(map(str.strip, lines[content:end]))
        if text.strip() and not is_above_deeper:
            named = [(depth, name) for depth, name in path if name]
            if root and (not named or named[0][1] != root):
                named.insert(0, (0, root))
            yield _Section(
                crumbs=tuple(shorten(name, MAX_CRUMB_CHARS) for _, name in named),
                levels=tuple(depth for depth, _ in named),
                level=level,
                start=start,
                content=content if is_whole else start,
                end=end,
                blocks=tuple(blocks),
                token_end=index,
                size_tokens=count_tokens(text + "\n"),
            )
        if token is not None:
            level, start, content = next_level, end, content_end
            name = _one_line(tokens[index + 1].content)
            path = [(depth, above) for depth, above in path if depth < level] + [(level, name)]
            is_whole = len(name) <= MAX_CRUMB_CHARS
            blocks = [] if is_whole else [(start, index)]


def _join_small(sections: Sequence[_Section], limits: ChunkLimits) -> list[list[_Section]]:
    """Runs of sections that become one passage each."""
    groups: list[list[_Section]] = []
    sizes: list[int] = []
    for section in sections:
        is_next = bool(groups) and sizes[-1] < limits.min_tokens and section.level >= groups[-1][0].level
        if is_next and sizes[-1] + section.size_tokens <= limits.max_tokens:
            groups[-1].append(section)
            sizes[-1] += section.size_tokens
            continue
        _join_back(groups, sizes, limits)
        groups.append([section])
        sizes.append(section.size_tokens)
    _join_back(groups, sizes, limits)
    return groups


def _join_back(groups: list[list[_Section]], sizes: list[int], limits: ChunkLimits) -> None:
    """Join the last run, when it is still too small, with the one before it under the same parent."""
    if len(groups) < 2 or sizes[-1] >= limits.min_tokens or sizes[-2] + sizes[-1] > limits.max_tokens:
        return
    parent = groups[-1][0].crumbs[:-1]
    shared = _common(section.crumbs for section in [*groups[-2], groups[-1][0]])
    if len(shared) >= max(1, len(parent)):
        last, last_size = groups.pop(), sizes.pop()
        groups[-1].extend(last)
        sizes[-1] += last_size


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cutter:
    """Cuts a section that is too long into atoms that are each small enough; together they are its text."""

    lines: Sequence[str]
    tokens: Sequence[Token]
    limits: ChunkLimits
    count_tokens: _Count

    @property
    def room(self) -> int:
        """Tokens of a chunk that are not overlap."""
        return max(1, int(self.limits.max_tokens * (1 - self.limits.overlap)))

    def section(self, section: _Section) -> Iterator[_Atom]:
        """The atoms of a whole section."""
        return self.blocks(section.blocks, section.content, section.end, section.token_end)

    def blocks(self, starts: Sequence[tuple[int, int]], start: int, end: int, token_end: int) -> Iterator[_Atom]:
        """The atoms of lines `start` to `end`, in which blocks start at the given (line, token) indexes."""
        yield from self.gap(start, starts[0][0] if starts else end)
        for (from_line, from_token), (to_line, to_token) in itertools.pairwise([*starts, (end, token_end)]):
            block_end = (self.tokens[from_token].map or [0, to_line])[1]
            if any(map(str.strip, self.lines[block_end:to_line])):
                yield from self.block(from_line, block_end, from_token, to_token)
                yield from self.gap(block_end, to_line)
            else:
                yield from self.block(from_line, to_line, from_token, to_token)

    def gap(self, start: int, end: int) -> Iterator[_Atom]:
        """The atoms of lines that belong to no block, such as link definitions."""
        if any(map(str.strip, self.lines[start:end])):
            yield from self.text("\n".join(self.lines[start:end]) + "\n", (_AFTER_LINE,))

    def block(self, start: int, end: int, token_start: int, token_end: int) -> Iterator[_Atom]:
        """The atoms of one block: itself, or the blocks in it, or its lines or sentences."""
        text = "\n".join(self.lines[start:end]) + "\n"
        token, size = self.tokens[token_start], self.count_tokens(text)
        if size <= (max(self.room, self.limits.max_code_tokens) if token.type == "fence" else self.room):
            is_prose = token.type in ("paragraph_open", *_CONTAINERS) and "```" not in text and "~~~" not in text
            yield _Atom(text=text, size_tokens=size, is_prose=is_prose)
        elif token.type == "fence":
            yield from self.fence(text, token)
        elif token.type == "table_open":
            header, delimiter, rows = text.split("\n", 2)
            yield from self.framed(rows, first=f"{header}\n{delimiter}\n", opening=f"{header}\n{delimiter}\n")
        elif token.type in _CONTAINERS:
            inner = [
                (child.map[0], index)
                for index, child in enumerate(self.tokens[token_start:token_end], token_start)
                if child.level == token.level + 1 and child.nesting >= 0 and child.map
            ]
            yield from self.blocks(inner, start, end, token_end)
        else:
            is_prose = token.type == "paragraph_open"
            boundaries = (_AFTER_SENTENCE, _AFTER_LINE) if is_prose else (_AFTER_LINE,)
            yield from self.text(text, boundaries, is_prose=is_prose)

    def fence(self, text: str, token: Token) -> Iterator[_Atom]:
        """A code fence cut at its lines, closed and opened again at each cut."""
        first, _, inside = text.partition("\n")
        margin = re.sub(r"[^\s>]", " ", first[: first.find(token.markup)])
        code = inside.rstrip()
        last = code[code.rfind("\n") + 1 :]
        is_closed = last.strip(" >\t").startswith(token.markup)
        closing = inside[len(code) - len(last) :] if is_closed else ""
        yield from self.framed(
            inside[: len(inside) - len(closing)],
            first=first + "\n",
            opening=f"{margin}{token.markup}{token.info.rstrip()}\n",
            closing=f"{margin}{token.markup}\n",
            last=closing,
        )

    def framed(self, inside: str, *, first: str, opening: str, closing: str = "", last: str = "") -> Iterator[_Atom]:
        """Lines cut into parts that each stand between `opening` and `closing`, as the source has it at its ends."""
        room = max(self.room // 2, self.room - self.count_tokens(opening) - self.count_tokens(closing))
        parts: list[str] = [""]
        size = 0
        for atom in self.text(inside, (_AFTER_LINE,), room=room):
            is_good_break = parts[-1].endswith("\n\n") and size > room // 2
            if parts[-1] and (is_good_break or size + atom.size_tokens > room):
                parts.append("")
                size = 0
            parts[-1] += atom.text
            size += atom.size_tokens
        for number, part in enumerate(parts):
            ends = number == len(parts) - 1
            text = (first if number == 0 else opening) + part + ("" if part.endswith("\n") or ends else "\n")
            text += last if ends else closing
            yield _Atom(text=text, size_tokens=self.count_tokens(text), is_prose=False)

    def text(
        self, text: str, boundaries: Sequence[re.Pattern[str]], *, room: int | None = None, is_prose: bool = False
    ) -> Iterator[_Atom]:
        """Text cut at the first kind of boundary, and what is then still too long at the next; at last anywhere."""
        size, room = self.count_tokens(text), room or self.room
        if size <= room:
            yield _Atom(text=text, size_tokens=size, is_prose=is_prose)
        elif boundaries:
            for part in _split_after(text, boundaries[0]):
                yield from self.text(part, boundaries[1:], room=room, is_prose=is_prose)
        else:
            yield from self.anywhere(text, max(1, len(text) * room // size), room=room, is_prose=is_prose)

    def anywhere(self, text: str, chars_per_room: int, *, room: int, is_prose: bool) -> Iterator[_Atom]:
        """Text cut between words where it has any, else (CJK, base64) between characters."""
        start = 0
        while start < len(text):
            end = min(len(text), start + chars_per_room)
            size = self.count_tokens(text[start:end])
            while size > room and end - start > 1:
                end = start + max(1, (end - start) * 3 // 4)
                size = self.count_tokens(text[start:end])
            words = list(_AFTER_WORD.finditer(text, start, end)) if end < len(text) else []
            if words and words[-1].end() - start > (end - start) // 2:
                end = words[-1].end()
                size = self.count_tokens(text[start:end])
            yield _Atom(text=text[start:end], size_tokens=size, is_prose=is_prose)
            start = end


def _split_after(text: str, boundary: re.Pattern[str]) -> list[str]:
    ends = [match.end() for match in boundary.finditer(text) if 0 < match.end() < len(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end]


def _pack(atoms: Sequence[_Atom], *, limits: ChunkLimits, count_tokens: _Count) -> Iterator[str]:
    """Fill texts with atoms, in order, each starting with the end of the one before."""
    overlap_tokens = int(limits.max_tokens * limits.overlap)
    runs: list[list[_Atom]] = []
    sizes: list[int] = []
    for atom in atoms:
        if runs and (sizes[-1] + atom.size_tokens <= limits.max_tokens - overlap_tokens or not atom.text.strip()):
            runs[-1].append(atom)
            sizes[-1] += atom.size_tokens
        else:
            runs.append([atom])
            sizes.append(atom.size_tokens)
    if len(runs) > 1 and sizes[-1] < limits.min_tokens and sizes[-2] + sizes[-1] <= limits.max_tokens:
        last, last_size = runs.pop(), sizes.pop()
        runs[-1].extend(last)
        sizes[-1] += last_size
    before = ""
    for run, size in zip(runs, sizes, strict=True):
        room = min(overlap_tokens, limits.max_tokens - size)
        yield _trim(_ending(before, budget_tokens=room, count_tokens=count_tokens) + "".join(a.text for a in run))
        prose = list(itertools.takewhile(lambda atom: atom.is_prose, reversed(run)))
        before = "".join(atom.text for atom in reversed(prose))


def _ending(prose: str, *, budget_tokens: int, count_tokens: _Count) -> str:
    """The last sentences (else words) of a text that fit in the budget, never all of it."""
    if budget_tokens < 1:
        return ""
    for boundary in (_AFTER_SENTENCE, _AFTER_LINE, _AFTER_WORD):
        taken, left = "", budget_tokens
        for part in reversed(_split_after(prose[-budget_tokens * 10 :], boundary)[1:]):
            left -= count_tokens(part)
            if left < 0:
                break
            taken = part + taken
        if taken.strip():
            return taken
    return ""
