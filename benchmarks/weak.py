"""Weak answers: `python benchmarks/weak.py [DIR..] [--sample N] [--words] [--json]`, sets as in retrieval.py.

Every set is a brain (every scope of a set is one). Its own questions are answerable, those of all the others are not.
For each brain: the share of its own that is called weak (false alarms) and of the others' that is (flagged).
`--words` searches without vectors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from retrieval import CONVERSATIONS, read_gains, scopes, write_brain

from nugget.app import Brain
from nugget.config import EmbeddingSettings, Settings


def main() -> int:
    """Measure every pair and print the table, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", default=[CONVERSATIONS])
    parser.add_argument("--sample", type=int, default=120, help="questions of a set, at most, evenly spread")
    parser.add_argument("--words", action="store_true", help="without vectors")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        brains: dict[str, Brain] = {}
        questions: dict[str, list[str]] = {}
        for name, folder, asked in sets(options.folders, Path(root)):
            print(f"{name} ...", file=sys.stderr)
            chosen = Settings(embedding=EmbeddingSettings(model="none")) if options.words else Settings()
            brains[name] = stack.enter_context(Brain(folder, settings=chosen, long_lived=True))
            brains[name].sync()
            questions[name] = asked[:: max(1, len(asked) // options.sample)][: options.sample]
        shares = {
            name: {other: weak_share(brain, asked) for other, asked in questions.items()}
            for name, brain in brains.items()
        }
    print(json.dumps(shares, indent=2) if options.json else table(shares))
    return 0


def sets(folders: Sequence[Path], root: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Each brain with its name and its answerable questions."""
    for folder in folders:
        gains = read_gains(folder / "qrels.tsv")
        found = list(scopes(folder))
        for number, scope in enumerate(found):
            named = str(scope.docs[0].get("scope") or number)
            name = folder.resolve().name + (f" {named}" if len(found) > 1 else "")
            brain = root / f"{folder.resolve().name}-{number}"
            write_brain(brain, scope)
            yield name, brain, [str(query["text"]) for query in scope.queries if gains.get(str(query["id"]))]


def weak_share(brain: Brain, questions: Sequence[str]) -> float:
    """The share of questions whose answer is called weak."""
    return statistics.fmean(brain.ask(question, fresh=False).weak for question in questions)


def table(shares: dict[str, dict[str, float]]) -> str:
    """Markdown: false alarms and flagged questions of each brain, and their means."""
    rows = []
    for name, by_set in shares.items():
        others = [share for other, share in by_set.items() if other != name]
        rows.append((name, by_set[name], statistics.fmean(others) if others else 0.0))
    rows.append(("**mean**", *(statistics.fmean(row[column] for row in rows) for column in (1, 2))))
    lines = [f"| {name} | {100 * alarms:.1f} % | {100 * flagged:.1f} % |" for name, alarms, flagged in rows]
    return "\n".join(["| brain | false alarms | flagged |", "|---|---|---|", *lines])


if __name__ == "__main__":
    sys.exit(main())
