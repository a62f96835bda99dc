"""Queries with operators over history: phrases, nearness, AND, OR and NOT."""

from __future__ import annotations

import pytest
from history_world import World


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
    assert world.matching("pay* AND key*") == ["session:d#1"]
    assert world.matching("NEAR(支払い 再試行, 5)") == ["session:d#1"]
    assert world.matching('"retry with"') == []
    assert world.matching("NEAR(end reached, 4)") == ["session:a#1"] and world.matching("NEAR(end reached, 3)") == []
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
