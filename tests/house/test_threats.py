"""The threat model names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest
from paths import REPOSITORY


@pytest.mark.proves("THREATS-SHOWN")
def test_every_test_that_the_threat_model_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (REPOSITORY / "docs" / "threat-model.md").read_text("utf-8")))
    trees = [ast.parse(file.read_text("utf-8")) for file in (REPOSITORY / "tests").rglob("test_*.py")]
    defined = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert len(named) > 20 and sorted(named - defined) == []
