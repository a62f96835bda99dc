"""Sentences that give a reason: constraints, decisions, rejections, workarounds and caveats among what was said.

The cues and the scoring are those of capture; what is decided here is which type of nugget a sentence is. Rules that
a person laid down are also seen in other languages than English, by the words that lay down rules there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nugget.extraction import cues, wording
from nugget.extraction.passages import Passage
from nugget.extraction.requests import one_line
from nugget.extraction.scoring import score_sentence, shared_words
from nugget.nuggets import SUMMARY_CHARS, NuggetType

PER_TYPE = {
    NuggetType.CONSTRAINT: 6, NuggetType.DECISION: 6, NuggetType.CAVEAT: 5, NuggetType.REJECTION: 4,
    NuggetType.WORKAROUND: 3,
}  # fmt: skip
"""Nuggets of each type from one session, at most."""

_REPEATS = 0.7
_LEAST_BY_USER, _LEAST_BY_AGENT, _LEAST_WORKAROUND = 0.5, 1.1, 0.6
"""Score from which a sentence of the person, one of the agent, and a workaround that the agent names, is taken."""
_NO_SENTENCE = -5.0

_WORTH_SCORING = re.compile(
    r"\b(?:must|mustn|never|always|don't|do not|avoid|prefer|make sure|instead|rather|from now on|ensure"
    r"|should(?:n't| not)"
    r"|only|requires?|required|decid\w+|chose|choose|chosen|went with|opted|settled|intentional\w*|trade-?offs?"
    r"|reject\w*"
    r"|ruled out|dropped|considered|alternative|workaround|work around|hack\w*|temporar\w+|for now|until|caveat|gotcha"
    r"|pitfall|limitation|edge case|beware|careful|note that|keep in mind|does(?:n't| not)|can(?:'t|not)|won't"
    r"|silently"
    r"|race|root cause|breaks?|fails?|because|we use|use \S+ (?:not|for)|no longer|not worth|against)\b",
    re.IGNORECASE,
)  # fmt: skip
"""What a sentence has to hold for its score to be worked out, which costs forty patterns."""

_REJECTION = re.compile(
    r"\b(?:we|i|was|were|been) rejected\b|\brejected (?:because|due|as|since|in favou?r|for|it)\b"
    r"|\bruled? out\b|\bdecided (?:against|not to)\b|\bnot worth\b|\brecommend against\b"
    r"|\b(?:we|i) (?:considered|tried|looked at|thought about)\b.*\b(?:but|however|rejected|too)\b"
    r"|\b(?:i|we) (?:do(?:n't| not)|did(?:n't| not)) (?:want|need|use) (?:to )?(?!you\b)"
    r""
    r"|\b(?:dropp?ed|abandoned|discarded) (?:the )?(?:idea|approach|option|plan)\b",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:we|i)(?:'ve| have)? (?:decided|chose|went with|opted|settled on|picked)\b|\bdecision\b|\btrade-?offs?\b"
    r"|\bintentional\b|\bchosen\b|\b(?:we|i)(?:'d| would) (?:rather|prefer)\b|\blet'?s (?:use|go with"
    r"|keep|stick)\b"
    r"|\bwe(?:'ll| will)? (?:use|keep|go with)\b.*\b(?:instead|rather|because|not)\b|\bi prefer\b|\bby design\b"
    r"|\bi want .{3,80}\b(?:instead|rather than|not)\b|\b(?:prefer|use|using) \S+.{0,40} (?:over|instead of"
    r"|rather than) ",
    re.IGNORECASE,
)
_WORKAROUND = re.compile(
    r"\bwork-?arounds?\b|\bworks? around\b|\bhack(?:y|s)?\b"
    r"|\btemporarily\b|\btemporary (?:fix|hack|solution|measure|patch|shim|code)\b|\bfor now\b|\bstop-?gap\b"
    r"|\bband-?aid\b"
    r"|\buntil .{3,60} (?:is|are|gets?) (?:fixed|released|merged|supported|available)\b|\bmonkey-?patch",
    re.IGNORECASE,
)
_CAVEAT = re.compile(
    r"\bcaveat\b|\bgotcha\b|\bpitfall\b|\blimitation\b|\bedge cases?\b|\bbeware\b|\b(?:be )?careful\b|\bnote that\b"
    r"|\bkeep in mind\b|\bsilently\b|\brace condition|\bdeadlock|\bnot thread-?safe\b|\broot cause\b|\bonly works?\b"
    r"|\b(?:does(?:n't| not)|won't|can(?:'t|not)) (?:work|support|handle|apply|cover|detect|include|survive"
    r"|trigger|run|see"
    r"|match|check|validate|know|have)\b|\b(?:breaks?|fails?|crashes|leaks?|loses) (?:when|if|on|for|with|because)\b"
    r"|\beven (?:if|when|though)\b|\bprocess-?(?:global|wide)\b|\bmust be (?:called|run|set|done) before\b",
    re.IGNORECASE,
)
_CONSTRAINT = re.compile(
    r"\bmust(?:n't| not)?\b|\b(?:always|never) (?!\w+s\b)|\brequires?\b|\bis (?:required|mandatory)\b|\bhas to be\b"
    r"|\bneeds? to be\b|^(?:don't|do not|avoid|make sure)\b",
    re.IGNORECASE,
)
_FOREIGN: tuple[tuple[NuggetType, re.Pattern[str]], ...] = (
    (NuggetType.REJECTION, re.compile(
        r"\b(?:verworfen|abgelehnt|entschieden gegen|rejeté\w*|écart[ée]\w*|descartad\w+|rechazad\w+|scartat\w+"
        r"|rejeitad\w+"
        r"|отказались|отвергли)\b|放弃了|否决|却下|採用しない", re.IGNORECASE)),
    (NuggetType.DECISION, re.compile(
        r"\b(?:(?:wir|ich) (?:haben|habe) (?:uns |mich )?(?:für|entschieden)|entschieden|statt|anstatt"
        r"|stattdessen|anstelle"
        r"|nous avons (?:choisi|décidé)|au lieu de|plutôt que|hemos (?:elegido|decidido)|en lugar de|en vez de"
        r"|decidimos"
        r"|abbiamo (?:scelto|deciso)|invece di|piuttosto che|em vez de|decidimos|in plaats van|gekozen voor|zamiast"
        r"|решили|вместо|выбрали)\b|决定|选择了|而不是|代わりに|に決め|대신|결정", re.IGNORECASE)),
    (NuggetType.WORKAROUND, re.compile(
        r"\b(?:vorläufig|vorübergehend|notlösung|behelf\w*|provisoi\w+|contournement|temporal\w*|provisional\w*"
        r"|provvisori\w+"
        r"|temporane\w+|provisóri\w+|tijdelijk\w*|временн\w+|костыль)\b|临时|变通|暫定|回避策|임시", re.IGNORECASE)),
    (NuggetType.CONSTRAINT, re.compile(
        r"\b(?:muss|müssen|darf (?:nicht|nie|kein\w*)|dürfen (?:nicht|nie)|niemals|nie|immer|keinesfalls"
        r"|auf keinen fall"
        r"|soll(?:en|te)? (?:nicht|nie|immer)|doit|doivent|ne .{1,30} (?:pas|jamais)|toujours|jamais|il faut|debe[ns]?"
        r"|nunca|siempre|no (?:uses|usar|debe\w*)|deve|devono|non (?:usare|deve)|sempre|mai|não (?:use|usar"
        r"|deve)|devem"
        r"|moet(?:en)?|nooit|altijd|mag niet|musi|nigdy|zawsze|nie wolno|должен|должн[аоы]|нельзя|никогда"
        r"|всегда|обязательно)"
        r"\b|必须|不要|不能|不得|绝不|禁止|总是|一定要|務必|必ず|しないで|してはいけない|ないで(?:ください|ね)?[。！]?"
        r"|반드시|하지 ?마|절대|항상",
        re.IGNORECASE)),
)  # fmt: skip
"""Words that lay down rules and tell choices in other languages; tried only on sentences of the person."""

_ENGLISH = re.compile(r"\b(?:the|and|is|are|was|to|of|for|with|that|this|it|we|you|not)\b", re.IGNORECASE)
_OTHER_BREAK = re.compile(r"(?<=[。！？])|(?<=[.!?])\s+")
_OVER = re.compile(
    r"\b(?:instead of|rather than|as opposed to|over|not|statt|anstatt|au lieu de|plutôt que|en lugar de"
    r"|en vez de|invece di"
    r"|em vez de|in plaats van|вместо)\s+((?:the |a |an |using |use )?[`\w][^.,;:()—–\n]{1,60})",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"\s+(?:because|since|so|as|which|when|if|for|to|due|and then|but|in order|weil|da|car|parce|porque|perché)\b.*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A sentence that gives a reason. `quote` is verbatim; `detail` is the sentences around it as prose."""

    type: NuggetType
    summary: str
    detail: str
    quote: str
    passage: Passage
    confidence: float
    alternatives: tuple[str, ...] = ()
    score: float = 0.0


def find_reasons(parts: Sequence[Passage]) -> list[Reason]:
    """The reasons among the passages of a session, the best of each type, in the order in which they were given."""
    found = [reason for passage in parts for reason in _reasons(passage)]
    kept: list[Reason] = []
    counts: dict[NuggetType, int] = {}
    for reason in sorted(found, key=lambda one: -one.score):
        if counts.get(reason.type, 0) >= PER_TYPE[reason.type]:
            continue
        if any(shared_words(reason.summary, other.summary) >= _REPEATS for other in kept):
            continue
        counts[reason.type] = counts.get(reason.type, 0) + 1
        kept.append(reason)
    return sorted(kept, key=lambda one: (one.passage.place, one.passage.event.text.find(one.quote)))


def _reasons(passage: Passage) -> Iterator[Reason]:
    for number, sentence in enumerate(passage.sentences):
        if passage.by_user and not _ENGLISH.search(sentence.text):
            yield from _foreign(passage, number)
            continue
        if not _WORTH_SCORING.search(sentence.text) or sentence.text.endswith("?"):
            continue
        score, names, _ = score_sentence(sentence.text, by_user=passage.by_user)
        if passage.by_user and score > _NO_SENTENCE and _says_choice(sentence.text):
            score = max(score, _LEAST_BY_USER)
        least = _LEAST_WORKAROUND if _WORKAROUND.search(sentence.text) else _LEAST_BY_AGENT
        if score < (_LEAST_BY_USER if passage.by_user else least):
            continue
        point = wording.point_of(sentence.text)
        kind = _kind(point, names, by_user=passage.by_user)
        if kind is None:
            continue
        confidence = min(0.85, 0.35 + 0.1 * min(score, 3.5) + (0.15 if passage.by_user else 0.0))
        is_long_rule = passage.by_user and kind is NuggetType.CONSTRAINT and len(point) > SUMMARY_CHARS
        summary = wording.title_from(point, prefer=cues.STRONG_CONSTRAINT) if is_long_rule else one_line(point)
        yield Reason(
            type=kind, summary=summary.rstrip(".:"), detail=_around(passage, number),
            quote=passage.quote(number, number), passage=passage, confidence=round(confidence, 2), score=score,
            alternatives=_alternatives(point) if kind in (NuggetType.DECISION, NuggetType.REJECTION) else (),
        )  # fmt: skip


def _says_choice(text: str) -> bool:
    """Whether a person says outright what is to be used and what not; small talk around it does not matter."""
    return len(text.split()) >= 5 and bool(_REJECTION.search(text) or _DECISION.search(text))


def _kind(point: str, names: Sequence[str], *, by_user: bool) -> NuggetType | None:
    """The type of a sentence that scored; None for what is knowledge, but no reason for code."""
    if _WORKAROUND.search(point):
        return NuggetType.WORKAROUND
    if _REJECTION.search(point):
        return NuggetType.REJECTION
    if _DECISION.search(point) or ("decided" in names and not by_user):
        return NuggetType.DECISION
    if by_user:
        return (
            NuggetType.CONSTRAINT if cues.STRONG_CONSTRAINT.search(point) and not cues.ONE_OFF.search(point) else None
        )
    if _CAVEAT.search(point) or "root cause" in names or "limitation" in names:
        return NuggetType.CAVEAT
    return NuggetType.CONSTRAINT if "rule" in names and _CONSTRAINT.search(point) else None


def _foreign(passage: Passage, number: int) -> Iterator[Reason]:
    """Reasons in a sentence of a person that is not English."""
    sentence = passage.sentences[number]
    for text in filter(None, map(str.strip, _OTHER_BREAK.split(sentence.text))):
        kind = next((kind for kind, pattern in _FOREIGN if pattern.search(text)), None)
        if kind is None or text.endswith(("?", "？")) or len(text) < 6:
            continue
        yield Reason(
            type=kind, summary=one_line(text), detail=_around(passage, number), quote=text, passage=passage,
            confidence=0.6, score=1.0, alternatives=_alternatives(text),
        )  # fmt: skip


def _alternatives(point: str) -> tuple[str, ...]:
    """What a sentence says was not taken: `… instead of X`, `… rather than Y`."""
    found = _OVER.search(point)
    if not found or (found[0].lower().startswith("not ") and "`" not in found[0]):
        return ()
    name = _CLAUSE.sub("", re.sub(r"^(?:the|a|an|using|use) ", "", found[1].strip())).strip(" `\"'")
    return (name,) if 1 < len(name) <= 60 else ()


def _around(passage: Passage, number: int) -> str:
    """The sentence with its neighbours as prose; empty where that is no more than the summary."""
    first, last = max(0, number - 1), min(len(passage.sentences) - 1, number + 1)
    prose = wording.opening(passage.quote(first, last))
    if len(prose) > 500:
        prose = wording.opening(passage.quote(number, number))
    return prose if len(prose) > SUMMARY_CHARS or last > first else ""
