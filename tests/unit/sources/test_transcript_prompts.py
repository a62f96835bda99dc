"""What the person said in a transcript: not what was injected, once, and not on a branch that they left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transcript_records import SESSION, call, read, record, refusal, result, texts

from nugget.models import EventKind


def attachment(prompt: object, **values: Any) -> dict[str, Any]:
    queued = {"type": "queued_command", "prompt": prompt} | values
    return {"type": "attachment", "uuid": "q", "sessionId": SESSION, "attachment": queued}


@pytest.mark.proves("SES-HUMAN")
@pytest.mark.parametrize(
    "injected",
    [
        record("user", "Caveat: read this", isMeta=True),
        record("user", "<command-name>/clear</command-name>"),
        record("user", "<command-message>review is running</command-message>"),
        record("user", "<local-command-stdout>ok</local-command-stdout>"),
        record("user", "<local-command-caveat>Caveat: The messages below</local-command-caveat>"),
        record("user", "<task-notification>done</task-notification>", origin={"kind": "task-notification"}),
        record("user", "<system-reminder>be careful</system-reminder>"),
        record("user", [{"type": "text", "text": "[Request interrupted by user for tool use]"}]),
        record("user", '<teammate-message teammate_id="scout">look</teammate-message>'),
        record("user", 'Another Claude session sent a message:\n<teammate-message x="1">look</teammate-message>'),
        record("user", "<cross-session-message from='uds:1'>hi</cross-session-message>", isMeta=True),
        record("user", "from a peer", origin={"kind": "peer", "body": "from a peer"}),
        record("user", "subagent task", isSidechain=True),
        record("user", "typed by a program", promptSource="system"),
        record("assistant", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True),
        {"type": "api-request-blob", "message": {"role": "user", "content": "whole prompt"}, "sessionId": SESSION},
        attachment("BRIDGE", origin={"kind": "coordinator"}),
        attachment("x", commandMode="task-notification"),
    ],
)
def test_injected_text_is_no_prompt_and_no_reply(tmp_path: Path, injected: dict[str, Any]) -> None:
    session = read(tmp_path, record("user", "a real one", origin={"kind": "human"}, promptSource="typed"), injected)
    assert texts(session, EventKind.PROMPT) == ["a real one"]
    assert texts(session, EventKind.REPLY) == []


@pytest.mark.proves("SES-HUMAN")
def test_reminders_and_editor_notices_are_cut_out_of_a_prompt(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record(
            "user",
            [
                {"type": "text", "text": "<ide_opened_file>The user opened a.py</ide_opened_file>"},
                {"type": "text", "text": "always use tabs<system-reminder>\nsecret plan\n</system-reminder>"},
                {"type": "image", "source": {"data": "iVBOR"}},
            ],
        ),
        record("user", "<user-memory-input>never push to main</user-memory-input>"),
    )
    assert texts(session, EventKind.PROMPT) == ["always use tabs", "never push to main"]


@pytest.mark.proves("SES-HUMAN")
def test_what_the_person_says_in_a_dialog_is_theirs(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        call("c1", "Bash", command="rm -rf build"),
        refusal("c1", "use the v2 API"),
        call("c2", "AskUserQuestion", questions=[]),
        result(
            "c2",
            'User has answered your questions: "Which?"="The second". You can now continue with these.',
            details={"questions": [], "answers": {"Which?": "The second"}},
        ),
    )
    assert texts(session, EventKind.PROMPT) == ["use the v2 API", '"Which?"="The second"']
    assert texts(session, EventKind.OUTPUT) == [], "a refused command printed nothing"


@pytest.mark.proves("SES-HUMAN")
def test_a_command_the_person_ran_is_a_command_and_no_prompt(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record("user", "<bash-input>git log -1</bash-input>"),
        record("user", "<bash-stdout>commit abc</bash-stdout><bash-stderr></bash-stderr>"),
    )
    assert [(event.kind, event.text, event.tool) for event in session.events] == [
        (EventKind.COMMAND, "git log -1", "user-shell"),
        (EventKind.OUTPUT, "commit abc", "user-shell"),
    ]


@pytest.mark.proves("SES-QUEUED")
def test_a_queued_prompt_is_read_once(tmp_path: Path) -> None:
    queued = attachment([{"type": "text", "text": "also update the docs"}], commandMode="prompt")
    assert texts(read(tmp_path, queued), EventKind.PROMPT) == ["also update the docs"]
    both = read(tmp_path, queued, record("user", "also update the docs", uuid="u2"))
    assert texts(both, EventKind.PROMPT) == ["also update the docs"]


@pytest.mark.proves("SES-QUEUED")
def test_a_record_that_occurs_twice_counts_once(tmp_path: Path) -> None:
    line = record("user", "once", uuid="a")
    again = {"type": "assistant", "message": {"content": [{"type": "text", "text": "again"}]}}
    data = {"type": "agent_progress", "message": again}
    progress = {"type": "progress", "uuid": "p", "sessionId": SESSION, "data": data}
    session = read(tmp_path, line, line, progress)
    assert [event.text for event in session.events] == ["once"]


@pytest.mark.proves("SES-REWIND")
def test_the_branch_that_the_person_left_is_left_out(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        record("user", "start", uuid="u1"),
        record("assistant", [{"type": "text", "text": "started"}], uuid="a1", parent="u1"),
        record("user", "use redis", uuid="u2", parent="a1"),
        record("assistant", [{"type": "text", "text": "redis it is"}], uuid="a2", parent="u2"),
        record("user", "more redis", uuid="u3", parent="a2"),
        record("user", "use sqlite", uuid="u4", parent="a1"),
        record("assistant", [{"type": "text", "text": "sqlite it is"}], uuid="a4", parent="u4"),
    )
    assert [event.text for event in session.events] == ["start", "started", "use sqlite", "sqlite it is"]


@pytest.mark.proves("SES-REWIND")
def test_parallel_calls_are_no_dead_branches(tmp_path: Path) -> None:
    lines = [record("user", "go", uuid="u")]
    for name in ("x", "y"):
        lines.append(call(name, "Bash", uuid=f"call-{name}", command=f"echo {name}") | {"parentUuid": "u"})
        lines.append(result(name, name) | {"uuid": f"result-{name}", "parentUuid": f"call-{name}"})
    assert texts(read(tmp_path, *lines), EventKind.OUTPUT) == ["x", "y"]
