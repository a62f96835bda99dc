"""Relevance: `python benchmarks/relevance.py [DIR..] [--fit DIR..] [--sample N] [--words] [--json]`.

Sets are as in retrieval.py; every set is a brain (every scope of a set is one). Its own questions are answerable, those
of all others and the prompts of generic_prompts.txt are not. For each brain: the share of its own questions that is
called weak (false alarms) and of the others' that is (flagged), the tokens that an agent is sent for each useful hit
and for each question of the others, the share of the generic prompts (of those not fitted on) and of its own questions
on which recall speaks, and how often one of the units it then tells is right. `--fit` prints the weights of
nugget/retrieval/scoring.py, fitted to these sets and to every other prompt. `--words` searches without vectors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import CONVERSATIONS, read_gains, scopes, write_brain

from nugget.app import Brain
from nugget.config import Settings
from nugget.models import Bundle, Query
from nugget.render import bundle_markdown
from nugget.retrieval.candidates import TASK, gather
from nugget.retrieval.scoring import STANDS_OUT, calibrated, rank, signals
from nugget.text import estimate_tokens

PROMPTS = (Path(__file__).parent / "generic_prompts.txt").read_text("utf-8").splitlines()
COLUMNS = (
    "false alarms %", "flagged %", "tokens a useful hit", "tokens a useless question", "recall on generic %",
    "recall on its own %", "of that right %",
)  # fmt: skip
OTHERS = 40
"""Questions asked of each other brain."""
JUDGED = 8
"""Hits of a question that are fitted to."""
RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Set:
    """A brain with its answerable questions, each with the ids of its right units."""

    family: str
    brain: Brain
    questions: list[tuple[str, set[str]]]


def main() -> int:
    """Measure every pair and print the table, or one JSON document; or print fitted weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--fit", nargs="+", type=Path, metavar="DIR", default=[], help="sets to fit weights to")
    parser.add_argument("--sample", type=int, default=120, help="questions of a set, at most, evenly spread")
    parser.add_argument("--words", action="store_true", help="without vectors")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = Settings(embedding_model="none") if options.words else Settings()
    folders = [*options.fit, *options.folders] or [CONVERSATIONS]
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        known: dict[str, Set] = {}
        for name, one in sets(folders, Path(root), settings, options.sample, stack):
            print(f"{name} ...", file=sys.stderr)
            known[name] = one
        if options.fit:
            families = {folder.resolve().name for folder in options.fit}
            print_fit([one for one in known.values() if one.family in families])
            return 0
        rows = {name: measured(one, [*known.values()]) for name, one in known.items()}
    print(json.dumps(rows, indent=2) if options.json else table(rows))
    return 0


def sets(
    folders: Sequence[Path], root: Path, settings: Settings, sample: int, stack: ExitStack
) -> Iterator[tuple[str, Set]]:
    """Yield each brain with its name and a sample of its answerable questions."""
    for folder in folders:
        gains = read_gains(folder / "qrels.tsv")
        found = list(scopes(folder))
        for number, scope in enumerate(found):
            family = folder.resolve().name
            place = root / f"{family}-{number}"
            unit_of = {document: unit for unit, document in write_brain(place, scope).items()}
            questions = [
                (str(query["text"]), {unit_of[one] for one in gains[str(query["id"])] if one in unit_of})
                for query in scope.queries
                if gains.get(str(query["id"]))
            ]
            brain = stack.enter_context(Brain(place, settings=settings))
            brain.sync()
            named = str(scope.docs[0].get("scope") or number)
            name = family + (f" {named}" if len(found) > 1 else "")
            yield name, Set(family, brain, spread(questions, sample))


def spread(questions: Sequence[tuple[str, set[str]]], most: int) -> list[tuple[str, set[str]]]:
    """Return at most so many of the questions, evenly spread."""
    return list(questions[:: max(1, len(questions) // most)][:most])


def measured(one: Set, known: Sequence[Set]) -> list[float]:
    """Return the values of COLUMNS for one brain."""
    foreign = [text for other in known if other.family != one.family for text, _ in spread(other.questions, OTHERS)]
    answers = [(asked(one.brain, text), right) for text, right in one.questions]
    useless = [asked(one.brain, text) for text in foreign]
    useful = sum(hit.unit.id in right for bundle, right in answers for hit in bundle.hits)
    generic = [bool(told(one.brain, prompt)) for prompt in PROMPTS[1::2]]
    spoken = [(units, right) for text, right in one.questions if (units := told(one.brain, text))]
    return [
        100 * statistics.fmean(bundle.weak for bundle, _ in answers),
        100 * statistics.fmean(bundle.weak for bundle in useless) if useless else 0.0,
        sum(tokens(bundle) for bundle, _ in answers) / max(useful, 1),
        statistics.fmean(map(tokens, useless)) if useless else 0.0,
        100 * statistics.fmean(generic),
        100 * len(spoken) / len(answers),
        100 * statistics.fmean(bool(units & right) for units, right in spoken) if spoken else 0.0,
    ]


def asked(brain: Brain, question: str) -> Bundle:
    """Return what an agent is sent for a question."""
    return brain.ask(Query(question, only_helpful=True), fresh=False)


def told(brain: Brain, prompt: str) -> set[str]:
    """Return the units that recall tells on a prompt."""
    hits = brain.ask(Query(prompt, limit=3), fresh=False).hits
    return {hit.unit.id for hit in hits if (hit.relevance or 0.0) >= STANDS_OUT}


def tokens(bundle: Bundle) -> int:
    """Return the length of the answer as an agent reads it."""
    return estimate_tokens(bundle_markdown(bundle))


def print_fit(known: Sequence[Set]) -> None:
    """Print the weights of `known` and of a hit, each brain and kind of question counting alike."""
    first: list[tuple[tuple[float, ...], float, float]] = []
    hits: list[tuple[tuple[float, ...], float, float, float, float]] = []
    for one in known:
        foreign = [
            (text, set[str]())
            for other in known if other.family != one.family for text, _ in spread(other.questions, OTHERS)
        ]  # fmt: skip
        generic = [(text, set[str]()) for text in PROMPTS[::2]] if one.family != CONVERSATIONS.name else []
        for kind, questions in enumerate((one.questions, foreign, generic)):
            for text, right in questions:
                values, found = judged(one.brain, text, right)
                weight = 1 / len(questions)
                if found:
                    first.append((values, float(kind == 0), weight / (1 if kind == 0 else 2)))
                if kind < 2:
                    hits += [(values, behind, float(place == 0), is_right, weight)
                             for place, (behind, is_right) in enumerate(found)]  # fmt: skip
    x = np.array([row[0] for row in first])
    weights = fitted(x, np.array([row[1] for row in first]), np.array([row[2] for row in first]))
    y = np.array([(1.0, float(np.array(row[0]) @ weights), row[1], row[2]) for row in hits])
    of_hit = fitted(y, np.array([row[3] for row in hits]), np.array([row[4] for row in hits]))
    print("KNOWN", [round(float(one), 4) for one in weights], "HELPS", [round(float(one), 4) for one in of_hit])


def judged(brain: Brain, question: str, right: set[str]) -> tuple[tuple[float, ...], list[tuple[float, float]]]:
    """Return the signals of the best hit, and of each of the first how far behind it is and whether it is right."""
    index = brain.index
    with index.reading():
        gathered = gather(Query(question), TASK, index, brain.embedder, today=date.today())
        scored = rank(gathered)[:JUDGED]
        if not scored:
            return (), []
        units = index.units([entry.unit_key for entry in scored])
        best = scored[0]
        held = index.words_of_unit(gathered.terms, best.unit_key)
        values = signals(best.match, held, gathered.terms, chunks=index.chunk_count)
    if gathered.matcher.vector is not None:
        values = (*values[:4], 0.0, values[5])  # beside vectors BM25 by itself tells nothing more
    most = calibrated(best.match)
    return values, [(max(most - calibrated(one.match), 0.0), float(units[one.unit_key].id in right)) for one in scored]


def fitted(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of a logistic regression, by Newton's method with a small ridge."""
    weights = weights / weights.mean()
    ridge = RIDGE * len(y) * np.diag(x.var(axis=0)) + 1e-6 * np.eye(x.shape[1])
    found = np.zeros(x.shape[1])
    for _ in range(40):
        chance = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        slope = x.T @ (weights * (chance - y)) + ridge @ found
        found = found - np.linalg.solve((x * (weights * chance * (1 - chance))[:, None]).T @ x + ridge, slope)
    return found


def table(rows: Mapping[str, Sequence[float]]) -> str:
    """Return the values as markdown, with the mean over the brains."""
    means = [statistics.fmean(column) for column in zip(*rows.values(), strict=True)]
    lines = [
        f"| {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |"
        for name, values in [*rows.items(), ("**mean**", means)]
    ]
    return "\n".join([f"| brain | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS), *lines])


if __name__ == "__main__":
    sys.exit(main())
