"""Eleven languages and scripts in one brain: tests/languages."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import REPOSITORY, TESTS

from nugget.app import Brain
from nugget.brain.knowledge_file import serialise
from nugget.config import Settings, read_environment
from nugget.models import Depth, Query, SourceName, Unit

SET = TESTS / "languages"


def lines(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (SET / name).read_text("utf-8").splitlines() if line.strip()]


def wanted() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in (SET / "qrels.tsv").read_text("utf-8").splitlines():
        question, document, _ = line.split("\t")
        found.setdefault(question, set()).add(f"concept/{document}")
    return found


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All documents as one brain."""
    folder = tmp_path_factory.mktemp("languages") / "brain"
    file = folder / "domains" / "notes" / "concepts"
    file.mkdir(parents=True)
    (folder / "brain.yaml").write_text("owner: Test\n")
    for doc in lines("docs.jsonl"):
        unit = Unit(
            id=f"concept/{doc['id']}", source=SourceName.BRAIN, type="concept", title=doc["title"], domain="notes",
            body=f"# {doc['title']}\n\n{doc['text']}\n",
        )  # fmt: skip
        (file / f"{doc['id']}.md").write_text(serialise(unit), "utf-8")
    return folder


@pytest.fixture(scope="module", params=["none", "all-MiniLM-L6-v2"])
def asked(request: pytest.FixtureRequest, brain: Path) -> Iterator[dict[str, int]]:
    """The rank (from 1; 99 for none) of the right document for each question."""
    models = {"HOME": str(brain.parent), "NUGGET_MODELS": str(REPOSITORY / ".models")}
    chosen = Settings(embedding_model=request.param)
    ranks: dict[str, int] = {}
    with Brain(brain, environment=read_environment(models), settings=chosen) as opened:
        opened.sync()
        for question in lines("queries.jsonl"):
            bundle = opened.ask(
                Query(question["text"], limit=10, budget_tokens=10**6, depth=Depth.SUMMARY), fresh=False
            )
            found = [hit.unit.id in wanted()[question["id"]] for hit in bundle.hits]
            ranks[question["id"]] = found.index(True) + 1 if True in found else 99
    yield ranks


@pytest.mark.proves("LANG-BM25", "LANG-DEFAULT")
def test_the_right_document_is_first_for_95_of_100_questions_and_never_below_the_third(asked):
    assert len(asked) >= 60 and len({question["lang"] for question in lines("queries.jsonl")}) == 11
    missed = {question: rank for question, rank in asked.items() if rank != 1}
    assert len(missed) <= 0.05 * len(asked) and max(asked.values()) <= 3, missed
