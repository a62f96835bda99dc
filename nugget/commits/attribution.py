"""Attribution of a commit's lines: what agents are recorded to have written, compared with what is staged.

How lines are counted:

- Only added lines of the staged diff against HEAD count, renames detected; removed lines belong to nobody.
- Blank lines and trivial ones (without a letter or a digit: `}`, `);`, `---`) do not count: anybody writes them.
- Moved lines do not count: an added line that, apart from space at its ends, is also removed somewhere in the same
  diff. Each removed line can explain one added line.
- Repeated lines do not count: one that the file holds in HEAD already (a second `with:`), unless a session is known
  to have written it. Of such lines nothing tells who added them once more.
- Binary files, submodules and lock files, which tools write, have no lines that count.
- A line that counts is an agent's when a session that is looked at wrote a line like it (apart from space at its ends)
  in the same file, under its name or the one that it was renamed from. Of several sessions the newest has it.
- Every other line is the person's, also one that they changed after the agent wrote it.

Shares are whole percentages that add up to 100; whoever wrote a line has at least 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from nugget.infra.git import SUBMODULE, StagedFile
from nugget.models.nuggets import SessionRecord
from nugget.text import line_hash

LOCK_FILES = frozenset(
    "package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb Cargo.lock poetry.lock uv.lock"
    " Pipfile.lock pdm.lock Gemfile.lock composer.lock go.sum mix.lock pubspec.lock Package.resolved flake.lock"
    " packages.lock.json gradle.lockfile".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The lines that count, by who wrote them: agents by their names, `human` the rest.

    `sessions` are those that wrote at least one of the lines, by id, with how many, most first.
    """

    agents: Mapping[str, int] = field(default_factory=dict)
    human: int = 0
    sessions: Mapping[str, int] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """The lines that count."""
        return self.human + sum(self.agents.values())

    def shares(self) -> tuple[dict[str, int], int]:
        """Percentages of the agents and of the person, adding up to 100; empty and 0 if no line counts."""
        parts = {name: count for name, count in {**self.agents, "": self.human}.items() if count}
        exact = {name: 100 * count / self.lines for name, count in parts.items()}
        given = {name: max(1, int(share)) for name, share in exact.items()}
        # The largest remainders are rounded up; what small parts got too much is taken from the largest.
        for name in sorted(exact, key=lambda name: (int(exact[name]) - exact[name], name)):
            given[name] += sum(given.values()) < 100
        while sum(given.values()) > 100:
            given[max(given, key=lambda name: given[name])] -= 1
        human = given.pop("", 0)
        return dict(sorted(given.items(), key=lambda pair: (-pair[1], pair[0]))), human


def attribute(
    staged: Sequence[StagedFile],
    records: Iterable[SessionRecord],
    *,
    held: Mapping[str, Collection[str]] | None = None,
) -> Attribution:
    """Attribute the staged lines by the sessions `records`, newest first.

    `held` are the lines, without space at their ends, that each staged path has in HEAD.
    """
    writers = _writers(records)
    moved = Counter(bare for file in staged for line in file.removed if (bare := line.strip()))
    agents: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    human = 0
    for file in staged:
        if not has_lines(file):
            continue
        repeated = (held or {}).get(file.path, ())
        known = [writers[path] for path in (file.path, file.previous) if path in writers]
        for line in file.added:
            bare = line.strip()
            if not counts(bare):
                continue
            if moved[bare] > 0:
                moved[bare] -= 1
                continue
            hashed = line_hash(bare)
            writer = next((lines[hashed] for lines in known if hashed in lines), None)
            if writer is None:
                human += bare not in repeated
            else:
                agents[writer.agent] += 1
                sessions[writer.session] += 1
    return Attribution(agents=dict(agents), human=human, sessions=dict(sessions.most_common()))


def has_lines(file: StagedFile) -> bool:
    """Return whether a file has lines that somebody writes."""
    return not file.is_binary and file.mode != SUBMODULE and PurePosixPath(file.path).name not in LOCK_FILES


def counts(line: str) -> bool:
    """Return whether a line says something: it has a letter or a digit."""
    return any(letter.isalnum() for letter in line)


def _writers(records: Iterable[SessionRecord]) -> dict[str, dict[str, SessionRecord]]:
    """Path -> line hash -> the session that wrote it; the first in `records` counts."""
    writers: dict[str, dict[str, SessionRecord]] = {}
    for record in records:
        for touch in record.touches:
            lines = writers.setdefault(touch.path, {})
            for hashed in touch.line_hashes:
                lines.setdefault(hashed, record)
    return writers
