"""Data for the page in the browser: change tags, the graph, the map, edits of units, and its access keys."""

from __future__ import annotations

import hmac
import math
import secrets
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from nugget.brain import read_file
from nugget.brain.filing import replace_unit
from nugget.capture import queue
from nugget.errors import NuggetError, UsageError
from nugget.evaluation import query_log
from nugget.evaluation.query_log import Asked
from nugget.infra import files, git
from nugget.infra.git import head as head
from nugget.infra.llm import spending as spending
from nugget.models import Filter, Origin, Query, SourceName, Unit
from nugget.redaction import allow_list
from nugget.retrieval.scoring import stale_reasons
from nugget.text import content_hash
from nugget.upkeep.doctor import doctor

if TYPE_CHECKING:
    from nugget.app import Brain
    from nugget.provenance.inventory import Covered, Gaps

MAX_NODES = 60
"""Maximum number of units in a graph."""
MAX_DOTS, MAX_LINKED = 2_000, 120
"""The number of newest units that the map shows, and of those with links."""
NEAR = 6
"""The number of units shown because they are near in meaning."""
_LEAST_COSINE = 0.35
_TERMINAL_EDITORS = frozenset("vi vim nvim nano pico micro hx helix joe mg ne ed".split())
_RING = 190.0
_ROOM = 150.0
"""Width of a node with its name on a ring."""
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))

Node = tuple[Unit, int, float, float]
"""A unit in a graph, its steps from the unit in the middle, and its place."""
Graph = tuple[tuple[Node, ...], tuple[tuple[str, str, str], ...], int]
"""The units around one, nearest first, their links, and how many units did not fit.

A link has the ids of two nodes and the name of their relation, empty if they are near in meaning.
"""


def new_key(home: Path, port: int) -> str:
    """Create the key that lets one browser into the page on a port, replacing the previous one."""
    key = secrets.token_urlsafe(24)
    files.private_folder(home / "run")
    files.replace(key_file(home, port), key.encode())
    return key


def use_key(home: Path, port: int, key: str) -> bool:
    """Return whether this is the key of the page on a port, and invalidate it."""
    file = key_file(home, port)
    try:
        kept = file.read_bytes()
    except OSError:
        return False
    if not kept or not hmac.compare_digest(key.encode("utf-8", "replace"), kept):
        return False
    files.replace(file, b"")
    return True


def key_file(home: Path, port: int) -> Path:
    """Return the file that holds the key of a port while its page is open."""
    return home / "run" / f"web-{port}.key"


def pulse(brain: Brain) -> dict[str, str]:
    """Return a tag for each part of the brain that changes when the part does. Reads file times and sizes only."""
    folder, home = git.git_dir(brain.path), brain.environment.home
    parts = {
        "review": (folder / "refs" / "heads" / "nugget", folder / "packed-refs", folder / "logs" / "HEAD"),
        "index": (brain.index_folder / "index.db", brain.index_folder / "index.db-wal"),
        "log": (home / "ledger" / "queries.jsonl", home / "ledger" / "captures.jsonl", home / "queue"),
    }
    return {name: "-".join(map(_stamp, paths)) for name, paths in parts.items()}


def _stamp(path: Path) -> str:
    with suppress(OSError):
        seen = path.stat()
        return f"{seen.st_mtime_ns:x}.{seen.st_size:x}" if seen.st_size else "0"
    return "0"


def graph(brain: Brain, ref: str, *, steps: int, near: bool) -> Graph:
    """Return the units around one: by relations, `steps` away at most, and those nearest in meaning.

    Raises NuggetError if there is no such unit.
    """
    focus = brain.get(ref, fresh=False).unit
    if focus is None or focus.source is not SourceName.BRAIN:
        raise NuggetError(f"{ref} is not a unit of the brain.", hint="Only the brain's units have a graph.")
    index = brain.index
    centre = index.unit_keys([focus.id])[focus.id]
    distance, parent = {centre: 0}, {centre: centre}
    links: dict[tuple[int, int], str] = {}
    border = [centre]
    for step in range(1, steps + 1):
        found = []
        for edge in index.edges(border):
            pair = (edge.unit_key, edge.neighbour_key) if edge.outward else (edge.neighbour_key, edge.unit_key)
            links.setdefault(pair, str(edge.relation).replace("_", " "))
            if edge.neighbour_key not in distance:
                distance[edge.neighbour_key], parent[edge.neighbour_key] = step, edge.unit_key
                found.append(edge.neighbour_key)
        border = found
    if near:
        hits = brain.related(Query(focus.ref, limit=NEAR, filter=Filter(sources=(SourceName.BRAIN,))), fresh=False).hits
        keys = index.unit_keys([hit.unit.id for hit in hits if hit.score >= _LEAST_COSINE])
        for key in keys.values():
            if key not in distance:
                distance[key], parent[key] = 1, centre
                links[centre, key] = ""
    shown = sorted(distance, key=lambda key: (distance[key], key))[:MAX_NODES]
    places = _rings(shown, distance, parent)
    units = index.units(shown)
    nodes = ((units[key], distance[key], *places[key]) for key in shown if key in units)
    named = ((units[one].id, units[other].id, name) for (one, other), name in links.items()
             if one in units and other in units)  # fmt: skip
    return tuple(nodes), tuple(named), len(distance) - len(shown)


def _rings(keys: Sequence[int], distance: dict[int, int], parent: dict[int, int]) -> dict[int, tuple[float, float]]:
    """Return positions: the first in the middle, the others near their parents on one ring per step."""
    places, angles, radius = {keys[0]: (0.0, 0.0)}, {keys[0]: 0.0}, 0.0
    for step in sorted({distance[key] for key in keys} - {0}):
        ring = sorted((key for key in keys if distance[key] == step), key=lambda key: (angles[parent[key]], key))
        radius, begin = max(radius + _RING, len(ring) * _ROOM / math.tau), angles[parent[ring[0]]]
        for number, key in enumerate(ring):
            angle = angles[key] = (begin + math.tau * number / len(ring)) % math.tau
            places[key] = (radius * math.cos(angle) * 1.35, radius * math.sin(angle))
    return places


def domain_map(brain: Brain) -> list[dict[str, Any]]:
    """Return the brain's domains as areas beside each other, largest first, with a dot for each of the newest units.

    An area has a centre (`x`, `y`), a `radius` and the `count` of its units. Only the newest are `units` with their
    places, since names and links of all would take 400 KB; `others` are only places.
    """
    units = _newest_units(brain)
    by_domain: dict[str, list[Unit]] = {}
    for unit in units:
        by_domain.setdefault(unit.domain or "general", []).append(unit)
    shown = {unit.id: number < MAX_LINKED for number, unit in enumerate(units[:MAX_DOTS])}
    # All circles together cover about half of a map of 1,220 by 700, for any number of units.
    per_unit = min(11.0, math.sqrt(0.5 * 1220 * 700 / math.pi / max(len(units), 1)))
    areas, x, y, height = [], 0.0, 0.0, 0.0
    for domain, held in sorted(by_domain.items(), key=lambda item: (-len(item[1]), item[0])):
        radius = 46 + per_unit * math.sqrt(len(held))
        half = max(radius, 4.5 * min(len(f"{domain} ({len(held)})"), 60))  # the name may be wider than its circle
        if x and x + 2 * half > 1220:
            x, y, height = 0.0, y + height + 40, 0.0
        centre_x, centre_y, height = x + half, y + radius, max(height, 2 * radius)
        dots = [unit for unit in held if unit.id in shown]
        apart = min(10.0, (radius - 36) / math.sqrt(max(len(dots), 1)))
        places = [
            (centre_x + apart * math.sqrt(number) * math.cos(number * _GOLDEN_ANGLE),
             centre_y + apart * math.sqrt(number) * math.sin(number * _GOLDEN_ANGLE))
            for number in range(len(dots))
        ]  # fmt: skip
        linked = sum(shown[unit.id] for unit in dots)  # the newest come first
        areas.append({
            "domain": domain, "x": centre_x, "y": centre_y, "radius": radius, "count": len(held),
            "units": [*zip(dots, places[:linked], strict=False)], "others": places[linked:],
        })  # fmt: skip
        x += 2 * half + 20
    return areas


def unit_file(brain: Brain, unit: Unit) -> tuple[str, str]:
    """Return the text of a unit's file and the SHA-256 of its content. Raises KnowledgeError."""
    content = read_file(brain.path, unit.path or "")
    return content.decode("utf-8", "replace"), content_hash(content)


def unit_history(brain: Brain, unit: Unit) -> list[git.Change]:
    """Return the last 20 changes of a unit's file, newest first, with its text before and after."""
    if not unit.path or not git.is_repository(brain.path):
        return []
    changes = git.versions_of(brain.path, unit.path, revisions=["HEAD"])[:20]
    wanted = [blob for one in changes for blob in (one.before, one.after) if blob]
    contents = dict(zip(wanted, git.read_objects(brain.path, wanted), strict=True))
    texts = {blob: content.decode("utf-8", "replace") for blob, content in contents.items() if content is not None}
    return [replace(one, before=texts.get(one.before or ""), after=texts.get(one.after or "")) for one in changes]


def edit_unit(brain: Brain, unit_id: str, text: str, *, expect: str) -> str:
    """Replace the file of a unit in a commit, as `filing.replace_unit` does; return its path."""
    allow, now = allow_list(brain.settings), datetime.now(UTC)
    path = replace_unit(brain.path, unit_id, text, expect=expect, allow=allow, now=now)
    brain.make_current()
    return path


def newest(brain: Brain, *, since: date) -> tuple[list[Unit], Counter[str]]:
    """Return the units added since a day, newest first, and the number of imported ones by domain."""
    units = _newest_units(brain, since)
    imported = Counter(unit.domain or "general" for unit in units if unit.origin == Origin.IMPORTED)
    return [unit for unit in units if unit.origin != Origin.IMPORTED], imported


def _newest_units(brain: Brain, since: date | None = None) -> list[Unit]:
    with brain.index.reading():
        keys = brain.index.newest_units(Filter(sources=(SourceName.BRAIN,), since=since), 1_000_000)
        units = brain.index.units(keys)
    return [units[key] for key in keys]


def questions(brain: Brain, since: date) -> list[Asked]:
    """Return the questions asked of the brain since a day, newest first."""
    return list(query_log.read(brain.environment.home, brain=brain.path, since=since))[::-1]


def stale_cause(brain: Brain, unit: Unit) -> str | None:
    """Return why a unit of the brain is stale; None if it is not."""
    today = datetime.now(UTC).date()
    with brain.index.reading():
        keys = brain.index.unit_keys([unit.id])
        reasons = stale_reasons(dict.fromkeys(keys.values(), unit), brain.index, today=today)
    if not reasons:
        return None
    is_over = unit.stale_after and unit.stale_after < today
    return f"it was valid until {unit.stale_after}" if is_over else "another unit supersedes it"


def open_file(brain: Brain, unit: Unit) -> None:
    """Open a unit's file in $VISUAL or $EDITOR; if that needs a terminal, in the desktop's default program."""
    import click

    file = str(brain.path / (unit.path or ""))
    variables = brain.environment.variables
    editor = shlex.split(variables.get("VISUAL") or variables.get("EDITOR", ""))
    if editor and Path(editor[0]).stem not in _TERMINAL_EDITORS and shutil.which(editor[0]):
        command = [*editor, file]
        Thread(target=subprocess.run, args=(command,), kwargs={"stdin": subprocess.DEVNULL}, daemon=True).start()
    elif click.launch(file):
        raise UsageError(f"{file} cannot be opened.", hint="Set VISUAL to an editor with a window of its own.")


def queue_session(brain: Brain, session: str) -> None:
    """Queue a session for capture into the brain, and start the worker."""
    home = brain.environment.home
    queue.add(home, now=datetime.now(UTC), session=session, brain=str(brain.path))
    files.start_worker(home)


def problems(brain: Brain) -> list[dict[str, Any]]:
    """Return the problems that `nugget doctor` finds, without waiting reviews."""
    found = doctor(brain.path, brain.settings, brain.environment, now=datetime.now(UTC))
    return [one for one in found if one["state"] != "ok" and one["name"] != "review"]


def coverage(brain: Brain, folder: Path) -> tuple[list[Covered], Gaps | None]:
    """Return the workspace's files with their nuggets, and the files asked about or changed more than explained."""
    seen = brain.provenance(folder)
    try:
        return seen.coverage(), seen.gaps()
    except NuggetError:
        return [], None
