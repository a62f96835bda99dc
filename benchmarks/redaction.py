"""Measure redaction: recall by context, precision, megabytes a second, and time by length.

Each list of kinds is split: `tuned` are the kinds that rules may be written along, `apart` are the others.

Run: python benchmarks/redaction.py [FOLDER] [--seed N] [--missed]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

from hostile_texts import HOSTILE  # noqa: E402
from secret_corpus import LISTS, Example, expanded, lookalikes, secrets  # noqa: E402

from nugget.config import Settings  # noqa: E402
from nugget.redaction import redact, redact_session  # noqa: E402
from nugget.redaction.echoes import without_repetition  # noqa: E402
from nugget.redaction.engine import scanner  # noqa: E402
from nugget.sources.claude_code import read_session  # noqa: E402

FOLDER = REPOSITORY.parent / "shared" / "data" / "transcripts" / "claude-code"
HALVES = ("tuned", "apart")
DENSE = (
    "SERVICE_TOKEN=<n40>", "token ghp_<github> used", "DB_PASSWORD=<n12>!x", "the password of the host is <n9>#x now",
    "curl -u bob:<n12> https://acme.io", "postgres://u:<n12>@db/x", "{'api_key': '<n32>'}", "<jwt>", "acme_live_<n40>",
    "<n40>", "<x40> refs/heads/x", "sha512-<B86>==", "we use <n9> in the password field of <n5> and then it is fine",
)  # fmt: skip
"""Lines of which each holds another secret, or what looks like one."""
LINEAR = 2.5
"""The most that a text of twice the length may take, as a multiple."""
SLOWEST = 5.0
"""The least MB per second on any text; where the engine alone is slower, half of its speed."""


def speed(folder: Path) -> tuple[float, float]:
    """Return the MB of text in the sessions of a folder, and MB per second of process time, the best of three."""
    sessions = [read_session(file) for file in sorted(folder.glob("*.jsonl"))]
    seconds = min(taken(lambda: [redact_session(session, settings=Settings()) for session in sessions]) for _ in "123")
    texts = [
        part for session in sessions for event in session.events for part in (event.text, event.before, event.after)
    ]
    megabytes = sum(len((text or "").encode("utf-8", "replace")) for text in texts) / 1e6
    return megabytes, megabytes / seconds


def taken(work: Callable[[], object]) -> float:
    """Return the seconds of process time that some work takes."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def measured(one: str) -> tuple[float, float, float]:
    """Return MB per second on a text, the seconds that takes, and MB per second of the engine alone."""
    seconds = min(taken(lambda: redact(one)) for _ in "12")
    data = one.encode("utf-8", "surrogatepass")
    searched = without_repetition(data.decode("latin-1"))[0].encode("latin-1")
    pieces = [searched[begin : begin + 98_304] for begin in range(0, len(searched), 98_304)]
    alone = min(taken(lambda: [*map(scanner().scan, pieces)]) for _ in "12")
    return len(data) / 1e6 / seconds, seconds, len(data) / 1e6 / alone


def growth(unit: str, between: str = "", size: int = 400_000) -> tuple[float, float, float]:
    """Return MB per second on a unit repeated, those of the engine alone, and the time for twice the length.

    With `between`, a template, something else stands behind each, so that the text does not repeat itself.
    """
    chance = random.Random(unit)
    both = [unit + expanded(between, chance) for _ in range(2 * size // len(unit + between))]
    one, two = "".join(both[: len(both) // 2]), "".join(both)
    rate, once, alone = measured(one)
    twice = min(taken(lambda: redact(two)) for _ in "12")
    return rate, alone, twice / once


def dense(template: str, size: int = 200_000) -> tuple[float, float]:
    """Return MB per second on lines that each hold another secret, and those of the engine alone."""
    chance = random.Random(template)
    text = "".join(expanded(template, chance) + "\n" for _ in range(size // len(expanded(template, chance))))
    rate, _, alone = measured(text)
    return rate, alone


def is_found(example: Example) -> bool:
    """Return True if nothing of the example's secrets is left."""
    left = redact(example.text).text
    return not any(secret in left for secret in example.secrets)


def report(which: str, seed: int, show: str) -> None:
    """Print recall and precision over one of the lists, and with `show`, the misses of one half."""
    contexts: dict[str, dict[bool, list[bool]]] = defaultdict(lambda: {False: [], True: []})
    leaking: dict[str, int] = defaultdict(int)
    for example in secrets(seed, which):
        found = is_found(example)
        contexts[example.context][example.apart].append(found)
        leaking[example.kind] += not found
        if not found and show == HALVES[example.apart]:
            print(f"{example.context}: {example.kind} | {example.text!r} -> {redact(example.text).text!r}")
    spoilt: dict[bool, list[str]] = {False: [], True: []}
    counts = {False: 0, True: 0}
    for apart, text in lookalikes(seed, which):
        counts[apart] += 1
        if (left := redact(text).text) != text:
            spoilt[apart].append(left)
            if show == HALVES[apart]:
                print(f"spoilt: {text!r} -> {left!r}")
    print(
        f"{which.strip('_') or 'first'} list: {len(leaking)} kinds, {sum(map(bool, leaking.values()))} leak somewhere"
    )
    for context, hits in sorted(contexts.items()):
        print(f"  {context:20}" + "".join(f"  {HALVES[half]} {_share(hits[half])}" for half in (False, True)))
    for half in (False, True):
        every = [hit for hits in contexts.values() for hit in hits[half]]
        right = sum(every)
        print(
            f"  {HALVES[half]}: recall {_share(every)}, precision {right / (right + len(spoilt[half])):.3f}, "
            f"{len(spoilt[half])} of {counts[half]} look-alikes spoilt"
        )


def _share(hits: list[bool]) -> str:
    return f"{sum(hits) / len(hits):.3f} of {len(hits):3}" if hits else "-" * 12


def main() -> None:
    """Print recall by context, precision and speed; exit with 1 if a hostile text is slow."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missed", choices=HALVES, default="", help="show what leaked of one half")
    parser.add_argument("--only", choices=("recall", "speed"))
    given = parser.parse_args()
    redact("the rules are opened once")
    if given.only != "speed":
        for which in LISTS:
            report(which, given.seed, given.missed)
    if given.only == "recall":
        return
    megabytes, rate = speed(given.folder)
    print(f"sessions {rate:6.1f} MB/s over {megabytes:.1f} MB")
    slow = []
    for template in DENSE:
        rate, alone = dense(template)
        slow += [template] if rate < min(SLOWEST, alone / 2) else []
        print(f"{template:45} {rate:6.1f} MB/s, {alone:6.1f} the engine alone, each line another")
    for name, unit in HOSTILE.items():
        for kind, between in (("", ""), (", varied", "<L4>"), (", in lines", "<L4>\n")):
            rate, alone, times = growth(unit, between)
            print(f"{name + kind:28} {rate:6.1f} MB/s, {alone:6.1f} the engine alone, twice the length {times:.2f}")
            slow += [name + kind] if times > LINEAR or rate < min(SLOWEST, alone / 2) else []
    sys.exit(f"{len(slow)} too slow: {', '.join(slow)}" if slow else 0)


if __name__ == "__main__":
    main()
