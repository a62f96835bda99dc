"""Profiles: the settings of the pipeline as data. One code path serves them all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nugget.config import RetrievalSettings
from nugget.errors import UsageError

RANKINGS = ("calibrated", "rrf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Settings for one kind of question.

    `candidates` chunks come from each list; `rrf_k` is the constant of reciprocal rank fusion; `ranking` orders the
    candidates by calibrated scores or by the bare fused ranks; `hops` is how far relations are followed from the
    best units and `neighbours` how many related units may be added for each.
    """

    name: str
    candidates: int = 50
    rrf_k: int = 60
    ranking: str = "calibrated"
    hops: int = 1
    neighbours: int = 1


TASK = Profile(name="task")
SEARCH = Profile(name="search", candidates=200, hops=0)

PROFILES = {profile.name: profile for profile in (TASK, SEARCH)}


def configured(name: str, settings: RetrievalSettings) -> Profile:
    """A profile with the user's settings applied. Raises UsageError for a name or setting that does not exist."""
    if name not in PROFILES:
        raise UsageError(f"There is no profile {name!r}.", hint=f"Choose one of: {', '.join(PROFILES)}.")
    if settings.ranking not in RANKINGS:
        raise UsageError(f"retrieval.ranking must be one of {', '.join(RANKINGS)}, not {settings.ranking!r}.")
    if settings.hops not in (0, 1, 2):
        raise UsageError(f"retrieval.hops must be 0, 1 or 2, not {settings.hops}.")
    profile = PROFILES[name]
    return replace(
        profile,
        candidates=min(max(settings.candidates, profile.candidates, 1), 1000),
        rrf_k=max(settings.rrf_k, 1),
        ranking=settings.ranking,
        hops=min(profile.hops, settings.hops) if profile.hops == 0 else settings.hops,
    )
