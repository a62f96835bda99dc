"""Condensing a session to what was said and done; who said it: typed, pasted, or somebody else's word."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nugget.models import Event, EventKind, Session, Speaker
from nugget.models.nuggets import Nugget
from nugget.sources.condense import clip, windows
from nugget.sources.nugget_store import line_of, read_line
from nugget.sources.speakers import SAID_BY, split_pasted
from nugget.text import clean


def session_of(*events: Event) -> Session:
    return Session(id="s", agent="claude-code", path="s.jsonl", events=events)


def said(kind: EventKind, text: str, **values: object) -> Event:
    speaker, origin = SAID_BY[kind]
    values = {"speaker": speaker, "origin": origin, "uuid": f"{kind}-{text[:6]}"} | values
    return Event(kind=kind, text=text, **values)  # type: ignore[arg-type]


@pytest.mark.proves("CON-RECALL")
@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("mcp__nugget__get_relevant_context", None),
        ("Bash", "nugget ask 'cache'"),
        ("Bash", "cd /w\nNO_COLOR=1 nugget --brain ~/b recall 'the cache' | head"),
        ("Bash", 'echo "$(nugget review show)"'),
    ],
)
def test_what_nugget_recalled_is_left_out(tool, command):
    asked, answered = EventKind.TOOL_CALL, EventKind.TOOL_RESULT
    if command:
        asked, answered = EventKind.COMMAND, EventKind.OUTPUT
    session = session_of(
        said(EventKind.PROMPT, "fix the cache"),
        said(asked, command or "task: cache", tool=tool, call_id="c"),
        said(answered, "RECALLED knowledge", tool=tool, call_id="c", ok=True),
        said(EventKind.COMMAND, "grep nugget setup.py", tool="Bash", call_id="d"),
        said(EventKind.OUTPUT, "name = nugget", tool="Bash", call_id="d", ok=True),
    )
    (text,) = windows(session, max_chars=10_000)
    assert "RECALLED" not in text and "name = nugget" in text


@pytest.mark.proves("CON-LIMIT")
@given(st.lists(st.tuples(st.sampled_from(EventKind), st.text(max_size=300)), max_size=20), st.integers(1, 2_000))
def test_the_limit_holds_for_any_session(events, max_chars):
    session = session_of(*(Event(kind=kind, text=text, tool="Bash", path="p") for kind, text in events))
    texts = windows(session, max_chars=max_chars)
    assert all(len(text) <= max_chars for text in texts) and len(clip("".join(texts), max_chars)) <= max_chars


PRINTED = (
    "Unpacking lib{0}:amd64 (2.{0})", "pod-{0}   1/1   Running", "\tat com.acme.Foo.bar{0}(Foo.java:{0})",
    '  "key{0}": "two words",', "key{0}: value", "main.run{0}(0x1, 0x2)", "compiling unit-{0} v1.{0}",
)  # fmt: skip
TYPED = ("{0} put it into Redis 7", "- fix {0}", "{0}te Option", "古い{0}を3回試す", "кэш{0}", "{0} it\nand we\n")


@pytest.mark.proves("SPEAKER-PASTED")
@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("do this:\n- first retry\n- then log it", "do this:\n- first retry\n- then log it"),
        ("before\n```\nlog\n```\nafter", "before\n\nafter"),
        ("is it right?\n> quoted\nI say no", "is it right?\n\nI say no"),
        ("see <review>never</review> please", "see\n\nplease"),
        ("fails in CI:\nRun make\nError: exit 2", "fails in CI:"),
        ("please fix\n\n## Summary\n\nBuild it", "please fix"),
        *(("why?\n" + "\n".join(map(line.format, range(9))), "why?") for line in PRINTED),
        *(["\n".join(map(line.format, "abcdefghi")).strip()] * 2 for line in TYPED),
        ("is this fair?\n**Walkthrough**\nThe cache is never cleared.\n**Verdict**\nAlways clear it", "is this fair?"),
        ("what of it\n\n" + f"- always write the table {'before the index ' * 3}\n" * 6, "what of it"),
        ("look\n\nFrom: Ann <ann@example.org>\nSubject: outage\n\nWe must never deploy on Fridays.", "look"),
        ("seen?\n\nann  10:11 AM\nwe should never deploy on fridays", "seen?"),
        ("fair?\n\n**<sub>![P1 Badge](https://i.example/1)</sub>  Never swallow it**\n\nAlways re-raise.", "fair?"),
        ("fix\n\n_⚠️ Potential issue_ | _🟠 Major_\n\nCallers must always see the error.", "fix"),
        ("fix\n\nMinor: always rename x.\n\nHigh Severity\n\nNever leak the pool.", "fix"),
        ("Am 28.09. schrieb Ann:\n\nWir müssen immer warten.", "Am 28.09. schrieb Ann:"),
        *([a] * 2 for a in ("never at 16:30", "[10:30 we meet] log", "from: a to: b, ab 9:30", "Minor: x.\nthen lint")),
        ("go on\nweb:lint: 12:7  Warning: 'A' is never used.\nError opening it: Error: ENOENT: no such file", "go on"),
    ],
)
def test_what_was_typed_is_told_from_what_was_pasted(text, typed):
    found, pasted = split_pasted(text)
    assert found == typed and bool(pasted) == (typed != text)


@pytest.mark.proves("SPEAKER-OLD")
def test_what_an_earlier_version_kept_is_never_the_users():
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
def test_a_tag_that_a_client_means_something_by_is_escaped(tag):
    for text in (f"<{tag}>", f"</{tag}>", f"< /{tag} >", f'<{tag} x="1">', f"<{tag}"):
        assert "<" not in clean(text) and clean(text).replace("&lt;", "<") == text
