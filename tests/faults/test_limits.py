"""A file of any size or shape costs little, and what is too much of it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Nugget

from nugget.brain.knowledge_file import MAX_RELATIONS, parse
from nugget.markdown import MAX_CHUNKS, MAX_LINES, chunk_markdown, left_out, title_of
from nugget.models import SourceName
from nugget.sources.notes import MAX_LINKS, read_note

HEAD = "id: {0}/{1}\ntype: {0}\ndomain: coding\nconfidence: 0.5\nsource: manual\ncreated: 2026-01-01"
N = 100_000

HUGE = {
    "headings": "".join(f"## h{number}\n\ntext {number}\n\n" for number in range(N)),
    "link references": "".join(f"[l{number}]: http://x.invalid/{number}\n" for number in range(N // 2)),
    "a table of many rows": "|a|b|\n|-|-|\n" + "|x|y|\n" * N,
    "a table of many columns": "|a" * 5000 + "|\n" + "|-" * 5000 + "|\n" + ("|x" * 5000 + "|\n") * 20,
    "list entries": "- x\n" * N,
    "deep lists": "".join("  " * depth + "- x\n" for depth in range(1500)),
    "deep quotes": ">" * N + " x\n",
    "underlined headings": "a\n=\n" * (N // 2),
    "one line": "word " * (4 * N),
    "one word": "w" * (20 * N),
    "spaces in a heading": "# a" + " " * N + "b\n",
    "signs in a heading": "# a" + " #" * N + "b\n",
    "brackets": "[" * N,
    "open titles": "[a]: b 'x\n" * N,
    "links": "[[a/b]] [c](d.md) " * N,
    "full stops": ". " * N,
}


def knowledge_file(body: str, *, slug: str = "huge", more: str = "") -> str:
    return f"---\n{HEAD.format('concept', slug)}\nlast_modified: 2026-01-01\n{more}---\n# Huge\n\n{body}\n"


@pytest.mark.proves("LIMIT-FILE")
@pytest.mark.parametrize("body", HUGE.values(), ids=HUGE)
def test_no_body_holds_the_parser(body: str) -> None:
    # Some of these once took minutes; a test that hangs is the failure.
    assert title_of(body) is None or len(body) > N
    chunks = chunk_markdown(body, title="Huge")
    assert 0 < len(chunks) <= MAX_CHUNKS
    lines = body.count("\n") + 1
    assert bool(left_out(body)) == (lines > MAX_LINES or len(chunks) == MAX_CHUNKS)


@pytest.mark.proves("LIMIT-FILE")
def test_relations_and_links_above_the_limit_are_named() -> None:
    related = "related:\n" + "".join(f"- {{id: concept/u{number}, relation: uses}}\n" for number in range(2001))
    parsed = parse(knowledge_file("x", more=related), path="domains/coding/concepts/huge.md")
    assert parsed.unit is not None and len(parsed.unit.related) == MAX_RELATIONS
    assert [problem.reason for problem in parsed.problems] == [
        "`related` has 2,001 entries; only the first 2,000 count"
    ]
    text = "".join(f"[[note {number}]]\n" for number in range(2001))
    note, problems = read_note(text, key="notes/a.md", source=SourceName.CANON, names={})
    assert len(note.related) == MAX_LINKS and "2,001 links" in problems[0].reason


@pytest.mark.proves("LIMIT-FILE")
def test_sync_indexes_what_it_may_and_says_what_it_left_out(nugget: Nugget, words: Path) -> None:
    folder = words / "domains" / "coding" / "concepts"
    for name in ("headings", "link references", "one word"):
        slug = name.replace(" ", "-")
        (folder / f"{slug}.md").write_text(knowledge_file(HUGE[name], slug=slug), "utf-8")
    problems = nugget("sync", "--json").json["problems"]
    named = {problem["path"].rsplit("/", 1)[1]: problem["reason"] for problem in problems}
    assert "only the first 20,000 are indexed" in named["headings.md"]
    assert "more than 2,000 passages" in named["one-word.md"]
    assert {"headings.md", "link-references.md", "one-word.md"} == named.keys()
    linted = nugget("lint", "--json").json["problems"]
    assert named.keys() <= {problem["path"].rsplit("/", 1)[1] for problem in linted}
    assert nugget("ask", "how do we cache", "--no-llm").code == 0
