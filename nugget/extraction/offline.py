"""Extract knowledge without an LLM: claims are found, judged and worded; the best few become proposals.

A session gives at most MAX_UNITS units, each about a different subject, and often none. The judge is two linear
models: one for what the agent says, over named features, and one for what a person types, over its words and vector.
scripts/train_extraction.py trains them; judge.json holds the weights and a model card.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from itertools import repeat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from nugget.errors import EmbeddingUnavailable
from nugget.extraction import titles
from nugget.extraction.claims import Claim, SessionClaims, claims_of, is_confirmed, word_features
from nugget.extraction.drafts import REASONS, Draft, drafts_of, with_purpose
from nugget.extraction.episodes import Turn, picked
from nugget.extraction.phrases import features, options_not_taken, rejected_in, says
from nugget.extraction.places import is_test
from nugget.extraction.proposals import Proposal, domain_of, edited_files, language_of, project_of
from nugget.extraction.speech import Channel
from nugget.infra.embedding import bundled
from nugget.models import EventKind, Evidence, KnowledgeType, Origin, Scope, Session, SourceName, Speaker, Unit
from nugget.sources.condense import without_recalled
from nugget.text import shorten, slugify, title_slug

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_UNITS = 5

_SURE = 0.8
"""The least confidence in what a person laid down as a rule, or chose when asked."""
_AGREED = 0.7
"""The least confidence in what the agent offered and the person agreed to."""
_THEIRS = 0.05
"""The bonus for a unit that the person stated."""
_QUOTE_CHARS, _SHOWN_QUOTE_CHARS = 240, 200
_UNCONFIRMED = 0.79
"""The most confidence in what neither the user stated nor a check confirmed."""
_ALIKE = 0.4
"""The penalty for likeness to the most similar unit already proposed."""
_SAME_SUBJECT, SHARED_WORDS = 0.65, 0.4
"""Likeness from which two drafts are about one subject: in words and meaning, and in words alone."""
_EITHER = re.compile(r"([\w.+#-]*\w) (?:or|vs\.?|oder|ou) ([\w.+#-]*\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Linear models of drafts and of messages; a unit needs a probability of `threshold`.

    `message` weighs the features of what a person types, `vector` the vector that the bundled model gives it.
    """

    draft: Mapping[str, float]
    message: Mapping[str, float]
    vector: Sequence[float]
    threshold: float

    def draft_score(self, features: Mapping[str, float]) -> float:
        """Return the probability that a draft is worth keeping."""
        return _probability(_weighed(self.draft, features))

    def message_score(self, text: str, vector: NDArray[np.float32] | None) -> float:
        """Return the probability that a message holds beyond the moment; without a vector, by words alone."""
        of_vector = 0.0 if vector is None else float(vector @ self.vector)
        return _probability(_weighed(self.message, message_features(text)) + of_vector)


def message_features(text: str) -> dict[str, float]:
    """Return the features of a person's message that the judge weighs."""
    signs = {"rule": says("rules"), "one-off": says("one_off"), "passing": says("passing")}
    found = {name: float(bool(pattern.search(text))) for name, pattern in signs.items()}
    return word_features(text) | found | {"command": float(text.startswith("/"))}


def _weighed(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    return weights[""] + sum(weights.get(name, 0.0) * value for name, value in features.items())


def _probability(score: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


def vectors_of(texts: Sequence[str]) -> list[NDArray[np.float32]] | None:
    """Return the bundled model's vectors of texts, or None if it cannot be loaded; then words alone decide."""
    try:
        return [*bundled().embed(texts)]
    except EmbeddingUnavailable:
        return None


@cache
def trained() -> Judge:
    """Return the judge that ships with Nugget."""
    stored = json.loads((files("nugget.extraction") / "judge.json").read_text("utf-8"))
    return Judge(**{name: stored[name] for name in ("draft", "message", "vector", "threshold")})


def extract_offline(session: Session, *, now: datetime) -> list[Proposal]:
    """Propose units from a redacted session, the most trusted first."""
    read = claims_of(tuple(without_recalled(session.events)))
    chosen = [with_purpose(draft, read) for draft in select(drafts(read), read)]
    project = project_of(session) if chosen else None  # asks git
    units = [_proposal(draft, read, session, project, now) for draft in chosen]
    return list({proposal.unit.id: proposal for proposal in reversed(units)}.values())[::-1]


def explain(session: Session) -> tuple[str, ...]:
    """Return a line for each claim considered: probability, speaker, cues, and outcome."""
    read = claims_of(tuple(without_recalled(session.events)))
    made, threshold = drafts(read, least=0.0), trained().threshold
    kept = {id(draft) for draft in select([one for one in made if one.confidence >= threshold], read)}
    lines = []
    for draft in sorted(made, key=lambda one: -one.confidence):
        fate = f"below {threshold}" if draft.confidence < threshold else f"{MAX_UNITS} better ones were taken"
        fate = f"about the subject of “{draft.better.title}”" if draft.better else fate
        fate = "proposed" if id(draft) in kept else fate
        cues = [name for name in features() if draft.anchor.features.get(name)]
        told = ", ".join([draft.anchor.sentence.channel, draft.anchor.episode.turn, *cues[:4]])
        lines.append(f"{draft.confidence:.2f} {draft.kind} ({told}) {with_purpose(draft, read).title}: {fate}")
    return tuple(lines)


def drafts(read: SessionClaims, judge: Judge | None = None, *, least: float | None = None) -> list[Draft]:
    """Return the drafts of a session, judged and typed, with a confidence of `least` or more."""
    judge = judge or trained()
    made = drafts_of(read)
    typed = [draft for draft in made if draft.anchor.sentence.channel is Channel.USER]
    texts = [draft.anchor.sentence.text for draft in typed]
    scores = map(judge.message_score, texts, (vectors_of(texts) if texts else None) or repeat(None))
    lasting = dict(zip(map(id, typed), scores, strict=True))
    for draft in made:
        draft.kind, least_sure = _type_and_floor(draft)
        score = lasting.get(id(draft))
        score = judge.draft_score(draft.features) if score is None else score
        is_left_out = not least_sure if draft.anchor.is_agreed else _is_of_the_moment(draft)
        draft.confidence = 0.0 if is_left_out else max(score, least_sure)
    kept = [draft for draft in made if draft.confidence >= (judge.threshold if least is None else least)]
    for draft in kept:
        draft.alternatives = _alternatives(draft, read)
    return kept


def select(made: Sequence[Draft], read: SessionClaims) -> list[Draft]:
    """Return the best drafts, each about a different subject."""
    ranked = sorted(made, key=lambda one: (-round(one.confidence, 2), one.anchor.sentence.channel is not Channel.USER))
    vectors = vectors_of([draft.statement for draft in ranked]) if len(ranked) > 1 else None
    for draft, vector in zip(ranked, vectors or (), strict=vectors is not None):
        draft.anchor.vector = vector
    kept: list[Draft] = []
    while ranked and len(kept) < MAX_UNITS:
        near = [max((_likeness(one, other, read) for other in kept), default=0.0) for one in ranked]
        values = [
            one.confidence - _ALIKE * likeness + _THEIRS * (one.anchor.sentence.channel is Channel.USER)
            for one, likeness in zip(ranked, near, strict=True)
        ]
        place = values.index(max(values))
        best, likeness = ranked.pop(place), near[place]
        best.better = next(filter(best.completes, kept), None)
        if best.better:
            best.better.support.append((best.half, best.anchor))
        elif likeness < _SAME_SUBJECT:
            kept.append(best)
        else:
            twin = next(at for at, other in enumerate(kept) if _likeness(best, other, read) == likeness)
            if _replaces(best, kept[twin]):
                best, kept[twin] = kept[twin], best
            best.better = kept[twin]
    return kept


def _replaces(one: Draft, other: Draft) -> bool:
    """Return whether one draft replaces another: a later statement of the person, or the commit of a plan."""
    found, channels = one.anchor.features, [draft.anchor.sentence.channel for draft in (one, other)]
    if one.anchor.sentence.place <= other.anchor.sentence.place:
        return False
    if channels == [Channel.USER, Channel.USER]:
        return bool(found["instead"] or says("now").search(one.anchor.sentence.text))
    if channels == [Channel.REPLY, Channel.REPLY] and one.anchor.episode is other.anchor.episode:
        return round(one.confidence, 1) >= round(other.confidence, 1)
    return channels[1] is Channel.PLAN and channels[0] in (Channel.COMMIT, Channel.PUBLISHED)


def _is_of_the_moment(draft: Draft) -> bool:
    """Return whether a person reported a failure or was told no, or an agent advised, guessed or told what happened."""
    found, said, sentence = draft.anchor.features, draft.statement, draft.anchor.sentence
    if sentence.channel is Channel.USER:
        is_report = says("reports").search(said) or (
            says("still_broken").search(said) and not says("rules").search(said)
        )
        return bool(draft.anchor.episode.denied or is_report)
    is_told = titles.is_imperative(said) and not any(map(found.get, ("must", *REASONS)))
    is_news = says("now").search(sentence.text) and not any(map(found.get, ("because", "instead", "intent", "cause")))
    is_step = says("numbered").search(sentence.event.text, max(0, sentence.start - 9), sentence.start + 2)
    is_passing = is_told or is_news or is_step or says("momentary").search(said)
    is_poor = not titles.is_telling(draft.title) or says("measured").search(draft.title)
    return bool(is_poor or (is_passing and sentence.channel is Channel.REPLY))


def _type_and_floor(draft: Draft) -> tuple[KnowledgeType, float]:
    """Return the type of a draft and its least confidence, which is high for what a person laid down or chose."""
    anchor, kind = draft.anchor, _kind(draft)
    text, found = anchor.sentence.text, anchor.features
    if anchor.is_agreed:
        is_of_work = says("about_the_work").search(text) or says("chore").search(draft.statement)
        return (kind, 0.0) if is_of_work else (KnowledgeType.DECISION, _AGREED)
    if anchor.sentence.channel is Channel.USER:
        if anchor.episode.turn is Turn.CHOICE and anchor.sentence.event.tool:
            return (kind, 0.0) if says("about_the_work").search(text) else (KnowledgeType.DECISION, _SURE)
        # The bundled model knows English only; in other languages a rule with its reason is clear from its words.
        is_foreign_rule = found["because"] and says("rules").search(text) and not says("english").search(text)
        is_choice = says("chosen").search(text) or says("rejects").search(text)
        is_laid_down = says("for_ever").match(draft.statement) or is_choice or is_foreign_rule
        is_passing = says("passing").search(text) or says("one_off").search(text)
        return kind, _SURE if is_laid_down and not is_passing else 0.0
    has_reason = found["because"] or found["instead"]
    if found["decided"] and has_reason and is_adopted(draft) and not (found["future"] or found["cause"]):
        return KnowledgeType.DECISION, _AGREED
    return kind, 0.0


def _kind(draft: Draft) -> KnowledgeType:
    """Return the type of a draft: belief, decision, bug or concept."""
    found, text = draft.anchor.features | draft.features, draft.anchor.sentence.text
    if draft.anchor.sentence.channel is Channel.USER:
        is_choice = found["instead"] or says("chosen").search(text) or says("rejects").search(text)
        is_rule = says("rules").search(draft.statement) or says("rules").search(text)
        return KnowledgeType.BELIEF if is_rule and not is_choice else KnowledgeType.DECISION
    if draft.anchor.is_agreed or found["intent"]:
        return KnowledgeType.DECISION
    if any(found[name] for name in ("cause", "risk", "fix", "found then fixed")):
        return KnowledgeType.BUG
    choices = ("decided", "instead", "title does", "title fixes", "channel commit", "channel published", "channel plan")
    return KnowledgeType.DECISION if any(found[name] for name in choices) else KnowledgeType.CONCEPT


def _likeness(one: Draft, other: Draft, read: SessionClaims) -> float:
    """Return how alike two drafts are, in rare words and in meaning (0 to 1.5)."""
    if any(titles.clean(a.anchor.sentence.text) in b.statement for a, b in ((one, other), (other, one))):
        return 1.0
    near = max(read.likeness(one.anchor, theirs) for theirs in other.claims)
    ours, theirs = one.anchor.vector, other.anchor.vector
    if ours is None or theirs is None:
        return near * _SAME_SUBJECT / SHARED_WORDS
    return near / 2 + float(ours @ theirs)


def _proposal(draft: Draft, read: SessionClaims, session: Session, project: str | None, now: datetime) -> Proposal:
    moment = draft.anchor.sentence.event.timestamp or session.ended or session.started or now
    is_certain = draft.anchor.sentence.channel is Channel.USER or is_checked(draft)
    is_choice = draft.kind in (KnowledgeType.DECISION, KnowledgeType.BELIEF)
    alternatives = draft.alternatives if is_choice else ()
    quotes = [_evidence(claim, session) for claim in (draft.anchor, *(claim for _, claim in draft.telling))]
    path = _path(draft, read, session)
    unit = Unit(
        id=f"{draft.kind}/{title_slug(draft.title)}", source=SourceName.BRAIN, type=draft.kind, title=draft.title,
        body=f"{_body(draft, alternatives)}\n", domain=_domain(draft, session, project, path),
        tags=tuple(filter(None, [language_of(session)])),
        confidence=round(draft.confidence if is_certain else min(draft.confidence, _UNCONFIRMED), 2),
        origin=Origin.AI_SESSION, scope=Scope(path=path) if path else None, session=session.id,
        evidence=tuple(dict.fromkeys(quotes)), alternatives=alternatives, created=moment.date(),
        last_modified=moment.date(),
    )  # fmt: skip
    return Proposal(unit=unit, reason=_reason(draft))


def _body(draft: Draft, alternatives: Sequence[str]) -> str:
    """Return the body of a unit: the slots of its draft, the alternatives not chosen, and the quote behind it."""
    text = draft.text()
    if alternatives and draft.kind is KnowledgeType.DECISION and "**Instead of:**" not in text:
        text += f"\n\n**Instead of:** {'; '.join(alternatives)}."
    event, quote = draft.anchor.sentence.event, " ".join(draft.anchor.sentence.quote.split())
    when = f", {event.timestamp:%Y-%m-%d %H:%M}" if event.timestamp else ""
    speaker = {Speaker.USER: "user", Speaker.QUOTED: "pasted"}.get(draft.anchor.speaker, "agent")
    return f"{text}\n\n> {shorten(quote, _SHOWN_QUOTE_CHARS)}\n> ({speaker}{when})"


def _evidence(claim: Claim, session: Session) -> Evidence:
    event, quote = claim.sentence.event, claim.sentence.quote
    if len(quote) > _QUOTE_CHARS:
        quote = quote[:_QUOTE_CHARS].rsplit(" ", 1)[0]
    return Evidence(
        session=session.id, quote=quote, records=(event.uuid,) if event.uuid else (), speaker=claim.speaker,
        origin=event.origin,
    )  # fmt: skip


def _reason(draft: Draft) -> str:
    channel = draft.anchor.sentence.channel
    if channel is Channel.USER:
        return "You decided this when asked" if draft.anchor.sentence.event.tool else "You said so"
    if channel is Channel.QUOTED:
        return "You pasted it and the agent acted on it" if is_confirmed(draft.anchor) else "You pasted it"
    if draft.anchor.is_agreed:
        return "The agent offered it and you agreed"
    return {
        Channel.COMMIT: "The agent wrote it in a commit message",
        Channel.PUBLISHED: "The agent wrote it for reviewers",
        Channel.PLAN: "It stood in a plan that you approved",
        Channel.SUMMARY: "It stood in the summary of the session",
    }.get(channel, "The agent stated it")


def _path(draft: Draft, read: SessionClaims, session: Session) -> str | None:
    """Return the file that a unit is about: an edited file that it names, else the only edited file."""
    anchor, episode = draft.anchor, draft.anchor.episode
    if anchor.sentence.channel is Channel.REPLY and anchor.is_agreed:
        episode = next((one for one in read.episodes if one.first > episode.last), episode)  # the person's agreement
    text = f"{draft.title} {draft.text()}"
    edits = list(edited_files(read.events, session))
    named = next((path for _, path in edits if PurePosixPath(path).name in text), None)
    edited = {path for place, path in edits if episode.first <= place <= episode.last and not is_test(path)}
    return named or (edited.pop() if len(edited) == 1 else None)


def _domain(draft: Draft, session: Session, project: str | None, path: str | None) -> str:
    """Return `projects/NAME` for knowledge of one repository, or the language's domain for a general rule."""
    is_rule = draft.kind is KnowledgeType.BELIEF and path is None
    return domain_of(session) if project is None or is_rule else f"projects/{slugify(project)}"


def is_adopted(draft: Draft) -> bool:
    """Return whether the session acted on what the agent said: it was accepted or committed, or edits followed."""
    anchor = draft.anchor
    is_committed = anchor.sentence.channel in (Channel.COMMIT, Channel.PUBLISHED)
    return anchor.is_agreed or is_committed or bool(anchor.episode.edits)


def is_checked(draft: Draft) -> bool:
    """Return whether what the agent said was adopted, and then a check passed or a commit was made."""
    episode = draft.anchor.episode
    done = (*episode.passed, *episode.commits)
    is_committed = draft.anchor.sentence.channel in (Channel.COMMIT, Channel.PUBLISHED)
    return is_adopted(draft) and (is_committed or bool(episode.edits and any(at > episode.edits[-1] for at in done)))


def _alternatives(draft: Draft, read: SessionClaims) -> tuple[str, ...]:
    """Return the alternatives not chosen: the other options of a dialog, or what follows `instead of`."""
    event = draft.anchor.sentence.event
    if event.call_id and event.speaker is Speaker.USER and event.tool:
        calls = (one for one in read.events if one.call_id == event.call_id and one.kind is EventKind.TOOL_CALL)
        asked = next(calls, None)
        return options_not_taken(asked.text, event.text) if asked else ()
    sentence, offer = draft.anchor.sentence, draft.anchor.episode.offer
    if draft.anchor.features["option chosen"] and offer:
        taken = {word.lower() for word in picked(draft.anchor.episode.prompt, offer)}
        pairs = (pair for pair in _EITHER.findall(offer) if sum(word.lower() in taken for word in pair) == 1)
        return tuple(dict.fromkeys(word for pair in pairs for word in pair if word.lower() not in taken))
    names = rejected_in(sentence.text)
    return tuple(name for name in names if not re.search(rf"\buse (?:the |an? )?{re.escape(name)}", draft.title, re.I))
