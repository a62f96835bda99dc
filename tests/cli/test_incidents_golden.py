"""What went wrong in real sessions: the failing command and what it printed come first."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from logs import NOW, Logs, logs_in
from paths import TESTS

from nugget.config import Settings
from nugget.evidence import BundleOptions, evidence_bundle
from nugget.evidence.derive import ingest
from nugget.sources import session_file
from nugget.sources.sessions import log_of

QUESTIONS: list[dict[str, str]] = yaml.safe_load((TESTS / "golden" / "incidents.yaml").read_text("utf-8"))


def take_in(logs: Logs, transcripts: Path, name: str) -> str:
    file = transcripts / name
    found = session_file(file, agent="claude-code", name=file.stem)
    assert found is not None
    ingest(logs.index, log_of(found), settings=Settings(), now=NOW)
    return file.stem


def is_found(logs: Logs, session: str, question: dict[str, str]) -> bool:
    bundle = evidence_bundle(logs.index, session, question["question"], options=BundleOptions(), now=NOW)
    top = "\n".join(one.text for one in bundle.selected[:3])
    return question["command"] in top and question["line"] in top


@pytest.mark.proves("EVI-GOLDEN")
def test_the_failing_command_and_its_line_are_in_the_first_three_for_85_of_100_questions(
    shared_data: Path, tmp_path: Path
) -> None:
    assert len(QUESTIONS) >= 40 and len({question["transcript"] for question in QUESTIONS}) >= 20
    with logs_in(tmp_path) as logs:
        names = dict.fromkeys(question["transcript"] for question in QUESTIONS)
        sessions = {name: take_in(logs, shared_data / "transcripts", name) for name in names}
        missed = [q for q in QUESTIONS if not is_found(logs, sessions[q["transcript"]], q)]
        told = "\n".join(f"{q['transcript']}: {q['question']}" for q in missed)
        assert len(missed) <= 0.15 * len(QUESTIONS), told
        print(f"{len(QUESTIONS) - len(missed)} of {len(QUESTIONS)} found; missed:\n{told}")
