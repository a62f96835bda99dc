"""Chunking of any document: nothing is lost, nothing is too long, and hostile markdown ends in chunks."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prose import sentences, squeezed

from nugget.markdown import ChunkLimits, chunk_markdown
from nugget.text import estimate_tokens

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
LIMITS = st.builds(
    ChunkLimits,
    max_tokens=st.integers(20, 300),
    min_tokens=st.integers(0, 60),
    overlap=st.sampled_from([0, 0.1, 0.12, 0.15]),
    max_code_tokens=st.integers(20, 600),
)
COUNTERS = st.sampled_from([estimate_tokens, len, lambda text: len(text.split())])


@pytest.mark.proves("KNOW-CHUNK-LOSSLESS")
@settings(max_examples=100, deadline=None)
@given(body=DOCUMENT, limits=LIMITS, count=COUNTERS)
@example(body="a\n\n    \n```\n", limits=ChunkLimits(overlap=0), count=estimate_tokens)
def test_no_character_of_a_document_is_lost(body: str, limits: ChunkLimits, count: Callable[[str], int]) -> None:
    chunks = chunk_markdown(body, title="T", count_tokens=count, limits=replace(limits, overlap=0))
    shown = "".join(f"{chunk.breadcrumb}\n{chunk.text}\n" for chunk in chunks)
    assert Counter(squeezed(body)) <= Counter(shown + "#=-" * len(body))
    for heading, inline in itertools.pairwise(MarkdownIt("commonmark").enable("table").parse(body)):
        if heading.type == "heading_open" and heading.level == 0 and len(inline.content) < 20:
            assert squeezed(inline.content) in squeezed(shown)


@pytest.mark.proves("KNOW-CHUNK-LONG")
@settings(max_examples=60, deadline=None)
@given(body=DOCUMENT, limits=LIMITS)
def test_no_chunk_without_code_or_table_is_larger_than_the_limit(body: str, limits: ChunkLimits) -> None:
    for chunk in chunk_markdown(body, title="T", limits=limits):
        assert chunk.text.strip()
        if not re.search(r"```|~~~|\|", chunk.text):
            assert estimate_tokens(chunk.text) <= limits.max_tokens + 1
