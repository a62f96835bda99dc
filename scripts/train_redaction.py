"""Train the model that finds secrets in sentences, and write nugget/redaction/rules/sentences.json.

    python -m pip install --group train
    python scripts/train_redaction.py [--check]

Labels: benchmarks/secrets/sentences.jsonl, whose parts were each written by another author, and the sentences of
tests/support/secret_corpus.py. What the development transcripts hold are no secrets.
First each part is measured by a model of the others; the written model then is fitted on all. `--check` writes nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_REPOSITORY / "benchmarks"), str(_REPOSITORY / "tests" / "support")]
from knowledge import SHARED
from secret_corpus import LISTS, lookalikes, secrets

from nugget.redaction.engine import scanned
from nugget.redaction.sentences import suspects
from nugget.redaction.structured import places
from nugget.sources.claude_code import read_session

SENTENCES = _REPOSITORY / "benchmarks" / "secrets" / "sentences.jsonl"
TARGET = _REPOSITORY / "nugget" / "redaction" / "rules" / "sentences.json"
THRESHOLD = 0.6
INVERSE_L1, LEAST_SEEN = 1.0, 3
TRANSCRIPTS = 5.0
"""Weight of a word of the transcripts."""
SPOKEN = frozenset("English prose German French Spanish Portuguese Italian Chinese Japanese Russian Dutch".split())

Row = tuple[str, str, frozenset[str], bool]
"""Part, word, features, and whether it is a secret."""


def labelled() -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield part, text and secrets of everything that is labelled."""
    for line in SENTENCES.read_text("utf-8").splitlines():
        row = json.loads(line)
        yield row["part"], row["text"], row["secrets"]
    for which in LISTS:
        for example in (*secrets(1, which), *secrets(2, which)):
            if example.context in SPOKEN:
                yield "corpus", example.text, example.secrets
        for _, text in lookalikes(1, which):
            yield "corpus", text, ()
    for file in sorted((SHARED / "transcripts").glob("[ce]*/*.jsonl")):
        for event in read_session(file).events:
            for text in (event.text, event.before, event.after):
                yield "transcripts", text or "", ()


def is_one_of(given: str, secrets: Sequence[str]) -> bool:
    """Return True if a word is one of the secrets, but for a fifth of it."""
    pairs = [(len(secret), secret) for secret in secrets if secret in given or given in secret]
    return any(min(size, len(given)) >= 0.8 * max(size, len(given)) for size, _ in pairs)


def rows() -> list[Row]:
    """Return the suspects in all that is labelled, each once."""
    found = set[Row]()
    for part, text, secret in labelled():
        data = text.encode("utf-8", "surrogatepass")
        marks = [*places(text.lower(), "pass"), *(start for start, _, rule in scanned(data) if "password" in rule)]
        for start, end, _, features in suspects(data, marks, (-math.inf, -math.inf)):
            word = data[start:end].decode("utf-8", "replace")
            found.add((part, word, features, is_one_of(word, secret)))
    return sorted(found, key=lambda row: (row[0], row[1], sorted(row[2]), row[3]))


def fitted(seen: Sequence[Row]) -> dict[str, float]:
    """Return the weights of a logistic regression with an L1 penalty, those that are not zero."""
    counts = Counter(name for _, _, features, _ in seen for name in features)
    columns = {name: place for place, name in enumerate(sorted(name for name in counts if counts[name] >= LEAST_SEEN))}
    places = [[columns[name] for name in features if name in columns] for _, _, features, _ in seen]
    ends = np.cumsum([0, *map(len, places)], dtype=np.int32)
    columns_of = np.array([place for row in places for place in row], dtype=np.int32)
    x = csr_matrix((np.ones(len(columns_of)), columns_of, ends), shape=(len(seen), len(columns)))
    model = LogisticRegression(l1_ratio=1, C=INVERSE_L1, solver="liblinear", max_iter=1000, random_state=1)
    model.fit(
        x,
        [is_secret for *_, is_secret in seen],
        sample_weight=[TRANSCRIPTS if part == "transcripts" else 1.0 for part, *_ in seen],
    )
    weights = {name: round(float(model.coef_[0][place]), 2) for name, place in columns.items()}
    return {"": round(float(model.intercept_[0]), 2)} | {name: weight for name, weight in weights.items() if weight}


def probability(weights: Mapping[str, float], features: Iterable[str]) -> float:
    """Return the probability that a word with these features is a secret."""
    return float(1 / (1 + np.exp(-weights[""] - sum(weights.get(name, 0.0) for name in features))))


def measured(every: Sequence[Row]) -> dict[str, Any]:
    """Print and return precision and recall of each part by a model of the others; recall is of all its secrets."""
    totals = Counter(part for part, _, secret in labelled() for _ in set(secret))
    figures = {}
    for part in sorted({part for part, *_ in every} - {"corpus", "transcripts"}):
        weights = fitted([row for row in every if row[0] != part])
        held = [row for row in every if row[0] == part]
        hits = [row[3] for row in held if probability(weights, row[2]) >= THRESHOLD]
        figures[part] = {"hits": len(hits), "right": sum(hits), "secrets": totals[part]}
        print(f"{part}: {figures[part]}, {len(weights)} weights")
    return figures


def main() -> None:
    every = rows()
    figures = measured(every)
    weights = fitted(every)
    card = {
        "by a model of the other parts": figures,
        "of transcripts": sum(
            probability(weights, features) >= THRESHOLD for part, _, features, _ in every if part == "transcripts"
        ),
    }
    print(card["of transcripts"], "words of the transcripts, of", sum(part == "transcripts" for part, *_ in every))
    if "--check" not in sys.argv:
        stored = {"card": card, "threshold": THRESHOLD, "weights": weights}
        TARGET.write_text(json.dumps(stored, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
