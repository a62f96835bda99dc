"""Chunking: along headings and blocks, and of a useful size."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from prose import sentences, squeezed, words

from nugget.markdown import ChunkLimits, chunk_markdown, title_of
from nugget.models import Chunk
from nugget.text import estimate_tokens

WIDE = ChunkLimits(max_tokens=512, min_tokens=0, overlap=0)
NARROW = ChunkLimits(max_tokens=150, min_tokens=50, overlap=0.12)
PLAIN = replace(NARROW, overlap=0)


def crumbs(chunks: list[Chunk]) -> list[str]:
    return [chunk.breadcrumb for chunk in chunks]


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("# Retry with `keys`\n\ntext", "Retry with `keys`"),
        ("\n\n  # Indented by two #\n", "Indented by two"),
        ("Underlined\n==========\n", "Underlined"),
        ("Over two\nlines\n===\n", "Over two lines"),
        ("intro\n\n# Later\n", "Later"),
        ("\r\n# Windows\r\n\r\ntext", "Windows"),
        ("# C#\n", "C#"),
        ("```\n# comment\n```\n", None),
        ("    # code\n", None),
        ("> # quoted\n", None),
        ("- # in a list\n", None),
        ("## Second level only\n", None),
        ("#hashtag\n", None),
        ("#\n\n# Real\n", "Real"),
        ("---\n\n# After a rule\n", "After a rule"),
        ("", None),
        ("標題\n===\n", "標題"),
    ],
)
def test_the_title_is_the_first_level_one_heading(body: str, title: str | None) -> None:
    assert title_of(body) == title


@pytest.mark.proves("KNOW-CHUNK-HEADINGS")
def test_a_section_is_a_chunk_whose_breadcrumb_is_the_path_of_its_headings() -> None:
    body = f"# Retry\n\n{words(60)}\n\n## Why\n\n{words(60)}\n\n### Money\n\n{words(60)}\n\n## How\n\n{words(60)}\n"
    chunks = chunk_markdown(body, title="Retry", limits=WIDE)
    assert crumbs(chunks) == ["Retry", "Retry > Why", "Retry > Why > Money", "Retry > How"]
    assert [chunk.position for chunk in chunks] == [0, 1, 2, 3]
    assert all(chunk.text == words(60) for chunk in chunks)


@pytest.mark.proves("KNOW-CHUNK-HEADINGS")
@pytest.mark.parametrize(
    "block",
    [
        "```sh\n# a comment\n## another\n```",
        "~~~\n# a comment\n~~~",
        "    # indented code\n",
        "> # quoted heading\n> text",
        "- # heading in a list\n  text",
        "<div>\n# inside html\n</div>",
        "| # | name |\n|---|------|\n| 1 | # x |",
        "\\# escaped",
        "#hashtag",
    ],
)
def test_a_hash_that_is_no_heading_begins_no_section(block: str) -> None:
    body = f"# Title\n\n{words(60)}\n\n{block}\n\nafter\n"
    chunks = chunk_markdown(body, title="Title", limits=WIDE)
    assert crumbs(chunks) == ["Title"]
    assert block.strip("\n") in chunks[0].text


@pytest.mark.proves("KNOW-CHUNK-SMALL")
def test_a_small_section_joins_the_next_one_under_the_same_parent() -> None:
    body = f"# T\n\n{words(60)}\n\n## A\n\nshort\n\n## B\n\n{words(30)}\n\n## C\n\n{words(60)}\n"
    chunks = chunk_markdown(body, title="T", limits=NARROW)
    assert chunks[1].breadcrumb == "T"
    assert chunks[1].text == f"## A\n\nshort\n\n## B\n\n{words(30)}"
    assert chunks[2].breadcrumb == "T > C"


@pytest.mark.proves("KNOW-CHUNK-LONG")
def test_a_long_section_is_cut_at_paragraphs_with_ten_to_fifteen_percent_overlap() -> None:
    paragraphs = [sentences(6, f"P{number}") for number in range(12)]
    limits = ChunkLimits(max_tokens=200, min_tokens=50, overlap=0.12)
    chunks = chunk_markdown("# T\n\n## Long\n\n" + "\n\n".join(paragraphs), title="T", limits=limits)
    assert {chunk.breadcrumb for chunk in chunks} == {"T > Long"}
    assert all(estimate_tokens(chunk.text) <= 200 for chunk in chunks)
    plain = chunk_markdown("# T\n\n## Long\n\n" + "\n\n".join(paragraphs), title="T", limits=limits)
    assert chunks == plain
    for before, after in itertools.pairwise(chunks):
        shared = next(n for n in range(len(after.text), 0, -1) if before.text.endswith(after.text[:n].rstrip()))
        assert 0 < estimate_tokens(after.text[:shared]) <= 0.15 * 200
        assert re.match(r"P\d+ number", after.text)


@pytest.mark.proves("KNOW-CHUNK-FENCE")
def test_a_code_fence_is_kept_whole_until_it_alone_is_too_long() -> None:
    fence = "```python\n" + "\n".join(f"line_{number} = {number}" for number in range(90)) + "\n```"
    body = f"# T\n\n{sentences(20)}\n\n{fence}\n\n{sentences(20, 'After')}\n"
    assert 150 < estimate_tokens(fence) < 512
    chunks = chunk_markdown(body, title="T", limits=NARROW)
    assert sum(fence in chunk.text for chunk in chunks) == 1
    assert all(chunk.text.count("```") % 2 == 0 for chunk in chunks)


@pytest.mark.proves("KNOW-CHUNK-FENCE")
def test_a_code_fence_that_alone_is_too_long_is_cut_into_whole_fences() -> None:
    code = [f"line_{number} = {number}" if number % 7 else "" for number in range(1, 400)]
    body = "# T\n\nintro\n\n````python title=x\n" + "\n".join(code) + "\n````\n\nafter\n"
    chunks = chunk_markdown(body, title="T", limits=NARROW)
    parts = [chunk.text for chunk in chunks if "line_" in chunk.text]
    assert len(parts) > 5
    assert all(part.count("````") == 2 for part in parts)
    assert not any(line.startswith("line_") for line in re.sub(r"(?s)````.*?````", "", "\n".join(parts)).split("\n"))
    assert all("````python title=x\n" in part for part in parts)
    assert all(estimate_tokens(part) <= 150 for part in parts)
    kept = [line for part in parts for line in part.split("\n") if line.startswith("line_")]
    assert kept == [line for line in code if line]


@pytest.mark.proves("KNOW-CHUNK-BLOCKS")
def test_a_long_table_is_cut_between_rows_and_each_part_has_the_header() -> None:
    header = "| name | meaning |\n|------|---------|"
    rows = [f"| row{number} | meaning number {number} |" for number in range(80)]
    chunks = chunk_markdown(f"# T\n\n{header}\n" + "\n".join(rows) + "\n", title="T", limits=NARROW)
    assert len(chunks) > 3
    assert all(chunk.text.startswith(header) for chunk in chunks)
    assert [row for chunk in chunks for row in chunk.text.split("\n")[2:]] == rows


@pytest.mark.proves("KNOW-CHUNK-BLOCKS")
def test_a_long_list_is_cut_between_its_entries() -> None:
    entries = [f"{number}. Entry {number} is about a thing\n   and goes on in a second line." for number in range(40)]
    chunks = chunk_markdown("# T\n\n" + "\n".join(entries), title="T", limits=PLAIN)
    assert len(chunks) > 3
    assert all(re.match(r"\d+\. Entry", chunk.text) for chunk in chunks)
    assert "\n".join(chunk.text for chunk in chunks) == "\n".join(entries)


@pytest.mark.proves("KNOW-CHUNK-CJK")
def test_text_without_spaces_is_cut_between_sentences_then_characters() -> None:
    body = "# 重試\n\n" + "。".join("冪等鍵可以防止重複扣款" * 3 for _ in range(40)) + "。\n\n" + "字" * 3000
    chunks = chunk_markdown(body, title="重試", count_tokens=len, limits=PLAIN)
    assert all(len(chunk.text) <= 150 for chunk in chunks)
    assert sum(chunk.text.endswith("。") for chunk in chunks) >= 5
    assert squeezed("# 重試" + "".join(chunk.text for chunk in chunks)) == squeezed(body)
