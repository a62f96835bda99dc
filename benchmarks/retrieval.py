"""Retrieval quality: `python benchmarks/retrieval.py [DIR..] [--json]`, one data set a folder (else conversations).

A set is `docs.jsonl {id, title?, text, domain?, kind?, tags?, scope?}`, `queries.jsonl {id, text, scope?}`,
`qrels.tsv` (query, document, gain; tab-separated) and, where the data has links, `edges.jsonl {source, target,
relation}`. Each scope of a set is a brain of its own. A brain is built from the documents and asked through the
public API, so that what is measured is what users get. nDCG uses the gain 2^rel - 1 and the discount log2(rank + 1).
Times are of the processor, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from nugget.app import Brain
from nugget.brain.knowledge_file import serialise
from nugget.config import Settings
from nugget.evaluation import metrics
from nugget.models import Depth, Filter, KnowledgeType, Query, Relation, RelationType, SourceName, Unit
from nugget.retrieval.candidates import TASK, gather

CONVERSATIONS = Path(__file__).resolve().parent / "conversations"
MODES = ("bm25", "vectors", "rrf", "default", "shipped")
METRICS = ("ndcg@10", "recall@1", "recall@5", "recall@10", "mrr@10")
_DEPTH = 10
_CHUNKS = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """The documents of one brain and the questions for it."""

    docs: list[dict[str, Any]]
    queries: list[dict[str, Any]]
    edges: list[dict[str, Any]]


def main() -> int:
    """Measure each set and print the table, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", default=[CONVERSATIONS])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--into", nargs=2, metavar=("FILE", "PART"), help="put the table between its marks in a page")
    options = parser.parse_args()
    missing = [str(folder) for folder in options.folders if not (folder / "docs.jsonl").is_file()]
    if missing:
        print(f"Error: no docs.jsonl in {', '.join(missing)}.", file=sys.stderr)
        return 2
    results: dict[str, dict[str, dict[str, float]]] = {}
    for folder in options.folders:
        print(f"{folder.name} ...", file=sys.stderr)
        results[folder.resolve().name] = measure(folder)
    print(json.dumps(results, indent=2) if options.json else table(results))
    if options.into:
        put_into(Path(options.into[0]), options.into[1], table(results))
    return 0


def put_into(page: Path, part: str, text: str) -> None:
    """Replace what stands between `<!-- measured: PART -->` and `<!-- end -->`."""
    marks = re.compile(rf"(<!-- measured: {re.escape(part)} -->\n).*?(<!-- end -->)", re.DOTALL)
    page.write_text(marks.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text("utf-8")), "utf-8")


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Return the metrics of every mode over one set, averaged over its questions."""
    gains = read_gains(folder / "qrels.tsv")
    rows: dict[str, list[list[float]]] = {mode: [] for mode in MODES}
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for scope in scopes(folder):
        asked = [query for query in scope.queries if gains.get(str(query["id"]))]
        with tempfile.TemporaryDirectory() as root, asking(Path(root) / "brain", scope) as ways:
            for number, query in enumerate(asked):
                # Question by question, to and fro: a machine that gets slower slows all ways alike.
                for mode in MODES if number % 2 else MODES[::-1]:
                    started = time.process_time()
                    found = ways[mode](str(query["text"]))
                    times[mode].append((time.process_time() - started) * 1000)
                    values = metrics(found, gains[str(query["id"])])
                    rows[mode].append([values[name] for name in METRICS])
    return {
        mode: {
            **{
                name: round(statistics.fmean(column), 4)
                for name, column in zip(METRICS, zip(*rows[mode], strict=True), strict=True)
            },
            "queries": len(rows[mode]),
            "p50_ms": round(statistics.median(times[mode]), 2),
        }
        for mode in MODES
    }


@contextmanager
def asking(brain: Path, scope: Scope) -> Iterator[dict[str, Callable[[str], list[str]]]]:
    """Yield each way of asking, a function from a question to the documents, best first."""
    names = write_brain(brain, scope)
    order: dict[str, Callable[..., list[str]]] = {
        "bm25": partial(list_order, lists=("text_rank",)), "vectors": vector_order,
        "rrf": partial(list_order, lists=("vector_rank", "text_rank")), "default": api_order, "shipped": shipped_order,
    }  # fmt: skip
    with ExitStack() as stack:
        opened = {mode: stack.enter_context(Brain(brain, settings=Settings())) for mode in MODES}
        opened["default"].sync()
        for mode in MODES:
            order[mode](opened[mode], "warm up", names)
        yield {mode: partial(order[mode], opened[mode], names=names) for mode in MODES}


def api_order(brain: Brain, question: str, names: Mapping[str, str]) -> list[str]:
    """Return the documents in the order of `ask`."""
    bundle = brain.ask(Query(question, limit=_DEPTH, budget_tokens=10**9, depth=Depth.SUMMARY), fresh=False)
    return [names[hit.unit.id] for hit in bundle.hits]


def list_order(brain: Brain, question: str, names: Mapping[str, str], *, lists: Sequence[str]) -> list[str]:
    """Return the documents by the reciprocal rank fusion of the named lists of candidates."""
    embedder = brain.embedder if "vector_rank" in lists else None
    asked, today = Query(question), datetime.now(UTC).date()
    found = gather(asked, TASK, brain.index, embedder, today=today).candidates
    ranks = {one.unit_key: [rank for name in lists if (rank := getattr(one, name))] for one in found}
    fused = {key: sum(1 / (60 + rank) for rank in of_unit) for key, of_unit in ranks.items() if of_unit}
    keys = sorted(fused, key=lambda key: (-fused[key], min(ranks[key]), key))[:_DEPTH]
    units = brain.index.units(keys)
    return [names[units[key].id] for key in keys]


def shipped_order(brain: Brain, question: str, names: Mapping[str, str]) -> list[str]:
    """Return the documents of an answer within the default limit and budget."""
    return [names[hit.unit.id] for hit in brain.ask(question, fresh=False).hits]


def vector_order(brain: Brain, question: str, names: Mapping[str, str]) -> list[str]:
    """Return the documents by the cosine of their nearest chunk alone."""
    assert brain.embedder is not None
    nearest = brain.index.search_vectors(brain.embedder.embed_query(question), _CHUNKS, Filter())
    unit_of = brain.index.units_of_chunks([key for key, _ in nearest])
    keys = list(dict.fromkeys(unit_of[key] for key, _ in nearest))[:_DEPTH]
    units = brain.index.units(keys)
    return [names[units[key].id] for key in keys]


def write_brain(folder: Path, scope: Scope) -> dict[str, str]:
    """Write the documents as knowledge files; gives the document id of each unit id."""
    units = {str(doc["id"]): unit_of(number, doc) for number, doc in enumerate(scope.docs)}
    related: dict[str, list[Relation]] = {}
    for edge in scope.edges:
        source, target = str(edge["source"]), str(edge["target"])
        if source in units and target in units and edge["relation"] in list(RelationType):
            relation = Relation(id=units[target].id, relation=RelationType(edge["relation"]))
            related.setdefault(source, []).append(relation)
    (folder / "domains").mkdir(parents=True)
    (folder / "brain.yaml").write_text("owner: Benchmark\n")
    for key, unit in units.items():
        path = folder / f"domains/{unit.domain}/{unit.type}s/{unit.id.partition('/')[2]}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(serialise(replace(unit, related=tuple(related.get(key, ())))), "utf-8")
    return {unit.id: key for key, unit in units.items()}


def unit_of(number: int, doc: Mapping[str, Any]) -> Unit:
    """Return a document as a knowledge unit; without a title its body gets no heading."""
    kind = doc.get("kind") if doc.get("kind") in list(KnowledgeType) else KnowledgeType.CONCEPT
    title = " ".join(str(doc.get("title") or "").split())
    text = str(doc["text"])
    return Unit(
        id=f"{kind}/{number}",
        source=SourceName.BRAIN,
        type=str(kind),
        title=title,
        body=f"# {title}\n\n{text}\n" if title else f"{text}\n",
        domain="set",
        tags=tuple(str(tag) for tag in doc.get("tags") or ()),
    )


def scopes(folder: Path) -> Iterator[Scope]:
    """Yield the brains of a set."""
    docs, queries = read_lines(folder / "docs.jsonl"), read_lines(folder / "queries.jsonl")
    edges = read_lines(folder / "edges.jsonl") if (folder / "edges.jsonl").is_file() else []
    for name in dict.fromkeys(str(doc.get("scope", "")) for doc in docs):
        yield Scope(
            [doc for doc in docs if str(doc.get("scope", "")) == name],
            [query for query in queries if str(query.get("scope", "")) == name],
            edges,
        )


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON lines file."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


def read_gains(file: Path) -> dict[str, dict[str, float]]:
    """Return query -> document -> gain, without rows whose gain is not a number (a header)."""
    gains: dict[str, dict[str, float]] = {}
    for line in file.read_text("utf-8").splitlines():
        query, document, gain = (line.split("\t") + ["", ""])[:3]
        if gain.replace(".", "", 1).isdigit() and float(gain) > 0:
            gains.setdefault(query, {})[document] = float(gain)
    return gains


def table(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the results as a markdown table, with the mean over the sets."""
    lines = ["| set | mode | " + " | ".join(METRICS) + " | p50 ms |", "|---|---|" + "---|" * (len(METRICS) + 1)]
    for name, by_mode in results.items():
        for mode, values in by_mode.items():
            cells = " | ".join(f"{values[metric]:.3f}" for metric in METRICS)
            lines.append(f"| {name} | {mode} | {cells} | {values['p50_ms']:.1f} |")
    for mode in MODES if len(results) > 1 else ():
        means = " | ".join(f"{statistics.fmean(r[mode][metric] for r in results.values()):.4f}" for metric in METRICS)
        lines.append(f"| **mean** | {mode} | {means} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
