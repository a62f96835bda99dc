"""Queries with operators over history: phrases, nearness, AND, OR and NOT, held against the texts themselves."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from history_world import World
from hypothesis import given
from hypothesis import strategies as st

from nugget.history import ask_history
from nugget.history.expressions import matcher, probe
from nugget.index.query_language import compile_match, parse_search
from nugget.models import SourceName
from nugget.render import degraded_sentences


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.connection.close()


@pytest.mark.proves("HIS-EXPRESSION")
def test_an_expression_decides_what_is_found_and_phrases_hold(world: World) -> None:
    world.write([("the end of the file was reached", "ok")], "a")
    world.write([("the file was at an end", "ok")], "b")
    world.write([("lighthouses everywhere, retryWithBackoff", "ok")], "c")
    world.write([("payments by keyboard, 支払いの再試行", "ok")], "d")
    world.sync()
    assert world.matching('"end of the file"') == ["session:a#1"]
    assert set(world.matching("end AND file")) == {"session:a#1", "session:b#1"}
    assert world.matching("file NOT reached") == ["session:b#1"]
    assert world.matching('file NOT "end of the"') == ["session:b#1"]
    assert world.matching("light*") == ["session:c#1"]
    assert world.matching("pay* AND key*") == ["session:d#1"]
    assert world.matching("NEAR(支払い 再試行, 5)") == ["session:d#1"]
    assert world.matching('"retry with"') == []
    assert world.matching("NEAR(end reached, 4)") == ["session:a#1"] and world.matching("NEAR(end reached, 3)") == []
    assert set(world.matching('everywhere OR "at an end"')) == {"session:b#1", "session:c#1"}
    assert world.matching("backoff AND everywhere") == ["session:c#1"]
    assert world.matching('"the of"') == []


@pytest.mark.proves("HIS-UNSPACED")
@pytest.mark.parametrize("word", ["検", "索", "能", "検索", "機能", "索機", "検索機能", "速"])
def test_a_part_of_what_is_written_without_spaces_is_found_wherever_it_stands(world: World, word: str) -> None:
    world.write([("検索機能が遅い。もっと速", "ok")], "a")
    world.write([("The payments are slow.", "遅延")], "b")
    world.sync()
    assert world.found(word) == ["session:a#1"]
    assert world.matching(f"{word} AND 遅い") == ["session:a#1"]
    assert world.matching(f"payments NOT {word}") == ["session:b#1"]


@pytest.mark.proves("HIS-PHRASE-FAR")
def test_a_phrase_is_found_however_many_newer_passages_hold_its_words(world: World) -> None:
    turns = [("the lantern walnut stands here", "ok")]
    turns += [(f"walnut number {number} and a lantern", "ok") for number in range(2000)]
    world.write(turns, "a")
    world.sync()
    assert world.matching('"lantern walnut"') == ["session:a#1"]
    assert world.matching("NEAR(here lantern, 3)") == ["session:a#1"]
    parsed = parse_search('"lantern walnut"', today=date(2026, 3, 1))
    whole = ask_history(world.connection, parsed.text, expression=parsed.expression)
    assert (len(whole.hits), whole.cut) == (1, {})
    hasty = ask_history(world.connection, parsed.text, expression=parsed.expression, patience_s=0.0)
    assert hasty.hits == ()
    cut = hasty.cut[SourceName.SESSIONS]
    assert cut.startswith("back to 20"), "what was not looked at is said"
    few = ask_history(world.connection, "here", expression=parse_search("here*", today=date(2026, 3, 1)).expression,
                      patience_s=0.0)  # fmt: skip
    assert few.cut == {}, "all were looked at"
    told = degraded_sentences([f"phrase_cut: sessions, {cut}"])[0]
    assert told.startswith("a phrase or NEAR was not looked")


@pytest.mark.proves("HIS-EXPRESSION")
@pytest.mark.parametrize("between", [" ", "\n", '" ', "\t\n", "\\", " / ", "\r\n\r\n", "\x0b", " — ", "*_"])
def test_a_phrase_holds_over_whatever_stands_between_its_words(world: World, between: str) -> None:
    world.write([(f"The lanTERNS{between}walnut", "ok"), (f"walnut{between}lantern", f"Lantern{between}Walnuts")])
    world.sync()
    assert set(world.matching('"lantern walnut"')) == {"session:11111111-aaaa#1", "session:11111111-aaaa#2"}
    assert world.matching('"the lantern" NOT "lantern walnut"') == []


@pytest.mark.proves("HIS-EXPRESSION")
def test_phrases_and_nearness_mean_what_they_mean_to_sqlite(world: World) -> None:
    words = random.Random(5)
    names = ["alpha", "omega", "sigma", "lambda", "walnut"]
    texts = [" ".join(words.choices(names, k=words.randint(1, 9))) for _ in range(300)]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE said USING fts5 (text, tokenize='porter unicode61')")
        connection.executemany("INSERT INTO said VALUES (?)", [(text,) for text in texts])
        for _ in range(150):
            one, two, three = words.choices(names, k=3)
            query = words.choice([
                f'"{one} {two}"', f'"{one} {two} {three}"', f"NEAR({one} {two}, {words.randint(0, 4)})",
                f'NEAR("{one} {two}" {three}, {words.randint(0, 4)})', f"NEAR({one} {two} {three}, 2)",
                f'{one} NOT "{two} {three}"', f'"{one} {two}" OR "{two} {three}"', f'"{one} {two[:3]}"*',
            ])  # fmt: skip
            expression = parse_search(query, today=date(2026, 3, 1)).expression
            assert expression is not None
            rows = connection.execute("SELECT rowid FROM said WHERE said MATCH ?", (compile_match(expression),))
            matches = matcher(expression, lambda word: word)
            assert [number for number, text in enumerate(texts, 1) if matches(text)] == sorted(r[0] for r in rows), (
                query
            )


WORDS = ["Alpha", "alphas", "beta", "n", "name", "gamma_ray", "x1"]
BETWEEN = [" ", "\n", "\\", '"', "\t", "\\n", "\r\n", "/", ", ", "_", "\b", ".\n\n- ", "\\\\", "\f"]


@pytest.mark.proves("HIS-EXPRESSION")
@given(parts=st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(BETWEEN)), max_size=14), which=st.data())
def test_what_the_bytes_of_a_line_rule_out_its_text_does_not_hold(
    parts: list[tuple[str, str]], which: st.DataObject
) -> None:
    text = "".join(word + between for word, between in parts)
    one, two = which.draw(st.permutations(["alpha", "beta", "name", "n", "gamma", "ray"]))[:2]
    near = which.draw(st.integers(0, 4))
    for query in (f'"{one} {two}"', f"NEAR({one} {two}, {near})", f"NEAR({one} {two} alpha, {near})"):
        expression = parse_search(query, today=date(2026, 3, 1)).expression
        assert expression is not None
        may_hold = probe(expression, lambda word: word)
        assert may_hold is not None
        line = json.dumps({"message": {"content": text}}).encode().lower()
        assert may_hold(line) or not matcher(expression, lambda word: word)(text), (query, text)


@pytest.mark.proves("HIS-EXPRESSION")
def test_the_bytes_of_a_line_rule_out_what_stands_too_far_apart() -> None:
    line = json.dumps({"message": {"content": "alpha\nstands\n\nfar from beta"}}).encode()
    for query, may_hold in (("NEAR(alpha beta, 3)", True), ("NEAR(alpha beta, 2)", False), ('"alpha beta"', False),
                            ('"from beta"', True)):  # fmt: skip
        expression = parse_search(query, today=date(2026, 3, 1)).expression
        assert expression is not None
        found = probe(expression, lambda word: word)
        assert found is not None and found(line) is may_hold, query


@pytest.mark.proves("HIS-PHRASE-FAR")
def test_a_phrase_is_looked_for_in_more_files_than_a_process_may_have_open(world: World) -> None:
    for number in range(150):
        world.write_line(number, f"the lantern walnut of house {number}" if number < 3 else "a walnut beside a lantern")
    world.sync()
    code = (
        "import resource, sys; from datetime import date; from pathlib import Path;"
        "from nugget.history import search_history; from nugget.index.home import open_home;"
        "from nugget.index.query_language import parse_search;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); query = parse_search(sys.argv[2], today=date.today());"
        "hits = search_history(open_home(Path(sys.argv[1])), query.text, expression=query.expression);"
        "print(*sorted(hit.ref for hit in hits))"
    )
    command = [sys.executable, "-c", code, str(world.environment.home), '"lantern walnut"']
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"session:{number:08}-aaaa#1" for number in range(3)]
