"""Check every part and name the command that fixes it; check an installation in a temporary home. Reads only."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from nugget.config import (
    OLD_OFFLINE,
    Environment,
    Settings,
    current_folder,
    is_known,
    load_settings,
    read_brain_file,
    read_environment,
    read_user_file,
)
from nugget.errors import NuggetError, reason_of
from nugget.index.embedded.connection import find_damage
from nugget.infra import git
from nugget.infra.embedding import open_embedder
from nugget.models import Severity, SourceName
from nugget.redaction.engine import scanner
from nugget.sources.notes import open_canon
from nugget.sources.sessions import outdated_archives
from nugget.text import counted, duration
from nugget.upkeep import configured_brains, usable_brains
from nugget.upkeep.install import connections
from nugget.upkeep.status import drift, index_file, index_status, status

_COMMIT_TAKES = timedelta(seconds=10)

Finding = dict[str, Any]
"""The result of a check: `name`, `state` (`ok`, `warning` or `error`), the sentence `said`, and `next_step` if any."""


def _finding(state: str, name: str, said: str, next_step: str | None = None) -> Finding:
    return {"name": name, "state": state, "said": said, "next_step": next_step}


_good, _odd, _wrong = (partial(_finding, state) for state in ("ok", "warning", "error"))


def open_checks(found: Sequence[Finding]) -> str:
    """Return the closing sentence of `status` and `doctor`."""
    wrong, warnings = (sum(one["state"] == state for one in found) for state in ("error", "warning"))
    if wrong or warnings:
        parts = [counted(wrong, "error") if wrong else "", counted(warnings, "warning") if warnings else ""]
        return f"{'Something is wrong' if wrong else 'It works'}: {' and '.join(filter(None, parts))}."
    return "Nothing is wrong."


def quick_checks(seen: dict[str, Any], settings: Settings, environment: Environment, now: datetime) -> list[Finding]:
    """Return the findings of checks that only need the values of `status`."""
    return [
        *_check_git(seen, now), *_check_index(seen, environment), *_check_files(seen), *_check_team_index(seen),
        *_check_sources(seen), *_check_capture(seen, settings, environment), *_check_remote(seen),
        *_check_settings(Path(seen["brain"]), environment), *_check_folders(Path(seen["brain"]), environment),
        *starmap(_finding, connections(environment, current_folder())),
    ]  # fmt: skip


def doctor(brain: Path, settings: Settings, environment: Environment, *, now: datetime) -> list[Finding]:
    """Run all checks; return their findings."""

    def of_others() -> Iterator[Finding]:
        known, left_out = usable_brains(environment, settings)
        for name, path in known.items():
            if path != brain and settings.brains_folders:
                seen = status(path, settings, environment)
                checks = (
                    *_check_git(seen, now), *_check_index(seen, environment), *_check_team_index(seen),
                    *_check_remote(seen),
                )  # fmt: skip
                yield from (one | {"name": f"{name}: {one['name']}"} for one in checks)
        names = configured_brains(environment, settings)
        unknown = (rule for rule in settings.brains_captures if rule.partition("=")[0] not in names)
        for sentence in (*left_out, *(f"`brains.captures` has {rule!r}: no brain has that name" for rule in unknown)):
            yield _odd("brains", sentence, "nugget trust, or nugget config set brains.folders")

    found: list[Finding] = []
    for check in (
        lambda: quick_checks(status(brain, settings, environment), settings, environment, now),
        lambda: [_good("redaction", scanner() and "its rules are loaded")],
        of_others, partial(_check_canon, brain, settings, environment),
        partial(_check_model, brain, settings, environment),
    ):  # fmt: skip
        try:
            found += check()
        except Exception as error:
            found.append(_wrong("check", reason_of(error), getattr(error, "hint", None)))
    return found


def _check_git(seen: dict[str, Any], now: datetime) -> Iterator[Finding]:
    """Check the repository and its locks; a recent lock belongs to a running commit."""
    brain, state, init = Path(seen["brain"]), seen["repository"], f"nugget init {shlex.quote(seen['brain'])}"
    if state is None:
        yield _wrong("git", f"{brain} is not a git repository: no history, no proposals", init)
        return
    if state["problem"]:
        yield _wrong("git", state["problem"], state["hint"] or f"git -C {brain} status says more")
    elif state["head"] is None:
        yield _wrong("git", "the brain has no commit yet", init)
    elif found := git.unsettled(brain):
        yield _odd("git", f"the brain is {found[0]}: nothing can be added or accepted", f"{found[1]} in {brain}")
    elif state["uncommitted"]:
        yield _good("git", f"{counted(state['uncommitted'], 'uncommitted file')} under domains/")
    else:
        yield _good("git", f"{state['branch']}, everything committed")
    for lock in git.lock_files(brain):
        with suppress(FileNotFoundError):
            since = datetime.fromtimestamp(lock.lstat().st_mtime, UTC)
            if now - since > _COMMIT_TAKES:
                message = f"{lock} was made {duration(now - since)} ago: while it is there, git refuses to commit"
                step = "wait for the git process there; if there is none, nugget doctor --repair"
                yield _wrong("git lock", message, step)


def _check_index(seen: dict[str, Any], environment: Environment) -> Iterator[Finding]:
    state = seen["index"]
    if state["state"] == "absent":
        yield _good("index", "none yet; the first question builds it")
    elif state["state"] == "outdated":
        yield _odd("index", state["reason"], "nugget sync")
    elif state["state"] == "unusable":
        yield _wrong("index", state["reason"] or "it cannot be used", state["hint"])
    elif (file := index_file(Path(seen["brain"]), environment)) and (damage := find_damage(file)):
        yield _wrong("index", f"it is damaged ({damage})", "nugget rebuild")
    elif state["behind"]:
        yield _good("index", f"the next question indexes {counted(state['behind'], 'changed file')}")
    else:
        yield _good("index", ", ".join(counted(state[f"{noun}s"], noun) for noun in ("unit", "chunk", "vector")))
    if state["model"] and state["vectors"] < state["chunks"]:
        yield _odd("vectors", f"missing for {counted(state['chunks'] - state['vectors'], 'chunk')}", "nugget sync")
    elif state["vector_search"]:
        yield _good("vectors", f"searched with {state['vector_search']}")


def _check_team_index(seen: dict[str, Any]) -> Iterator[Finding]:
    if state := seen["team_index"]:
        if state["state"] == "unusable":
            yield _wrong("team's index", state["reason"], state["hint"])
        elif state["behind"]:
            yield _odd("team's index", f"not published yet: {counted(state['behind'], 'changed unit')}", "nugget sync")
        else:
            yield _good("team's index", f"the space {state['space']}, published {state['published']}")


def _check_sources(seen: dict[str, Any]) -> Iterator[Finding]:
    """Check for unindexed files outside the brain; a question indexes them, and makes vectors in the background."""
    for row in seen["sources"]:
        if row["source"] in (SourceName.BRAIN, SourceName.MEMORY):
            continue
        if row["pending"]:
            yield _good(row["name"], f"the next question indexes {counted(row['pending'], 'file')}")
        elif row["unembedded"]:
            yield _good(row["name"], f"the next question makes vectors for {counted(row['unembedded'], 'unit')}")
        else:
            yield _good(row["name"], counted(row["passages"], "passage"))


def _check_files(seen: dict[str, Any]) -> Iterator[Finding]:
    """Check the problems of knowledge files that were found when they were indexed."""
    problems = seen["index"]["problems"]
    errors = [one for one in problems if one["severity"] == Severity.ERROR]
    if errors:
        first = errors[0]
        said = f"{counted(len({one['path'] for one in errors}), 'file')} cannot be read: {first['path']}"
        yield _wrong("knowledge files", f"{said}:{first['line'] or 1}: {first['reason']}", "nugget lint")
    elif problems:
        yield _odd("knowledge files", counted(len(problems), "warning"), "nugget lint")
    elif seen["index"]["state"] == "ready":
        yield _good("knowledge files", "all are readable")


def _check_canon(brain: Path, settings: Settings, environment: Environment) -> Iterator[Finding]:
    if not settings.canon_folders:
        return
    source = open_canon(environment, settings, brain)
    list(source.files())  # problems come from a walk
    yield from (_odd("canon", str(problem), None) for problem in (*source.problems, *source.left_out))


def _check_model(brain: Path, settings: Settings, environment: Environment) -> Iterator[Finding]:
    name, model = "embedding model", settings.embedding_model
    try:
        if embedder := open_embedder(settings, environment):
            vector = embedder.embed_query("Does the model answer?")
            index, _ = index_status(brain, environment)
            if index["units"] and index["model"] != embedder.model:
                made = f"with vectors of {index['model']}" if index["model"] else "without vectors"
                yield _odd(name, f"{embedder.model} answers, but the index was made {made}", "nugget sync")
            else:
                yield _good(name, f"{embedder.model} answers, {len(vector)} dimensions")
        else:
            yield _good(name, "none: questions are answered by words alone")
    except NuggetError as error:
        step = error.hint or "correct `embedding.model` with `nugget config set`; until then words alone are searched"
        yield _wrong(name, f"{model} cannot be used: {error}", step)
    key = "is set (not tried, as that costs)" if environment.anthropic_api_key else "is not set: passages, no answers"
    by = f"; {settings.llm_extract_model} at {settings.llm_base_url} finds knowledge" * (settings.llm_api == "openai")
    yield _good("LLM", f"ANTHROPIC_API_KEY {key}{by}" if settings.llm_enabled else "switched off by llm.enabled")


def _check_settings(brain: Path, environment: Environment) -> Iterator[Finding]:
    user_file, mine, brain_file = environment.home / "config.yaml", read_user_file(environment), brain / "brain.yaml"
    _, problems, misplaced = read_brain_file(brain)
    load_settings(environment, brain, refused=(refused := list[str]()))
    yield from (_wrong("settings", said, "correct it there") for said in refused)
    others = [key for key, (value, _) in mine.items() if not is_known(key) and (key, value) != OLD_OFFLINE]
    unknown = [key for key in others if key not in ("brain", "version")]
    if unknown:
        yield _odd("settings", f"{user_file}: there is no setting {', '.join(unknown)}", f"correct it in {user_file}")
    for problem in problems:
        yield _odd("settings", f"{problem}; it is ignored", f"correct it in {brain_file}")
    if misplaced:
        named = ", ".join(f"{key} (line {line})" for key, (_, line) in misplaced.items())
        move = "" if misplaced.keys() <= mine.keys() else "nugget config move, then "
        message = f"brain.yaml: ignored, because only your own configuration may set {named}"
        yield _odd("settings", message, f"{move}delete {counted(len(misplaced), 'key')} from {brain_file}")
    if not (unknown or problems or misplaced or refused):
        yield _good("settings", ", ".join(map(str, filter(Path.is_file, (brain_file, user_file)))))


def _check_folders(brain: Path, environment: Environment) -> Iterator[Finding]:
    home = environment.home
    nearest = next(folder for folder in [home, *home.parents] if folder.exists())
    if not os.access(nearest, os.W_OK):
        yield _wrong("folders", f"{home} cannot be written: nothing can be captured", f"make {nearest} writable")
    elif not os.access(brain, os.W_OK):
        yield _odd("folders", f"{brain} is read-only: questions work, capture does not", f"make {brain} writable")
    elif full := next((place for place in (brain, nearest) if shutil.disk_usage(place).free < _LEAST_FREE), None):
        yield _wrong("folders", f"the disk of {full} is full", "make room on it, then run this again")
    else:
        yield _good("folders", f"{brain} and {home} can be written")


def _check_capture(seen: dict[str, Any], settings: Settings, environment: Environment) -> Iterator[Finding]:
    state = seen["capture"]
    if failed := state["failures"]:
        yield _wrong("capture", f"{counted(len(failed), 'session')} failed; {failed[0]}", "nugget capture --retry")
    elif state["paused"]:
        yield _odd("capture", "paused: no session is captured", "nugget pause --end")
    elif state["queue"].get("pending") and not state["working"]:
        waiting = counted(state["queue"]["pending"], "session")
        yield _odd("capture", f"no worker is running for {waiting} in the queue", "nugget capture")
    else:
        yield _good("capture", f"last: {(state['last_captured'] or 'never')[:16].replace('T', ' ')}")
    if old := outdated_archives(environment.home, settings):
        yield _odd("archive", f"{counted(len(old), 'session')} redacted by older rules", "nugget scrub")


def _check_remote(seen: dict[str, Any]) -> Iterator[Finding]:
    publishing = seen["publishing"]
    if proposals := seen["proposals"]:
        yield _odd("review", f"waiting for you: {counted(proposals, 'proposal')}", "nugget review")
    if apart := drift(publishing):
        yield _odd("remote", *apart)
    elif publishing["remote"]:
        yield _good("remote", "brain and remote hold the same, as far as was last seen")
    if publishing["merged"]:
        merged = counted(publishing["merged"], "pull request")
        yield _odd("pull requests", f"merged on the remote, and not here yet: {merged}", "nugget sync --pull")
    if failures := publishing["failures"]:
        yield _wrong("publishing", f"not published: {failures[0]}", "nugget capture --publish")


_KEPT = "PATH LANG LC_ALL TMPDIR TEMP TMP SYSTEMROOT PYTHONPATH LD_LIBRARY_PATH VIRTUAL_ENV KF_RULE_CACHE_DIR".split()
_LIMIT_S, _LEAST_FREE = 300, 1_000_000
_SAID = "remember: sourdough in a cold kitchen needs twice the time, because yeast is slow below 18 degrees."
_SECRET = "ghp_" + "16C7e42F292c6912E7710c838347Ae17" + "8B4a"
_PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'


def self_check() -> Iterator[Finding]:
    """Yield a finding for each step; read and write nothing outside a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="nugget-self-check-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        session = home / "session.jsonl"
        session.write_text(_record(_SAID) + _record(f"The token is {_SECRET}."), "utf-8")
        steps: tuple[tuple[str, tuple[str, ...], Callable[[str], bool]], ...] = (
            ("brain", ("init", str(home / "brain"), "--no-install"), lambda out: "Made the brain" in out),
            ("capture", ("capture-session", "--transcript", str(session), "--with", "offline"), bool),
            ("review", ("review", "accept"), bool),
            ("redaction", ("redact", str(session)), lambda out: "github-token" in out),
            ("words", ("search", "sourdough", "--json"), lambda out: "twice the time" in out),
            ("meaning", ("ask", "bread in winter", "--no-llm", "--json"),
             lambda out: '"no_vectors"' not in out and "sourdough" in out),
            ("agents", ("serve",), lambda out: json.loads(out.splitlines()[0]).get("id") == 1),
        )  # fmt: skip
        for name, arguments, is_right in steps:
            yield _run(home, name, arguments, is_right)


def _run(home: Path, name: str, arguments: tuple[str, ...], is_right: Callable[[str], bool]) -> Finding:
    """Run one command in the temporary home and return its finding."""
    variables = read_environment().variables
    kept = {key: variables[key] for key in _KEPT if key in variables}
    places = {"HOME": str(home), "USERPROFILE": str(home), "NUGGET_HOME": str(home / ".nugget"), "USER": "nugget"}
    command = [sys.executable, "-P", "-m", "nugget", *arguments]
    shown = f"nugget {shlex.join(arguments)}".replace(str(home), "~")
    try:
        done = subprocess.run(
            command, cwd=home, env={**kept, **places, "NUGGET_RESIDENT_S": "0"}, input=_PING, timeout=_LIMIT_S,
            capture_output=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        works = done.returncode == 0 and is_right(done.stdout)
        reason = done.stderr.strip().split("\n")[0] or "an answer that was not expected"
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        works, reason = False, str(error) or type(error).__name__
    return _good(name, shown) if works else _wrong(name, f"{shown}: {reason}")


def _record(said: str) -> str:
    """Return a prompt as Claude Code writes it to a transcript."""
    return json.dumps({
        "type": "user", "uuid": str(len(said)), "parentUuid": None, "sessionId": "self-check", "cwd": "/bakery",
        "timestamp": "2026-01-01T12:00:00.000Z", "version": "2.1.0", "isSidechain": False, "userType": "external",
        "entrypoint": "cli", "message": {"role": "user", "content": said},
    }) + "\n"  # fmt: skip
