"""Train the judge of offline extraction from labelled sessions, and write nugget/extraction/judge.json with its card.

    python scripts/train_extraction.py [--check]

Labels: benchmarks/gold and ../shared/data/gold. Sessions that benchmarks/gold/split.json keeps apart are never read
here. Everything reported is by leave-one-session-out: each session is judged by models that have not seen it.
`--check` only prints the figures.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_REPOSITORY / "benchmarks"))
import knowledge as bench

from nugget.extraction.claims import SessionClaims, claims_of
from nugget.extraction.drafts import Draft, drafts_of
from nugget.extraction.judge import Judge
from nugget.extraction.offline import drafts as judged_drafts
from nugget.extraction.offline import select
from nugget.models import KnowledgeType
from nugget.sources.claude_code import read_session
from nugget.sources.condense import without_recalled

TARGET = _REPOSITORY / "nugget" / "extraction" / "judge.json"
DRAFT_L2, TYPE_L2 = 200.0, 100.0
BODY_ONLY = 0.35
"""Target of a draft that says a gold item only with its support; by worth where its claim says it."""
BY_WORTH = {1: 0.8, 2: 0.95, 3: 1.0}

Matrix = NDArray[np.float64]


def fit(x: Matrix, y: Matrix, weights: Matrix, l2: float, names: Sequence[str]) -> dict[str, float]:
    """Return the weights, for raw features, of a logistic regression with a ridge on standardised ones."""
    mean, spread = x.mean(0), x.std(0) + 1e-3
    z = np.hstack([(x - mean) / spread, np.ones((len(x), 1))])
    beta = np.zeros(z.shape[1])
    ridge = np.r_[np.full(len(names), l2), 1e-3]

    def loss(at: Matrix) -> float:
        scores = z @ at
        likelihood = weights @ (np.logaddexp(0.0, scores) - y * scores)
        return float(likelihood + 0.5 * ridge @ at**2)

    for _ in range(40):
        p = 1 / (1 + np.exp(-np.clip(z @ beta, -30, 30)))
        gradient = z.T @ (weights * (p - y)) + ridge * beta
        hessian = (z * (weights * p * (1 - p))[:, None]).T @ z + np.diag(ridge + 1e-6)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while size > 1e-4 and loss(beta - size * step) > loss(beta):
            size /= 2
        beta = beta - size * step
        if np.abs(size * step).max() < 1e-6:
            break
    raw = beta[:-1] / spread
    return {"": float(beta[-1] - raw @ mean)} | dict(zip(names, map(float, raw), strict=True))


def matrix(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Matrix:
    return np.array([[row.get(name, 0.0) for name in names] for row in rows])


class Trainer:
    """The labelled sessions, and models of any part of them."""

    def __init__(self) -> None:
        self.gold, _ = bench.labels()
        self.sessions = [name for name in bench.sessions() if not bench.is_apart(name)]
        self.read: dict[str, SessionClaims] = {}
        for name in self.sessions:
            session = read_session(bench.TRANSCRIPTS / name)
            self.read[name] = claims_of(tuple(without_recalled(session.events)))

    def items(self, session: str) -> list[dict[str, Any]]:
        return [item for item in self.gold if item["session"] == session]

    def rows(self, names: Sequence[str]) -> list[tuple[str, Draft]]:
        return [(name, draft) for name in names for draft in drafts_of(self.read[name])]

    def draft_model(self, rows: Sequence[tuple[str, Draft]]) -> dict[str, float]:
        features = sorted(rows[0][1].features)
        targets = []
        for name, draft in rows:
            worth = max(
                (i["worth"] for i in self.items(name) if bench.says(f"{draft.title} {draft.statement}", i)), default=0
            )
            targets.append(BY_WORTH.get(worth, BODY_ONLY * self.says_any(name, draft)))
        x = matrix([draft.features for _, draft in rows], features)
        return fit(x, np.array(targets), np.ones(len(rows)), DRAFT_L2, features)

    def type_models(self, rows: Sequence[tuple[str, Draft]]) -> dict[str, dict[str, float]]:
        known: list[tuple[Draft, set[str]]] = []
        for name, draft in rows:
            by_claim = {i["type"] for i in self.items(name) if bench.says(f"{draft.title} {draft.statement}", i)}
            types = by_claim or {i["type"] for i in self.items(name) if bench.says(f"{draft.title} {draft.text()}", i)}
            if types:
                known.append((draft, types))
        features = sorted(known[0][0].features)
        x = matrix([draft.features for draft, _ in known], features)
        ones = np.ones(len(known))
        targets = {kind: np.array([(kind in types) / len(types) for _, types in known]) for kind in KnowledgeType}
        return {str(kind): fit(x, y, ones, TYPE_L2, features) for kind, y in targets.items()}

    def says_any(self, name: str, draft: Draft) -> bool:
        return any(bench.says(f"{draft.title} {draft.text()}", item) for item in self.items(name))


def main() -> None:
    """Train, report and write."""
    trainer = Trainer()
    groups: dict[str, list[str]] = {}
    for name in trainer.sessions:
        groups.setdefault(bench.short_id(name), []).append(name)
    rows = trainer.rows(trainer.sessions)
    unseen: dict[str, Judge] = {}
    for held in groups.values():
        seen = [row for row in rows if row[0] not in held]
        judge = Judge(draft=trainer.draft_model(seen), types=trainer.type_models(seen), slope=1, offset=0, threshold=0)
        unseen |= dict.fromkeys(held, judge)
    raw = np.array([_logit(unseen[name].draft_score(draft.features)) for name, draft in rows])
    said = np.array([float(trainer.says_any(name, draft)) for name, draft in rows])
    calibration = fit(raw[:, None], said, np.ones(len(said)), 1.0, ["score"])
    slope, offset = calibration["score"], calibration[""]
    figures = {}
    made = {}
    for name, judge in unseen.items():
        calibrated = Judge(draft=judge.draft, types=judge.types, slope=slope, offset=offset, threshold=0)
        made[name] = judged_drafts(trainer.read[name], calibrated)
    for threshold in (0.5, 0.6, 0.65, 0.7):
        units = []
        for name, judged in made.items():
            chosen = select([d for d in judged if d.confidence >= threshold], trainer.read[name], bench.model())
            units += [bench.row(name, draft.title, draft.text(), draft.kind, draft.confidence) for draft in chosen]
        figures[threshold] = bench.scored(trainer.sessions, units)
        print(threshold, bench.line(figures[threshold], trainer.sessions, units))
    if "--check" in sys.argv:
        return
    threshold = float(next((arg.split("=")[1] for arg in sys.argv if arg.startswith("--threshold=")), 0.5))
    stored = {
        "card": {
            "trained": date.today().isoformat(),
            "data": (
                f"{len(groups)} labelled sessions, {len(rows)} drafts; Claude Code sessions in English, "
                "of a Go team and a TypeScript author"
            ),
            "kept apart": "12 sessions (benchmarks/gold/split.json)",
            "leave-one-session-out": figures[threshold],
        },
        "threshold": threshold, "slope": round(slope, 4), "offset": round(offset, 4),
        "draft": _rounded(trainer.draft_model(rows)),
        "types": {kind: _rounded(model) for kind, model in trainer.type_models(rows).items()},
    }  # fmt: skip
    TARGET.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


def _logit(value: float) -> float:
    clipped = min(max(value, 1e-6), 1 - 1e-6)
    return float(np.log(clipped / (1 - clipped)))


def _rounded(model: Mapping[str, float]) -> dict[str, float]:
    """The weights with three decimals, without those that are nothing."""
    return {name: round(value, 3) for name, value in model.items() if name == "" or abs(value) >= 0.0005}


if __name__ == "__main__":
    main()
