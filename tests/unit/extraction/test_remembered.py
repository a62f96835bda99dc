"""What the user asks to be remembered becomes a proposal, whatever a judge says."""

from datetime import UTC, datetime

import pytest
from loopback_anthropic import value

from nugget.config import Settings
from nugget.extraction import extract, remembered
from nugget.models import Event, EventKind, Session, Speaker, SpeechOrigin

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def asked(text: str, speaker: Speaker = Speaker.USER) -> Session:
    event = Event(
        kind=EventKind.PROMPT, text=text, uuid="u-1", speaker=speaker, origin=SpeechOrigin.TYPED, timestamp=NOW
    )
    return Session(id="s-1", agent="claude-code", path="s.jsonl", events=(event,))


@pytest.mark.proves("REMEMBER-CUE")
@pytest.mark.parametrize(
    ("text", "rule", "because"),
    [
        ("Fix it. Remember: use uv, because pip ruins the lock.\nThanks", "Use uv", "pip ruins the lock"),
        ("please remember that we deploy on Mondays", "We deploy on Mondays", ""),
        ("merk dir: wir nehmen uv, weil pip das Lockfile zerstört", "Wir nehmen uv", "pip das Lockfile zerstört"),
        ("Retiens que les tests tournent avec uv, parce que pip casse tout", "Les tests tournent avec uv", "pip casse"),
        ("recuerda: usar siempre uv, porque pip rompe el lock", "Usar siempre uv", "pip rompe el lock"),
        ("pipはロックを壊すので、必ずuvを使うと覚えておいて。", "必ずuvを使う", "pipはロックを壊す"),
        ("覚えておいて：テストは必ずuvで実行する", "テストは必ずuvで実行する", ""),
        ("请记住，永远使用uv，因为pip会破坏锁文件", "永远使用uv", "pip会破坏锁文件"),
    ],
)
def test_a_cue_gives_a_belief_with_its_because(text, rule, because):
    session = asked(text)
    [proposal] = remembered(session, NOW)
    unit = proposal.unit
    assert (unit.type, unit.title, unit.confidence) == ("belief", rule, 0.95)
    assert f"**Rule:** {rule}" in unit.body and (f"**Because:** {because}" if because else "> ") in unit.body
    assert unit.evidence[0].quote in text and unit.evidence[0].records == ("u-1",)
    assert [one.unit.id for one in extract(session, settings=Settings(), now=NOW).proposals] == [unit.id]


@pytest.mark.proves("REMEMBER-CUE")
@pytest.mark.parametrize(
    "text",
    ["do you remember the bug?", "Remember: was it uv or pip?", "I remember that we met", "> remember: use uv",
     "```\nremember: use uv\n```", "remember:", "Remember the milk function", "the note says remember"],
)  # fmt: skip
def test_a_question_a_quote_or_a_word_alone_is_no_cue(text):
    assert remembered(asked(text), NOW) == remembered(asked("remember: use uv", Speaker.QUOTED), NOW) == []


@pytest.mark.proves("REMEMBER-CUE")
def test_it_stands_beside_what_a_model_finds_and_is_not_doubled(llm, server):
    unit = {
        "type": "pattern", "title": "Use uv and not pip for the lock", "domain": "a", "tags": [], "confidence": 0.9,
        "body": "Use uv for the lock file, since pip does not keep it as it is.", "reason": "x", "alternatives": [],
        "quotes": ["Remember: use uv, because pip ruins"], "relations": [],
    }  # fmt: skip
    server.script(value({"summary": "s", "units": [unit]}))
    session = asked("Remember: use uv, because pip ruins the lock")
    [proposal] = extract(session, settings=Settings(), now=NOW, llm=llm).proposals
    assert proposal.reason == "You asked to remember it"
