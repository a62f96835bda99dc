"""How right and how fast redaction is: recall by kind and by context, precision, and megabytes per second.

Run: python benchmarks/redaction.py [FOLDER] [--seed N] [--missed]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

from secret_corpus import Example, lookalikes, secrets  # noqa: E402

from nugget.config import Settings  # noqa: E402
from nugget.redaction import redact, redact_session  # noqa: E402
from nugget.sources.claude_code import read_session  # noqa: E402

FOLDER = REPOSITORY.parent / "shared" / "data" / "transcripts" / "claude-code"


def speed(folder: Path) -> tuple[float, float]:
    """Return the MB of text in the sessions of a folder, and MB per second of process time, the best of three."""
    sessions = [read_session(file) for file in sorted(folder.glob("*.jsonl"))]
    redact("the rules are opened once")
    times = []
    for _ in range(3):
        begin = time.process_time()
        for session in sessions:
            redact_session(session, settings=Settings())
        times.append(time.process_time() - begin)
    texts = [
        part for session in sessions for event in session.events for part in (event.text, event.before, event.after)
    ]
    megabytes = sum(len((text or "").encode("utf-8", "replace")) for text in texts) / 1e6
    return megabytes, megabytes / min(times)


def is_found(example: Example) -> bool:
    """Return True if nothing of the example's secrets is left."""
    left = redact(example.text).text
    return not any(secret in left for secret in example.secrets)


def main() -> None:
    """Print recall by context and kind, precision and speed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missed", action="store_true", help="show the texts of kinds rules were tuned on that leaked")
    given = parser.parse_args()
    by_context, by_kind = defaultdict(list), defaultdict(list)
    halves: dict[bool, list[bool]] = {False: [], True: []}
    for example in secrets(given.seed):
        found = is_found(example)
        by_context[example.context].append(found)
        by_kind[example.kind].append(found)
        halves[example.apart].append(found)
        if given.missed and not found and not example.apart:
            print(f"{example.kind} | {example.text!r} -> {redact(example.text).text!r}")
    spoilt = [text for text in lookalikes(given.seed) if redact(text).text != text]
    if given.missed:
        print(*(f"spoilt: {text!r} -> {redact(text).text!r}" for text in spoilt), sep="\n")
    for context, hits in sorted(by_context.items()):
        print(f"{context:20} {sum(hits) / len(hits):6.3f} of {len(hits)}")
    print("kinds that leak:", ", ".join(kind for kind, hits in by_kind.items() if not all(hits)) or "none")
    found = sum(map(sum, halves.values()))
    total = sum(map(len, halves.values()))
    print(f"recall               {found / total:6.3f} of {total} secrets of {len(by_kind)} kinds")
    print(f"  kinds tuned on     {sum(halves[False]) / len(halves[False]):6.3f}")
    print(f"  kinds kept apart   {sum(halves[True]) / len(halves[True]):6.3f}")
    print(f"precision            {found / (found + len(spoilt)):6.3f} with {len(spoilt)} look-alikes spoilt")
    megabytes, rate = speed(given.folder)
    print(f"speed                {rate:6.1f} MB/s over {megabytes:.1f} MB of sessions")


if __name__ == "__main__":
    main()
