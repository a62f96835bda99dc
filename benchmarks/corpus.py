"""Synthetic brains of any size, the same on every machine: sentences of a fixed vocabulary with a natural skew."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

_SYLLABLES = (
    "ka re to mi sol ven dar lu pex ni ba cor fel gri hus jo lam nor pri qua ros ste tul vim wex yor zan".split()
)
_COMMON = (
    "the cache request retry timeout database index query lock thread queue token deploy branch commit test error "
    "server client payment session user schema migration config latency memory disk network stream event handler"
).split()


def vocabulary(size: int, *, seed: int = 7) -> list[str]:
    """Return distinct words, common ones first."""
    chance = random.Random(seed)
    words = dict.fromkeys(_COMMON)
    while len(words) < size:
        words["".join(chance.choices(_SYLLABLES, k=chance.randint(2, 4)))] = None
    return list(words)


def sentences(count: int, words: list[str], chance: random.Random) -> list[str]:
    """Return sentences of 8 to 16 words whose frequencies fall as in natural text (Zipf)."""
    weights = [1.0 / (rank + 3) for rank in range(len(words))]
    made = []
    for _ in range(count):
        picked = chance.choices(words, weights=weights, k=chance.randint(8, 16))
        made.append(" ".join(picked).capitalize() + ".")
    return made


def write_brain(folder: Path, files: int, *, bytes_each: int = 2000, seed: int = 7, commit: bool = True) -> Path:
    """Write and commit a brain of `files` knowledge files of about `bytes_each` bytes, in four sections each."""
    words, chance = vocabulary(20_000), random.Random(seed)
    (folder / "domains").mkdir(parents=True)
    (folder / "brain.yaml").write_text("owner: Benchmark\nname: Synthetic\n")
    (folder / ".gitignore").write_text(".nugget/\n")
    for number in range(files):
        domain = f"area{number % 20}"
        path = folder / f"domains/{domain}/concepts/note-{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        title = " ".join(chance.sample(words[:2000], 4)).capitalize()
        related = f"related:\n  - id: concept/note-{chance.randrange(files)}\n    relation: uses\n"
        head = (
            f"---\nid: concept/note-{number}\ntype: concept\ndomain: {domain}\ntags: [t{number % 50}]\n{related}---\n"
        )
        body = [f"# {title}\n"]
        while sum(map(len, body)) < bytes_each - len(head):
            body.append(f"\n## {' '.join(chance.sample(words[:2000], 3)).capitalize()}\n\n")
            body.append(" ".join(sentences(5, words, chance)) + "\n")
        path.write_text(head + "".join(body))
    if commit:
        for command in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=B", "-c", "user.email=b@b", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
    return folder


def questions(count: int, *, seed: int = 11) -> list[str]:
    """Return questions of five to nine words from the same vocabulary."""
    words, chance = vocabulary(20_000), random.Random(seed)
    weights = [1.0 / (rank + 20) for rank in range(len(words))]
    return [
        "how do we " + " ".join(chance.choices(words, weights=weights, k=chance.randint(4, 7))) for _ in range(count)
    ]
