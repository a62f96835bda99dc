"""HTML of texts that nobody vouches for: markdown, marked words and differences, with nothing that runs or loads."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from nugget.models import Unit
from nugget.render import question_spans
from nugget.render.terminal import without_heading
from nugget.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_TAGS = frozenset("a blockquote br code del em hr li ol p pre s strong table tbody td th thead tr ul".split())
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_MAX_DIFF_CHARS = 60_000
_MARKS = re.compile(r"\*\*|__|`|^(?:[-*>#]+ )+")
_LAST_QUOTE = re.compile(r"(?:\n> [^\n]*)+\s*\Z")


def markdown(text: str) -> Markup:
    """Return markdown as HTML: no HTML of its own, images as links, links to the web only."""
    import nh3

    made = _parser().render(clean(text))
    return Markup(
        nh3.clean(made, tags=set(_TAGS), attributes={"a": {"href", "title"}, "ol": {"start"}},
                  url_schemes={"http", "https", "mailto"}, link_rel="noopener noreferrer nofollow")
    )  # fmt: skip


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])

    def image(tokens: Any, at: int, *_: object) -> str:
        source, words = tokens[at].attrGet("src") or "", tokens[at].content or "image"
        return f'<a href="{escape(source)}">{escape(words)}</a>'

    def heading(tokens: Any, at: int, options: Any, env: Any) -> str:
        # Headings of a text are no headings of the page, whose outline they would break.
        return "</strong></p>" if tokens[at].nesting < 0 else "<p><strong>"

    parser.renderer.rules |= {"image": image, "heading_open": heading, "heading_close": heading}  # type: ignore[attr-defined]
    return parser


def body(unit: Unit) -> Markup:
    """Return the body of a unit as HTML, without its title and the quotes at its end, which are shown apart."""
    text = without_heading(unit)
    while unit.evidence and (found := _LAST_QUOTE.search(text)):
        text = text[: found.start()]
    return markdown(text)


def marked(text: str, question: str) -> Markup:
    """Return a line of markdown without its marks, and with the words of a question marked."""
    text, shown, end = clean(_MARKS.sub("", text)), Markup(), 0
    for start, stop in question_spans(text, question):
        shown += escape(text[end:start]) + Markup("<mark>{}</mark>").format(text[start:stop])
        end = stop
    return shown + escape(text[end:])


def difference(before: str, after: str, *, context: int = 2) -> list[tuple[str, Markup]]:
    """Return the changed lines of two texts and a few around them, as (`same`, `old`, `new` or `gap`, HTML).

    Within a line that was changed, the words that differ are marked.
    """
    ours, theirs = clean(before)[:_MAX_DIFF_CHARS].splitlines(), clean(after)[:_MAX_DIFF_CHARS].splitlines()
    found: list[tuple[str, Markup]] = []
    for number, group in enumerate(
        difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_grouped_opcodes(context)
    ):
        if number:
            found.append(("gap", Markup("⋯")))
        for tag, first, last, begin, end in group:
            if tag == "equal":
                found += [("same", escape(line)) for line in ours[first:last]]
            elif tag == "replace" and last - first == end - begin:
                for old, new in zip(ours[first:last], theirs[begin:end], strict=True):
                    found += _words_of(old, new)
            else:
                found += [("old", escape(line)) for line in ours[first:last]]
                found += [("new", escape(line)) for line in theirs[begin:end]]
    return found


def _words_of(old: str, new: str) -> Iterator[tuple[str, Markup]]:
    ours, theirs = _WORDS.findall(old), _WORDS.findall(new)
    sides: tuple[list[Markup], list[Markup]] = ([], [])
    for tag, first, last, begin, end in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        for side, text in ((sides[0], "".join(ours[first:last])), (sides[1], "".join(theirs[begin:end]))):
            if text:
                side.append(escape(text) if tag == "equal" else Markup("<mark>{}</mark>").format(text))
    yield "old", Markup().join(sides[0])
    yield "new", Markup().join(sides[1])
