"""Knowledge files are written so that they read well, and changed only where they must be."""

from __future__ import annotations

import string
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from knowledge_texts import unit_of

from nugget.brain.knowledge_file import edit, parse_bytes, serialise
from nugget.models import Evidence, KnowledgeType, Origin, Relation, RelationType, Scope, Severity, SourceName, Unit

# --- serialise

WORD = st.text(alphabet=string.ascii_letters + string.digits + "-_é字", min_size=1, max_size=12).filter(str.isalnum)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=60)
LINE = TEXT.map(lambda text: " ".join(text.split())).filter(bool)
DAY = st.none() | st.dates(date(1970, 1, 1), date(2199, 12, 31))


@st.composite
def units(draw: st.DrawFn) -> Unit:
    kind = draw(st.sampled_from(list(KnowledgeType)))
    domain = draw(st.sampled_from(["coding", "coding/go", "management", "烹飪"]))
    slug = draw(WORD)
    created, last_modified = draw(DAY), draw(DAY)
    body = draw(TEXT | st.just("# Title\n\nText.\n\n---\n\nMore.")).strip()
    return Unit(
        id=f"{kind}/{slug}",
        source=SourceName.BRAIN,
        type=str(kind),
        title=draw(LINE),
        body="\n".join(["x", body]).strip(),
        path=f"domains/{domain}/{kind}s/{slug}.md",
        domain=domain,
        tags=tuple(draw(st.lists(LINE, max_size=4, unique=True))),
        confidence=draw(st.floats(0, 1)),
        origin=draw(st.none() | st.sampled_from(Origin)),
        related=tuple(
            Relation(id=f"bug/{draw(WORD)}", relation=draw(st.sampled_from(RelationType)))
            for _ in range(draw(st.integers(0, 3)))
        ),
        scope=draw(st.none() | st.builds(Scope, repo=st.none() | LINE, path=LINE, symbol=st.none() | LINE)),
        session=draw(st.none() | LINE),
        evidence=tuple(
            draw(st.lists(st.builds(Evidence, session=LINE, quote=TEXT, records=st.lists(WORD, max_size=3).map(tuple)),
                          max_size=2))
        ),
        alternatives=tuple(draw(st.lists(LINE, max_size=3, unique=True))),
        created=created,
        last_modified=last_modified,
        stale_after=draw(DAY),
    )  # fmt: skip


@pytest.mark.proves("KNOW-ROUND-TRIP")
@settings(max_examples=150, deadline=None)
@given(units())
def test_parse_serialise_parse_is_identical(unit: Unit) -> None:
    text = serialise(unit)
    parsed = parse_bytes(text.encode("utf-8"), path=unit.path or "")
    assert parsed.unit == unit, text
    assert serialise(parsed.unit) == text
    assert all(problem.severity is Severity.WARNING for problem in parsed.problems)


# --- edit


FOREIGN = st.sampled_from(
    ["# comment\n", "\n", "custom: {a: [1, 2]}\n", "note: |\n  # not a comment\n  text\n\n", "  # indented comment\n",
     "x-y: 'it''s'\n", "folded: >-\n  a\n  b\n", "list:\n- a\n# between\n- b\n", "empty:\n"]
)  # fmt: skip


@pytest.mark.proves("KNOW-EDIT-ONLY")
@settings(max_examples=150, deadline=None)
@given(
    parts=st.lists(FOREIGN, max_size=6, unique=True),
    order=st.permutations(range(9)),
    newline=st.sampled_from(["\n", "\r\n"]),
    key=st.sampled_from(["confidence", "tags", "session", "created", "title", "scope", "domain", "alternatives"]),
    value=LINE,
)
def test_an_edit_keeps_every_other_line_byte_for_byte(
    parts: list[str], order: list[int], newline: str, key: str, value: str
) -> None:
    known = ["id: pattern/x\n", "type: pattern\n", "domain: coding # here\n", "confidence:   0.50   # sure\n",
             "tags:\n  - a  # first\n  - b\n"]  # fmt: skip
    pieces = [*known, *parts]
    shuffled = [pieces[index] for index in order if index < len(pieces)] + pieces[9:]
    text = ("---\n" + "".join(shuffled) + "---\n# T\n\nbody  \n").replace("\n", newline)
    new: Any = {"confidence": 0.25, "tags": (value,), "created": date(2026, 1, 2), "domain": "cooking",
                "scope": Scope(path=value), "alternatives": (value,)}.get(key, value)  # fmt: skip
    changed = edit(text, changes={key: new})
    before, after = (yaml.safe_load(whole.split("---")[1]) for whole in (text, changed))
    assert {name: given for name, given in before.items() if name != key} == {
        name: given for name, given in after.items() if name != key
    }
    assert getattr(unit_of(changed, "x.md"), key) == new
    untouched = [line for piece in shuffled if not piece.startswith(f"{key}:") for line in piece.splitlines()]
    kept = iter(changed.replace(newline, "\n").split("\n"))
    assert all(line in kept for line in untouched)
    assert edit(changed, changes={key: new}) == changed
