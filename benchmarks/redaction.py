"""How fast and how right redaction is: MB of condensed text, and of nothing but names, per second; recall, precision.

Run: python benchmarks/redaction.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from nugget.redaction import redact
from nugget.sources.claude_code import read_session
from nugget.sources.condense import condense

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY.parent / "shared" / "data" / "transcripts" / "claude-code"
CORPUS = REPOSITORY / "tests" / "redaction_corpus"


def speed(folder: Path) -> tuple[float, float]:
    """(MB of condensed text, MB per second of process time), the best of five rounds."""
    texts = [condense(read_session(file), 1 << 30) for file in sorted(folder.glob("*.jsonl"))]
    redact("the rules are compiled once")
    times = []
    for _ in range(5):
        begin = time.process_time()
        for text in texts:
            redact(text)
        times.append(time.process_time() - begin)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return megabytes, megabytes / min(times)


def slowest() -> float:
    """MB per second of process time of a text that is one assignment within the other."""
    text = "password=" * 10_000
    begin = time.process_time()
    redact(text)
    return len(text) / 1e6 / (time.process_time() - begin)


def quality() -> tuple[float, float]:
    """(recall, precision) over tests/redaction_corpus."""
    secrets = json.loads((CORPUS / "secrets.json").read_text("utf-8"))
    lookalikes = json.loads((CORPUS / "lookalikes.json").read_text("utf-8"))
    found = sum("".join(row["secret"]) not in redact("".join(row["text"])).text for row in secrets)
    spoilt = sum(redact("".join(row["text"])).text != "".join(row["text"]) for row in lookalikes)
    return found / len(secrets), found / (found + spoilt)


def main() -> None:
    """Print both."""
    megabytes, rate = speed(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    recall, precision = quality()
    print(f"speed      {rate:6.1f} MB/s over {megabytes:.1f} MB of condensed text")
    print(f"slowest    {slowest():6.1f} MB/s over a text of nothing but names")
    print(f"recall     {recall:6.3f}")
    print(f"precision  {precision:6.3f}")


if __name__ == "__main__":
    main()
