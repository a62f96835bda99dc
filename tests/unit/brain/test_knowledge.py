"""Knowledge files: what is taken, what is refused with its line, and how they are written and changed."""

import itertools
import string
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.brain.knowledge_file import MAX_FILE_BYTES, edit, parse, parse_bytes, serialise
from nugget.models import Evidence, KnowledgeType, Origin, Relation, RelationType, Scope, Severity, SourceName, Unit

PATH = "domains/coding/patterns/retry-with-idempotency.md"
CONTRACT = """\
---
id: pattern/retry-with-idempotency        # <type>/<slug>, unique in the brain
type: pattern                             # pattern | concept | decision | bug | belief
domain: coding
tags: [stripe, payments, reliability]
confidence: 0.9                           # 0.0 - 1.0
source: ai-session                        # ai-session | manual | imported
related:
  - id: concept/idempotency-keys
    relation: uses                        # uses | implements | requires_understanding_of
created: 2026-02-24
last_modified: 2026-02-25
# optional: scope {repo, path, symbol}, session, evidence, stale_after, alternatives; unknown keys are kept
---
# Retry with Idempotency Keys

Body in markdown.
"""


def file(body: str = "# Title\n\nText.\n", **keys: str) -> str:
    """A valid file with the YAML of some keys replaced (`_` takes a key away)."""
    lines = {"id": "pattern/retry", "type": "pattern", "domain": "coding"} | keys
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in lines.items() if value != "_") + f"---\n{body}"


def unit_of(text: str, path: str = "domains/coding/patterns/retry.md") -> Unit:
    parsed = parse(text, path=path)
    assert parsed.unit is not None, parsed.problems
    return parsed.unit


@pytest.mark.proves("KNOW-FORMAT")
def test_the_file_of_the_contract_parses_into_its_unit():
    parsed = parse(CONTRACT, path=PATH)
    assert parsed.problems == ()
    assert parsed.unit == Unit(
        id="pattern/retry-with-idempotency", source=SourceName.BRAIN, type="pattern",
        title="Retry with Idempotency Keys", body="# Retry with Idempotency Keys\n\nBody in markdown.",
        path=PATH, domain="coding", tags=("stripe", "payments", "reliability"), confidence=0.9,
        origin=Origin.AI_SESSION, related=(Relation(id="concept/idempotency-keys", relation=RelationType.USES),),
        created=date(2026, 2, 24), last_modified=date(2026, 2, 25),
    )  # fmt: skip
    assert (parsed.lines["id"], parsed.lines["related"], parsed.lines["related.0"]) == (2, 8, 9)


@pytest.mark.proves("KNOW-TOLERANT")
@pytest.mark.parametrize(("key", "written", "field", "value"), [
    ("tags", "one, two", "tags", ("one", "two")),
    ("tags", "[a, a, 2024, yes, null, ' b ']", "tags", ("a", "2024", "yes", "b")),
    ("confidence", "'0.5'", "confidence", 0.5),
    ("source", "AI-Session", "origin", Origin.AI_SESSION),
    ("scope", "src/a.py", "scope", Scope(path="src/a.py")),
    ("evidence", "It failed.", "evidence", (Evidence(session="", quote="It failed."),)),
])  # fmt: skip
def test_keys_are_taken_in_the_forms_that_people_write(key, written, field, value):
    parsed = parse(file(**{key: written}), path="domains/coding/patterns/retry.md")
    assert parsed.problems == () and getattr(parsed.unit, field) == value


HARMLESS = ("`stale_after` must be a date", "`type` is pattern, but the id says concept")
"""Warnings: the unit is read in spite of them."""


@pytest.mark.proves("KNOW-PROBLEM-LINE")
@pytest.mark.parametrize(("keys", "line", "says"), [
    ({"id": "_"}, 1, "has no `id`; add a line `id: pattern/retry`"),
    ({"id": "pattern/../../etc"}, 2, "`id` must be <type>/<slug>"),
    ({"type": "recipe"}, 3, "`type` must be one of pattern, concept, decision, bug, belief, not 'recipe'"),
    ({"domain": "../up"}, 4, "`domain` must be folder names"),
    ({"related": "concept/x"}, 5, "`related` must be a list of entries"),
    ({"related": "\n  - id: bug/x\n    relation: eats"}, 7, "`relation` must be one of uses, implements"),
    ({"stale_after": "soon"}, 5, "`stale_after` must be a date"),
    ({"id": "concept/x"}, 3, "`type` is pattern, but the id says concept"),
])  # fmt: skip
def test_an_invalid_value_is_reported_with_its_line(keys, line, says):
    parsed = parse(file(**keys), path="domains/coding/patterns/retry.md")
    (problem,) = parsed.problems
    is_warning = says in HARMLESS
    assert (parsed.unit is not None) == is_warning
    assert (problem.path, problem.line) == ("domains/coding/patterns/retry.md", line)
    assert problem.severity is (Severity.WARNING if is_warning else Severity.ERROR)
    assert says in problem.reason


@pytest.mark.proves("KNOW-HOSTILE")
@pytest.mark.parametrize(("content", "says", "line"), [
    (b"\x89PNG\r\n\x1a\n\0\0", "not UTF-8 text (byte 0x89)", 1),
    (b"---\nid: pattern/x\0\n", "not UTF-8 text (byte 0x00)", 2),
    (b"---\nid: pattern/x\ntitle: caf\xe9\n---\n", "not UTF-8 text (byte 0xe9)", 3),
    (b"x" * (MAX_FILE_BYTES + 1), "a knowledge file may be 5 MB at most", None),
])  # fmt: skip
def test_what_is_no_text_is_refused(content, says, line):
    parsed = parse_bytes(content, path="a.md")
    (problem,) = parsed.problems
    assert says in problem.reason and (parsed.unit, problem.line) == (None, line)


@pytest.mark.proves("KNOW-HOSTILE")
def test_a_merge_conflict_is_reported_and_searched_for_in_linear_time():
    conflict = "<<<<<<< HEAD\nOne.\n=======\nTwo.\n>>>>>>> main\n"
    for text, found in ((conflict, 1), (conflict[:-13] * 20_000, 0)):
        parsed = parse(f"---\nid: pattern/x\ntype: pattern\ndomain: coding\n---\n# T\n{text}", path="x.md")
        assert parsed.unit and sum("merge conflict" in problem.reason for problem in parsed.problems) == found


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in itertools.pairwise(string.ascii_lowercase)
)


@pytest.mark.proves("KNOW-HOSTILE")
def test_a_yaml_bomb_costs_nothing():
    assert parse(f"---\n{BOMB}id: pattern/x\ntype: pattern\ndomain: coding\n---\n# T\n", path="x.md").unit is not None
    parsed = parse(f"---\n{BOMB}tags: *z\nid: pattern/x\ntype: pattern\n---\n# T\n", path="x.md")
    assert parsed.unit is None
    assert any("each of `tags` must be a single value" in problem.reason for problem in parsed.problems)
    merged = "".join(f"m{n}: &m{n}\n  <<: [*m{n - 1}, *m{n - 1}]\n" for n in range(1, 40))
    text = f"---\nm0: &m0 {{a: b}}\n{merged}id: pattern/x\ntype: pattern\n---\n# T\n"
    assert parse(text, path="x.md").unit is not None


@pytest.mark.proves("KNOW-HOSTILE")
@pytest.mark.parametrize("value", [
    "!!python/object/apply:os.system ['touch {}']", "!!python/object/new:subprocess.Popen [['touch', '{}']]",
    "!custom x",
])  # fmt: skip
@pytest.mark.parametrize("key", ["id", "tags", "scope", "unknown"])
def test_tags_are_never_constructed(tmp_path, key, value):
    trace = tmp_path / "trace"
    parsed = parse(file(**{key: value.format(trace)}), path="domains/coding/patterns/retry.md")
    assert not trace.exists()
    assert bool(parsed.problems) == (key != "unknown")


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
        id=f"{kind}/{slug}", source=SourceName.BRAIN, type=str(kind), title=draw(LINE),
        body="\n".join(["x", body]).strip(), path=f"domains/{domain}/{kind}s/{slug}.md", domain=domain,
        tags=tuple(draw(st.lists(LINE, max_size=4, unique=True))),
        confidence=draw(st.floats(0, 1)),
        origin=draw(st.none() | st.sampled_from(Origin)),
        related=tuple(Relation(id=f"bug/{draw(WORD)}", relation=draw(st.sampled_from(RelationType)))
                      for _ in range(draw(st.integers(0, 3)))),
        scope=draw(st.none() | st.builds(Scope, repo=st.none() | LINE, path=LINE, symbol=st.none() | LINE)),
        session=draw(st.none() | LINE),
        evidence=tuple(
            draw(st.lists(st.builds(Evidence, session=LINE, quote=TEXT, records=st.lists(WORD, max_size=3).map(tuple)),
                          max_size=2))
        ),
        alternatives=tuple(draw(st.lists(LINE, max_size=3, unique=True))),
        created=created, last_modified=last_modified, stale_after=draw(DAY),
    )  # fmt: skip


@pytest.mark.proves("KNOW-ROUND-TRIP")
@settings(max_examples=150, deadline=None)
@given(units())
def test_parse_serialise_parse_is_identical(unit):
    text = serialise(unit)
    parsed = parse_bytes(text.encode("utf-8"), path=unit.path or "")
    assert parsed.unit == unit, text
    assert serialise(parsed.unit) == text
    assert all(problem.severity is Severity.WARNING for problem in parsed.problems)


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
def test_an_edit_keeps_every_other_line_byte_for_byte(parts, order, newline, key, value):
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
