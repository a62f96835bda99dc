"""Markdown as Nugget needs it: the title of a body, and its chunks.

Blocks are found by markdown-it-py (CommonMark 0.31 with GitHub tables), so a `#` inside a code fence, a quote or a
list is not a section heading. Every chunk is a verbatim span of the body, except that a code fence or table too
long for one chunk repeats its first lines (and a fence its last) in each part.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nugget.markdown.chunking import MAX_TOKENS, MIN_TOKENS, CountTokens, Cutter, pack, trim
from nugget.models import Chunk
from nugget.text import estimate_tokens, plain_line_ends, shorten

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_CRUMB_CHARS = 120
"""A longer heading is shortened in the breadcrumb and then also kept in the text."""

MAX_CHUNKS = 2_000
"""The most chunks of a file that are indexed."""
MAX_LINES = 20_000
"""The most lines of a file that are parsed: markdown-it-py takes up to 60 µs for one."""
_MANY_CHARS = 100 * MAX_CHUNKS
"""A shorter body with fewer than MAX_CHUNKS lines makes fewer chunks than that."""

_FIRST_H1 = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))* {0,3}#[ \t]+([^\r\n]*)(?:[\r\n]|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A heading with the text up to the next heading: lines `start` (its heading) or `content` to `end`.

    `blocks` are the (line, token) indexes of its top-level blocks, `token_end` the index after its last token.
    """

    crumbs: tuple[str, ...]
    level: int
    start: int
    content: int
    end: int
    blocks: tuple[tuple[int, int], ...]
    token_end: int
    size_tokens: int


def title_of(body: str) -> str | None:
    """Return the text of the first level-one heading (`# Title` or underlined with `=`), or None."""
    first = _FIRST_H1.match(body)
    if first and (title := _without_closing(first[1])):
        return _one_line(title)
    if "#" not in body and "=" not in body:
        return None
    return next((text for level, text, _ in headings_of(body) if level == 1 and text), None)


def headings_of(body: str) -> list[tuple[int, str, int]]:
    """Return every heading as (level, text, line from 0), in order; a `#` in code, a quote or a list does not count."""
    return [
        (int(heading.tag[1]), _one_line(inline.content), heading.map[0])
        for heading, inline in itertools.pairwise(_block_tokens(body))
        if heading.type == "heading_open" and heading.level == 0 and heading.map is not None
    ]


def body_below_title(body: str) -> str:
    """Return the body without the `# Title` that it begins with."""
    first = _FIRST_H1.match(body)
    return (body[first.end() :] if first else body).strip()


def chunk_markdown(body: str, *, title: str, count_tokens: CountTokens = estimate_tokens) -> list[Chunk]:
    """Cut a body into at most MAX_CHUNKS chunks, in order; an empty list if the body is blank.

    Sections are split at headings; long ones are split at their blocks, then list entries, lines, sentences, words;
    short ones join the next section of the same parent (else the previous one). A chunk's breadcrumb
    is the path of headings above all of its text; the last of them is not repeated in the text.
    `count_tokens` is called about once a section.
    """
    return list(itertools.islice(_chunks(body, title, count_tokens), MAX_CHUNKS))


def size_problem(body: str) -> str | None:
    """Return why a body is too long to be indexed whole, or None."""
    lines = plain_line_ends(body).count("\n") + 1
    if lines > MAX_LINES:
        return f"has {lines:,} lines; only the first {MAX_LINES:,} are indexed: split it into several files"
    if len(body) < _MANY_CHARS and lines < MAX_CHUNKS:
        return None
    if next(itertools.islice(_chunks(body, "", estimate_tokens), MAX_CHUNKS, None), None):
        return f"has more than {MAX_CHUNKS:,} passages; only the first are indexed: split it into several files"
    return None


def _chunks(body: str, title: str, count_tokens: CountTokens) -> Iterator[Chunk]:
    if not body.strip():
        return
    tokens = _block_tokens(body)
    lines = plain_line_ends(body).split("\n")[:MAX_LINES]
    position = 0
    for group in _join_small(list(_sections(lines, tokens, title=title, count_tokens=count_tokens))):
        first, last = group[0], group[-1]
        crumbs = _shared_crumbs(section.crumbs for section in group)
        if len(group) == 1 and first.size_tokens > MAX_TOKENS:
            cutter = Cutter(lines=lines, tokens=tokens, count_tokens=count_tokens)
            blocks = list(cutter.blocks(first.blocks, first.content, first.end, first.token_end))
            texts = list(pack(blocks, count_tokens=count_tokens)) or [""]
        else:
            start = first.content if crumbs == first.crumbs else first.start
            texts = [trim("\n".join(lines[start : last.end]))]
        for text in texts:
            yield Chunk(
                breadcrumb=" > ".join(crumbs),
                text=text or trim("\n".join(lines[first.start : last.end])),
                position=position,
            )
            position += 1


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _block_tokens(body: str) -> list[Token]:
    """Parse the first MAX_LINES lines of a body."""
    if body.count("\n") + body.count("\r") >= MAX_LINES:
        body = "\n".join(plain_line_ends(body).split("\n", MAX_LINES)[:MAX_LINES])
    return _parser().parse(body)


def _without_closing(heading: str) -> str:
    """Return the text of a heading without the `##` that may close it."""
    text = heading.strip(" \t")
    bare = text.rstrip("#")
    return text if bare and bare[-1] not in " \t" else bare.rstrip(" \t")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shared_crumbs(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the longest beginning that all heading paths have in common."""
    levels = itertools.takewhile(lambda crumbs: len(set(crumbs)) == 1, zip(*paths, strict=False))
    return tuple(crumbs[0] for crumbs in levels)


def _sections(
    lines: Sequence[str], tokens: Sequence[Token], *, title: str, count_tokens: CountTokens
) -> Iterator[_Section]:
    """Yield the sections in order, without those that are only a heading above a deeper one."""
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
            named = [name for _, name in path if name]
            if root and named[:1] != [root]:
                named.insert(0, root)
            yield _Section(
                crumbs=tuple(shorten(name, MAX_CRUMB_CHARS) for name in named), level=level, start=start,
                content=content if is_whole else start, end=end, blocks=tuple(blocks), token_end=index,
                size_tokens=count_tokens(text + "\n"),
            )  # fmt: skip
        if token is not None:
            level, start, content = next_level, end, content_end
            name = _one_line(tokens[index + 1].content)
            path = [(depth, above) for depth, above in path if depth < level] + [(level, name)]
            is_whole = len(name) <= MAX_CRUMB_CHARS
            blocks = [] if is_whole else [(start, index)]


def _join_small(sections: Sequence[_Section]) -> list[list[_Section]]:
    """Return the runs of sections that become one passage each."""
    groups: list[list[_Section]] = []
    sizes: list[int] = []
    for section in sections:
        is_next = bool(groups) and sizes[-1] < MIN_TOKENS and section.level >= groups[-1][0].level
        if is_next and sizes[-1] + section.size_tokens <= MAX_TOKENS:
            groups[-1].append(section)
            sizes[-1] += section.size_tokens
            continue
        _join_back(groups, sizes)
        groups.append([section])
        sizes.append(section.size_tokens)
    _join_back(groups, sizes)
    return groups


def _join_back(groups: list[list[_Section]], sizes: list[int]) -> None:
    """Join the last run, if it is still too small, with the previous one under the same parent."""
    if len(groups) < 2 or sizes[-1] >= MIN_TOKENS or sizes[-2] + sizes[-1] > MAX_TOKENS:
        return
    parent = groups[-1][0].crumbs[:-1]
    shared = _shared_crumbs(section.crumbs for section in [*groups[-2], groups[-1][0]])
    # Joining a deeper section would lose its headings, which are only in its breadcrumb.
    if groups[-2][0].level <= groups[-1][0].level and len(shared) >= max(1, len(parent)):
        last, last_size = groups.pop(), sizes.pop()
        groups[-1].extend(last)
        sizes[-1] += last_size
