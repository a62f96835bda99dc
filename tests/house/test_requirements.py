"""Every promise has a proof, every proof names a promise; the threat model names tests that exist."""

import ast
import re

import pytest
from paths import REPOSITORY, TESTS
from requirements import GAPS, PROMISES


def proven_ids() -> dict[str, str]:
    """Each id named by a `proves` mark, with the test that names it."""
    found: dict[str, str] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves":
                    for argument in mark.args:
                        assert isinstance(argument, ast.Constant), f"{file.name}::{node.name}: ids are literals"
                        found[str(argument.value)] = f"{file.name}::{node.name}"
    return found


def test_every_promise_has_a_proof_or_an_admitted_gap():
    missing = sorted(PROMISES.keys() - proven_ids().keys() - GAPS.keys())
    assert not missing, f"no test proves: {missing}"


def test_every_proof_names_a_listed_promise():
    unknown = {id_: test for id_, test in proven_ids().items() if id_ not in PROMISES}
    assert not unknown, f"tests prove promises that are not listed: {unknown}"


def test_a_gap_is_a_promise_without_a_proof_and_says_why():
    assert not GAPS.keys() - PROMISES.keys(), "a gap names an unlisted promise"
    proven_gaps = GAPS.keys() & proven_ids().keys()
    assert not proven_gaps, f"proven after all, so no gap: {sorted(proven_gaps)}"
    assert all(len(reason) > 20 for reason in GAPS.values())


@pytest.mark.proves("THREATS-SHOWN")
def test_every_test_that_the_threat_model_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (REPOSITORY / "docs" / "threat-model.md").read_text("utf-8")))
    trees = [ast.parse(file.read_text("utf-8")) for file in (REPOSITORY / "tests").rglob("test_*.py")]
    defined = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert len(named) > 20 and sorted(named - defined) == []
