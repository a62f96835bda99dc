"""Chunking: along headings and blocks, of a useful size; of any document, with nothing lost."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nugget.markdown import chunk_markdown
from nugget.markdown.chunking import MAX_TOKENS
from nugget.models import Chunk
from nugget.text import estimate_tokens


def words(count: int, stem: str = "word") -> str:
    return " ".join(f"{stem}{number}" for number in range(count))


def sentences(count: int, stem: str = "Sentence") -> str:
    return " ".join(f"{stem} number {number} says a thing." for number in range(count))


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def crumbs(chunks: list[Chunk]) -> list[str]:
    return [chunk.breadcrumb for chunk in chunks]


@pytest.mark.proves("KNOW-CHUNK-HEADINGS")
def test_a_section_is_a_chunk_whose_breadcrumb_is_the_path_of_its_headings():
    body = f"# Retry\n\n{words(60)}\n\n## Why\n\n{words(60)}\n\n### Money\n\n{words(60)}\n\n## How\n\n{words(60)}\n"
    chunks = chunk_markdown(body, title="Retry")
    assert crumbs(chunks) == ["Retry", "Retry > Why", "Retry > Why > Money", "Retry > How"]
    assert [chunk.position for chunk in chunks] == [0, 1, 2, 3]
    assert all(chunk.text == words(60) for chunk in chunks)
    commented = chunk_markdown(f"# Retry\n\n{words(60)}\n\n```sh\n# a comment\n```\n", title="Retry")
    assert crumbs(commented) == ["Retry"]


@pytest.mark.proves("KNOW-CHUNK-LONG")
def test_a_long_section_is_cut_at_paragraphs_with_ten_to_fifteen_percent_overlap():
    paragraphs = [sentences(6, f"P{number}") for number in range(12)]
    chunks = chunk_markdown("# T\n\n## Long\n\n" + "\n\n".join(paragraphs), title="T")
    assert {chunk.breadcrumb for chunk in chunks} == {"T > Long"}
    assert all(estimate_tokens(chunk.text) <= 200 for chunk in chunks)
    for before, after in itertools.pairwise(chunks):
        shared = next(n for n in range(len(after.text), 0, -1) if before.text.endswith(after.text[:n].rstrip()))
        assert 0 < estimate_tokens(after.text[:shared]) <= 0.15 * 200
        assert re.match(r"P\d+ number", after.text)


@pytest.mark.proves("KNOW-CHUNK-FENCE")
def test_a_code_fence_is_kept_whole_until_it_alone_is_too_long():
    fence = "```python\n" + "\n".join(f"line_{number} = {number}" for number in range(90)) + "\n```"
    body = f"# T\n\n{sentences(20)}\n\n{fence}\n\n{sentences(20, 'After')}\n"
    assert 150 < estimate_tokens(fence) < 512
    chunks = chunk_markdown(body, title="T")
    assert sum(fence in chunk.text for chunk in chunks) == 1
    assert all(chunk.text.count("```") % 2 == 0 for chunk in chunks)


@pytest.mark.proves("KNOW-CHUNK-CJK")
def test_text_without_spaces_is_cut_between_sentences_then_characters():
    body = "# 重試\n\n" + "。".join("冪等鍵可以防止重複扣款" * 3 for _ in range(40)) + "。\n\n" + "字" * 3000
    chunks = chunk_markdown(body, title="重試", count_tokens=len)
    assert all(len(chunk.text) <= MAX_TOKENS for chunk in chunks)
    assert sum(chunk.text.endswith("。") for chunk in chunks) >= 5
    assert all(squeezed(chunk.text) in squeezed(body) for chunk in chunks)


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=60)
FENCED = st.builds(
    lambda mark, info, lines: "\n".join([mark + info, *(line for line in lines if mark not in line), mark]),
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "python", " sh x=1"]),
    st.lists(LINE, max_size=40),
)
BLOCK = st.one_of(
    st.builds(lambda level, text: "#" * level + " " + text, st.integers(1, 6), LINE),
    st.builds(lambda text, mark: f"{text}\n{mark}", LINE, st.sampled_from(["===", "---", "-"])),
    FENCED,
    st.lists(LINE, min_size=1, max_size=12).map("\n".join),
    st.integers(1, 60).map(sentences),
    st.lists(LINE, min_size=1, max_size=8).map(lambda lines: "\n".join(f"- {line}" for line in lines)),
    st.lists(LINE, min_size=1, max_size=8).map(lambda lines: "\n".join(f"{n}. {line}" for n, line in enumerate(lines))),
    st.lists(LINE, min_size=1, max_size=8).map(lambda lines: "\n".join(f"> {line}" for line in lines)),
    st.integers(1, 40).map(lambda n: "| a | b |\n|---|---|\n" + "\n".join(f"| {i} | cell {i} |" for i in range(n))),
    st.sampled_from(["---", "***", "<div>\n# x\n</div>", "<!-- # x -->", "[ref]: /url 't'", "    code\n\n    # more"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200),
    st.sampled_from(["字" * 700, "x" * 2000, "漢字。" * 300, "- a\n  - b\n    - c\n\n      ```\n      # d\n      ```"]),
)
DOCUMENT = st.lists(BLOCK, max_size=12).map("\n\n".join)
COUNTERS = st.sampled_from([estimate_tokens, len, lambda text: len(text.split())])


@pytest.mark.proves("KNOW-CHUNK-LOSSLESS")
@settings(max_examples=100, deadline=None)
@given(body=DOCUMENT, count=COUNTERS)
@example(body="a\n\n    \n```\n", count=estimate_tokens)
def test_no_character_of_a_document_is_lost(body, count):
    chunks = chunk_markdown(body, title="T", count_tokens=count)
    shown = "".join(f"{chunk.breadcrumb}\n{chunk.text}\n" for chunk in chunks)
    assert Counter(squeezed(body)) <= Counter(shown + "#=-" * len(body))
    for heading, inline in itertools.pairwise(MarkdownIt("commonmark").enable("table").parse(body)):
        if heading.type == "heading_open" and heading.level == 0 and len(inline.content) < 20:
            assert squeezed(inline.content) in squeezed(shown)
