"""Edits of JSON texts: the value changes as asked, and no other character does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.upkeep.json_edits import END, insert, parse, remove, replace

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
KEYS = st.text(max_size=4).filter(lambda key: key not in ("ours", "new"))
STYLES = st.sampled_from([
    {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}, {},
])  # fmt: skip


@pytest.mark.proves("INSTALL-MERGE")
@settings(max_examples=150, deadline=None)
@given(value=st.dictionaries(KEYS, VALUES, max_size=4), style=STYLES, crlf=st.booleans())
def test_what_is_put_in_and_taken_out_again_leaves_the_text_as_it_was(
    value: dict[str, Any], style: dict[str, Any], crlf: bool
) -> None:
    text = json.dumps(value | {"ours": {"list": ["theirs"]}}, **style)
    text = text.replace("\n", "\r\n") if crlf else text
    for place, taken in ((("ours", "list", END), ("ours", "list", 1)), (("new", "list", END), ("new",))):
        edit, made = insert(text, place, {"a": [1, "ü"]})
        changed = edit.apply(text)
        expected: Any = value | {"ours": {"list": ["theirs"]}}
        if place[0] == "ours":
            expected["ours"] = {"list": ["theirs", {"a": [1, "ü"]}]}
        else:
            expected["new"] = {"list": [{"a": [1, "ü"]}]}
        assert parse(changed) == expected and made == (() if place[0] == "ours" else (("new",), ("new", "list")))
        assert edit.inverse(text).apply(changed) == text
        assert remove(changed, taken).apply(changed) == text


@pytest.mark.proves("INSTALL-MERGE")
def test_an_insertion_looks_like_its_surroundings() -> None:
    tabs = '{\r\n\t"hooks": {},\r\n\t"allow": ["a", "b"]\r\n}\r\n'
    edit, _ = insert(tabs, ("hooks", "End", END), 1)
    assert edit.apply(tabs) == tabs.replace("{},", '{\r\n\t\t"End": [\r\n\t\t\t1\r\n\t\t]\r\n\t},')
    edit, _ = insert(tabs, ("allow", END), {"c": 1})
    assert edit.apply(tabs) == tabs.replace('"b"]', '"b", {"c": 1}]')
    compact = '{"a":[1],"b":{}}'
    edit, _ = insert(compact, ("b", "c"), [1, 2])
    assert edit.apply(compact) == '{"a":[1],"b":{"c":[1,2]}}'
    edit, _ = insert("\ufeff{}", ("a",), 1)
    assert edit.apply("\ufeff{}") == '\ufeff{\n  "a": 1\n}'


@pytest.mark.proves("INSTALL-MERGE")
def test_elements_are_taken_out_of_every_position() -> None:
    text = '{"l": [ 1,  2,\n 3 ], "s": "\\"}]{[,"}'
    assert remove(text, ("l", 0)).apply(text) == '{"l": [ 2,\n 3 ], "s": "\\"}]{[,"}'
    assert remove(text, ("l", 1)).apply(text) == '{"l": [ 1,  3 ], "s": "\\"}]{[,"}'
    assert remove(text, ("l", 2)).apply(text) == '{"l": [ 1,  2 ], "s": "\\"}]{[,"}'
    assert remove(text, ("s",)).apply(text) == '{"l": [ 1,  2,\n 3 ]}'
    assert replace(text, ("s",), "x").apply(text) == '{"l": [ 1,  2,\n 3 ], "s": "x"}'
    twice = '{"a": 1, "a": 2}'
    assert parse(replace(twice, ("a",), 3).apply(twice)) == {"a": 3}


@pytest.mark.proves("INSTALL-REFUSE")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "a": 1,\n}', "line [23]"), ('{"a": 1} x', "line 1"), ("// note\n{}", "line 1"), ('{"a": NaN}', "NaN"),
        ("[" * 100_000, "deep"),
    ],
    ids=["comma", "rest", "comment", "nan", "deep"],
)  # fmt: skip
def test_what_is_no_json_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)
