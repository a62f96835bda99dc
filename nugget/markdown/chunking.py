"""Cut a section that is too long into texts that fit: at its blocks, then lines, sentences, words, characters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nugget.text import plain_line_ends

if TYPE_CHECKING:
    from markdown_it.token import Token

CountTokens = Callable[[str], int]
"""A function that counts the tokens of a text; the counts of joined texts about add up."""

MAX_TOKENS, MAX_CODE_TOKENS = 200, 512
"""The limits above which a section is cut at its blocks and a code fence at its lines, without the breadcrumb.

Small chunks search best: the offline embedding model reads 256 word pieces, including the breadcrumb.
"""
MIN_TOKENS = 50
"""A smaller section joins its neighbour."""
OVERLAP_TOKENS = 24
"""The most by which parts of one section overlap."""
_ROOM = MAX_TOKENS - OVERLAP_TOKENS

_AFTER_LINE = re.compile(r"\n")
_AFTER_SENTENCE = re.compile(r"[.!?…。！？](?:(?<=[。！？])\s*|\s+)")
_AFTER_WORD = re.compile(r"\s+")
_CONTAINERS = frozenset({"bullet_list_open", "ordered_list_open", "list_item_open", "blockquote_open"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A span that packing does not cut, with the white space that follows it. Only prose is repeated as overlap."""

    text: str
    size_tokens: int
    is_prose: bool
    starts_chunk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutter:
    """Cuts a long section into small blocks, which together are its text."""

    lines: Sequence[str]
    tokens: Sequence[Token]
    count_tokens: CountTokens

    def blocks(self, starts: Sequence[tuple[int, int]], start: int, end: int, token_end: int) -> Iterator[Block]:
        """Yield the blocks of lines `start` to `end`; `starts` are the (line, token) indexes of its own."""
        yield from self.gap(start, starts[0][0] if starts else end)
        for (from_line, from_token), (to_line, to_token) in itertools.pairwise([*starts, (end, token_end)]):
            block_end = (self.tokens[from_token].map or [0, to_line])[1]
            if any(map(str.strip, self.lines[block_end:to_line])):
                yield from self.block(from_line, block_end, from_token, to_token)
                yield from self.gap(block_end, to_line)
            else:
                yield from self.block(from_line, to_line, from_token, to_token)

    def gap(self, start: int, end: int) -> Iterator[Block]:
        """Yield lines that markdown counts as no block, such as link definitions."""
        if any(map(str.strip, self.lines[start:end])):
            yield from self.text("\n".join(self.lines[start:end]) + "\n", (_AFTER_LINE,))

    def block(self, start: int, end: int, token_start: int, token_end: int) -> Iterator[Block]:
        """Yield one block whole, or the blocks in it, or its lines or sentences."""
        text = "\n".join(self.lines[start:end]) + "\n"
        token, size = self.tokens[token_start], self.count_tokens(text)
        if size <= (MAX_CODE_TOKENS if token.type == "fence" else _ROOM):
            is_prose = token.type in ("paragraph_open", *_CONTAINERS) and "```" not in text and "~~~" not in text
            yield Block(text=text, size_tokens=size, is_prose=is_prose)
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

    def fence(self, text: str, token: Token) -> Iterator[Block]:
        """Yield a code fence cut at its lines, closed and opened again at each cut."""
        first, _, inside = text.partition("\n")
        margin = re.sub(r"[^\s>]", " ", first[: first.find(token.markup)])
        code = inside.rstrip()
        last = code[code.rfind("\n") + 1 :]
        is_closed = last.strip(" >\t").startswith(token.markup)
        closing = inside[len(code) - len(last) :] if is_closed else ""
        yield from self.framed(
            inside[: len(inside) - len(closing)], first=first + "\n",
            opening=f"{margin}{token.markup}{token.info.rstrip()}\n", closing=f"{margin}{token.markup}\n", last=closing,
        )  # fmt: skip

    def framed(self, inside: str, *, first: str, opening: str, closing: str = "", last: str = "") -> Iterator[Block]:
        """Yield lines cut into even parts, each between `opening` and `closing` except at the outer ends."""
        frame = self.count_tokens(opening) + self.count_tokens(closing)
        room = max(MAX_TOKENS // 2, MAX_TOKENS - frame)
        blocks = list(self.text(inside, (_AFTER_LINE,), room=room))
        total = sum(block.size_tokens for block in blocks)
        even = total / -(-total // room) if total else 0
        parts, size = [""], 0
        for block in blocks:
            is_good_break = parts[-1].endswith("\n\n") and size > even * 0.75
            if parts[-1] and (size >= even or is_good_break or size + block.size_tokens > room):
                parts.append("")
                size = 0
            parts[-1] += block.text
            size += block.size_tokens
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            text = (first if number == 0 else opening) + part + ("" if part.endswith("\n") or is_last else "\n")
            text += last if is_last else closing
            yield Block(text=text, size_tokens=self.count_tokens(text), is_prose=False, starts_chunk=number > 0)

    def text(
        self, text: str, boundaries: Sequence[re.Pattern[str]], *, room: int = _ROOM, is_prose: bool = False
    ) -> Iterator[Block]:
        """Yield a text cut at the first kind of boundary; longer parts at the next kind, finally anywhere."""
        size = self.count_tokens(text)
        if size <= room:
            yield Block(text=text, size_tokens=size, is_prose=is_prose)
        elif boundaries:
            for part in _split_after(text, boundaries[0]):
                yield from self.text(part, boundaries[1:], room=room, is_prose=is_prose)
        else:
            yield from self.anywhere(text, max(1, len(text) * room // size), room=room, is_prose=is_prose)

    def anywhere(self, text: str, chars_per_room: int, *, room: int, is_prose: bool) -> Iterator[Block]:
        """Yield a text cut between words, or between characters if it has none (CJK, base64)."""
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
            yield Block(text=text[start:end], size_tokens=size, is_prose=is_prose)
            start = end


def _split_after(text: str, boundary: re.Pattern[str]) -> list[str]:
    ends = [match.end() for match in boundary.finditer(text) if 0 < match.end() < len(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end]


def pack(blocks: Sequence[Block], *, count_tokens: CountTokens) -> Iterator[str]:
    """Yield texts filled with blocks, in order, each starting with the end of the previous one."""
    runs: list[list[Block]] = []
    sizes: list[int] = []
    for block in blocks:
        fits = runs and sizes[-1] + block.size_tokens <= _ROOM and not block.starts_chunk
        if fits or (runs and not block.text.strip()):
            runs[-1].append(block)
            sizes[-1] += block.size_tokens
        else:
            runs.append([block])
            sizes.append(block.size_tokens)
    if len(runs) > 1 and sizes[-1] < MIN_TOKENS and sizes[-2] + sizes[-1] <= MAX_TOKENS:
        last, last_size = runs.pop(), sizes.pop()
        runs[-1].extend(last)
        sizes[-1] += last_size
    before = ""
    for run, size in zip(runs, sizes, strict=True):
        room = min(OVERLAP_TOKENS, MAX_TOKENS - size)
        overlap = _ending(before, budget_tokens=room, count_tokens=count_tokens)
        yield trim(overlap + "".join(block.text for block in run))
        prose = list(itertools.takewhile(lambda block: block.is_prose, reversed(run)))
        before = "".join(block.text for block in reversed(prose))


def _ending(prose: str, *, budget_tokens: int, count_tokens: CountTokens) -> str:
    """Return the last sentences (else words) of a text that fit in the budget, never all of it."""
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


def trim(text: str) -> str:
    """Return the text with plain line ends, without blank lines at its start and white space at its end."""
    lines = plain_line_ends(text).rstrip().split("\n")
    return "\n".join(itertools.dropwhile(lambda line: not line.strip(), lines))
