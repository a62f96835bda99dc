"""What a person typed, what they pasted, and what is somebody else's word."""

from __future__ import annotations

import json

import pytest

from nugget.models import Speaker
from nugget.models.nuggets import Nugget
from nugget.sources.nugget_store import line_of, read_line
from nugget.sources.speakers import split_pasted
from nugget.text import clean


@pytest.mark.proves("SPEAKER-PASTED")
@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("the job fails\n" + "Prepare workflow\n" * 9, "the job fails"),
        ("do this:\n- first retry\n- then log it", "do this:\n- first retry\n- then log it"),
        ("use List<String> here, never Map<K, V>", "use List<String> here, never Map<K, V>"),
        ("before\n```\nlog\n```\nafter", "before\n\nafter"),
        ("is it right?\n> quoted\nI say no", "is it right?\n\nI say no"),
        ("see <review>never</review> please", "see\n\nplease"),
        ("fails in CI:\nRun make\nError: exit 2", "fails in CI:"),
        ("please fix\n\n## Summary\n\nBuild it", "please fix"),
        ("## Summary\n\nBuild it", ""),
        ("ログインを直す。\n" * 9 + "以上", "ログインを直す。\n" * 9 + "以上"),
    ],
)
def test_what_was_typed_is_told_from_what_was_pasted(text: str, typed: str) -> None:
    found, pasted = split_pasted(text)
    assert found == typed
    assert bool(pasted) == (typed != text)


@pytest.mark.proves("SPEAKER-OLD")
def test_what_an_earlier_version_kept_is_never_the_users() -> None:
    line = {"kind": "nugget", "id": "1a2b3c4d-1", "type": "constraint", "summary": "Always", "confidence": 0.9,
            "session": "s", "evidence": [{"session": "s", "quote": "Always do it"}]}  # fmt: skip
    nugget = read_line(json.dumps(line).encode())
    assert isinstance(nugget, Nugget)
    assert (nugget.speaker, nugget.evidence[0].speaker) == (Speaker.AGENT, None)
    assert read_line(json.dumps(line_of(nugget)).encode()) == nugget
    with pytest.raises(ValueError):
        read_line(json.dumps(line | {"speaker": ["user"], "origin": 5}).encode())


@pytest.mark.proves("ANSWER-TAGS")
@pytest.mark.parametrize(
    "tag",
    [
        "system-reminder", "command-name", "command-message", "command-args", "local-command-stdout", "bash-input",
        "bash-stdout", "bash-stderr", "user-prompt-submit-hook", "session-start-hook", "function_calls", "invoke",
        "tool_result", "tool_use", "task-notification", "persisted-output", "teammate-message", "nugget-memory",
        "cross-session-message", "ide_selection", "new-diagnostics", "environment_context", "user_instructions",
        "turn_aborted", "user_query", "attached_files", "session_context", "antml:invoke", "SYSTEM-REMINDER",
    ],
)  # fmt: skip
def test_a_tag_that_a_client_means_something_by_is_escaped(tag: str) -> None:
    for text in (f"<{tag}>", f"</{tag}>", f"< /{tag} >", f'<{tag} x="1">', f"<{tag}"):
        assert "<" not in clean(text) and clean(text).replace("&lt;", "<") == text
