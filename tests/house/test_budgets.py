"""The budgets of the house: how much code there is and how large its parts are. The numbers may only fall."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest
from paths import REPOSITORY

from nugget.extraction.phrases import WORDS

PACKAGE = REPOSITORY / "nugget"
TOP_LEVEL = {"__init__", "__main__", "config", "errors", "settings", "text"}
BUDGETS = {
    "modules": 165,
    "lines": 41_779,
    "lines of a file": 388,
    "classes": 209,
    "re.compile": 123,
    "lines of tests": 19_880,  # with the fault laboratory
}
LONG_FUNCTION = 60
LONG_FUNCTIONS_SHARE = 0.02

FILES = {file.relative_to(PACKAGE).as_posix(): file.read_text("utf-8") for file in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(text) for name, text in FILES.items()}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    return chain.from_iterable(((name, node) for node in ast.walk(tree)) for name, tree in TREES.items())


def functions() -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {f"{name}:{node.lineno} {node.name}": node for name, node in nodes() if isinstance(node, kinds)}


@cache
def measured() -> dict[str, int]:
    tests = [file.read_text("utf-8") for file in (REPOSITORY / "tests").rglob("*.py")]
    return {
        "modules": len(FILES),
        "lines": sum(text.count("\n") for text in FILES.values()),
        "lines of a file": max(text.count("\n") for text in FILES.values()),
        "classes": sum(isinstance(node, ast.ClassDef) for _, node in nodes()),
        "re.compile": sum(text.count("re.compile(") for text in FILES.values()),
        "lines of tests": sum(text.count("\n") for text in tests),
    }


@pytest.mark.proves("HOUSE-SIZE")
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_budgets_hold(budget):
    assert measured()[budget] <= BUDGETS[budget]


@pytest.mark.proves("HOUSE-SIZE")
def test_few_functions_are_long():
    sizes = {name: (one.end_lineno or 0) - one.lineno + 1 for name, one in functions().items()}
    long = {name: size for name, size in sizes.items() if size > LONG_FUNCTION}
    assert len(long) <= LONG_FUNCTIONS_SHARE * len(sizes), long


@pytest.mark.proves("HOUSE-SIZE")
def test_no_class_name_stands_in_two_modules():
    names = {(node.name, module) for module, node in nodes() if isinstance(node, ast.ClassDef)}
    modules_of = {name: sorted(module for one, module in names if one == name) for name, _ in names}
    assert {name: modules for name, modules in modules_of.items() if len(modules) > 1} == {}


@pytest.mark.proves("HOUSE-SIZE")
def test_the_top_of_the_package_lists_few_modules():
    assert {file.stem for file in PACKAGE.glob("*.py")} <= TOP_LEVEL


def test_the_words_have_every_phrase_that_the_code_names():
    named = re.findall(r'\bsays\("(\w+)"\)', "".join(FILES.values()))
    assert len(named) > 99 and {*named} <= WORDS["phrases"].keys()
