"""Phrases that tell knowledge from chatter, in six languages: data for the judge, which learned their weights.

Every entry is one feature; a pattern counts once per sentence. Languages: English, German, French, Spanish, Japanese,
Chinese. Patterns without word boundaries serve scripts that do not put spaces between words.
"""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from itertools import pairwise


def any_of(*parts: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Return a pattern, case-insensitive by default, that finds any of these."""
    return re.compile("|".join(parts), flags)


WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""A character of a script without spaces between words, or of Korean."""
_NAMES = re.compile(
    r"`[^`\n]{2,80}`|\b\w+(?:\.\w+)+\(?|\b\w+\(\)|\b[a-z]+[A-Z]\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|(?<!\w)--[a-z][\w-]+"
    r"|\b[A-Z][a-z]+[A-Z]\w+|\b[A-Z]{2,}[A-Z0-9_]{2,}\b"
)
WORD = re.compile(r"[^\W\d_][\w-]{2,}")
WORDS = tomllib.loads((files("nugget.extraction") / "words.toml").read_text("utf-8"))


def _phrase(name: str, *, table: str = "phrases", flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    return any_of(*map("".join, WORDS[table][name]), flags=flags)


_STOP = frozenset(WORDS["stop"].split())
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
FIRST_PERSON = any_of(r"(?:^|[^`\w])(?:I(?:'(?:m|ve|ll|d))?|me|my|you're|je|j'ai|ich|yo|я)(?=[^`\w']|$)|我(?![们們])")
SUBJECT_PRONOUN = any_of(r"^(?:It|This|That|These|They|Those|Both|Its)\b(?P<is>'s)?\s*")
ENGLISH = any_of(r"\b(?:the|and|is|are|was|to|of|for|with|that|this|it|we|you|not)\b")
LEAD_INS = _phrase("lead_ins")
COMMITS = re.compile(r"\bgit\b[^\n;|&]*\bcommit\b")
ANSWERED = re.compile(r'"(?P<question>.+?)"="(?P<answer>.+?)"', re.DOTALL)
"""The question tool's report of a person's choice."""
RECOMMENDED = any_of(r"\s*\([^()]*\brecommend[^()]*\)\.?$")

FEATURES = {name: _phrase(name, table="features", flags=re.NOFLAG) for name in WORDS["features"]}
"""What the words of a sentence in lower case say, and how it is built."""
OFFERS = any_of(FEATURES["offer"].pattern)
"""The agent's question whether it should do something."""

CHORE = any_of(
    r"^\W*(?:add|updat|writ|creat|implement|renam|remov|document|check|verif|run|commit|push|fix|mov|read|review|clean"
    r"|mak)\w*\b.{0,60}\b(?:tests?|docs?|documentation|help text|comments?|changelog|readme|lint\w*|pr|branch|imports?"
    r"|todo|diagnostics?)\b"
)
STRESSED_NOT = any_of(r"(?-i:\bNOT )\w")

AGREES = _phrase("agrees")
OBJECTS = _phrase("objects")
RECOMMENDS = _phrase("recommends")
"""A recommendation by the agent that the person may accept."""
CONCEDES = _phrase("concedes")

ON_SECOND_THOUGHT = any_of(r"\W*(?:actually|wait|no wait|hmm+|on second thought)\b(?!:)")
"""The agent's opening words when it takes back what it just said."""
STILL_WRONG = any_of(
    ON_SECOND_THOUGHT.pattern,
    r"\W*(?:still\b|same (?:error|issue|problem|result)|(?:that )?(?:did|does)n't (?:help|work|fix)|not (?:yet|fixed"
    r"|working)|whoops|oops|hmm|immer noch|toujours|sigue)|\W*(?:まだ|还是|仍然)",
)
"""The agent's opening words when its attempt did not help."""

PASSING = _phrase("passing")
"""Remarks that sound like rules but are about the moment or the speaker."""

RULES = _phrase("rules")
"""Signs that a statement holds beyond the moment."""

FOR_EVER = any_of(
    r"(?:please |ne )?(?:always|never|don't ever|immer|niemals|nie|toujours|jamais|siempre|nunca|jamás|никогда"
    r"|всегда)\b|(?:please )?(?:keep|leave)\b.{4,80}\b(?:because|since|otherwise)\b",
    r"絶対|必ず|绝不|永远|始终|总是",
)
"""The beginning of a rule."""

REJECTS = _phrase("rejects")
"""Signs that something was rejected."""

WORKAROUND = _phrase("workaround")
"""Signs of something that holds only until there is something better."""

CHOSEN = _phrase("chosen")
"""Signs that something was chosen."""

ONE_OFF = any_of(
    r"\b(?:this|that) (?:one|pr|commit|branch|time)\b|\bc(?:an|ould) (?:you|we|i)\b|\blet'?s\b(?! (?:keep|stick|stay"
    r"|use|go with)\b)|\bi just\b|\bi'?ve\b|\bi noticed\b|\bwe (?:want|need) to (?:add|build|create)\b",
    r"^i (?:do )?(?:want|need|would like) (?:to|you)\b|\bnot sure\b|\?\s*$|\bi don'?t (?:know|remember|see)\b",
    r"\b(?:diesmal|dieses mal|kannst du)\b|\b(?:cette fois|peux-tu)\b|\b(?:esta vez|puedes)\b|今回|这次|能不能",
)
"""Signs of a request for this moment only."""

MOMENTARY = any_of(
    r"^alternatively\b|^(?:the|this|our) (?:plan|prototype) \w+s\b|(?:^|, )you (?:could|can|may|might)\b|\byour\b"
    r"|\byou(?:'ve| have)\b|\bdein\w*\b|\bvotre\b|[你您]|^we (?:need to|should|could) (?:add|check|fix|make|try)\b"
    r"|\bthe user(?:'s)? \w+s\b|\b(?:likely|probably|possibly|perhaps|seems?|(?:might|may not) (?:be|have|need))\b"
    r"|^(?:the|this) (?:(?:test|e2e|first|last) )?(?:errors?|outputs?|logs?|screenshots?|hints?)\b[^.,]{0,40}?"
    r" (?:shows?|says?|suggests?|confirms?|means)\b|^the error is\b|\b(?:is|are|was|were|itself)"
    r" (?:actually |also |always )?(?:fine|correct|valid|healthy|wrong|broken|succeeded)\b(?! (?:because|when|if|for"
    r"|to|unless)\b)|\b(?:two|different|real) (?:\w+ )?(?:things|issues|problems|bugs)\b|[✓✅]"
)
"""Signs that an agent advises, guesses, reads output aloud, or tells of one person's set-up."""
MEASURED = any_of(r"(?:(?<![\w.])[~$]?\d[\d,.]*(?!\w)[^\d]*){3}")
"""Three numbers: what was measured once."""
REPORTS = any_of(
    r"(?:^|\s)[\w./-]+:[\w./-]+: |\b(?-i:[A-Z]\w+(?:Error|Exception)|Error: |P\d{4}:)|\bstatus of [45]\d\d\b"
    r"|\bfind out (?:what|why|how)\b|\bstill (?:seems|shows|says)\b|\bused to work\b|\bfail(?:s|ed)? with\b"
    r"|\bnothing (?:happens|shows|changed)\b|(?<!\bwe )(?<!\byou )(?<!\bi )\b(?:do|did|does)(?:n't| not) (?:appear"
    r"|compile|connect|display|load|render|respond|scroll|show|start|work)\b|\b(?:refused|rejected) with [\"“`']"
)
"""Signs that a person pastes output or reports a failure."""
ABOUT_THE_WORK = any_of(r"\b(?:the plan|proceed|continue|go ahead|next step|start with|helpers?|to (?:fix|update))\b")
"""Signs of a question about how to proceed, not about what is built."""

ERRAND = any_of(
    r"^(?:(?:yeah|yes|ok(?:ay)?|so|and|now|also|then|please|(?:can|could) you|let'?s|i want to)[,.]? )*(?:read|look|see"
    r"|(?:take|have) an?(?: \w+)? look|review|check|continue|proceed|merge|rebase|push|commit|pull|try|retry|find"
    r"|search|show|tell|list|explain|think|investigate|research|explore|brainstorm|discuss|talk|figure|help|wait|hold"
    r"|consider|analy[sz]e|generate me|break (?:this|it) (?:up|down)|branch and|use the \w+ (?:superpower|skill|agent)"
    r"|(?P<tidies>(?:update|adjust|change|fix|add(?: it)? to) (?:the |my |some )?(?:\w+ )?(?:doc(?:s|ument\w*)?|readme"
    r"|tests?|change ?log|lint\w*|(?:merge )?conflicts?)))\b(?!.*\b(?:always|never|every|each|whenever|before any)\b)",
    r"^[请請帮幫我麻烦]{0,5}(?:分析|检查|檢查|看|查|解释|解釋|调查|調查|研究|总结|總結|测试|測試|试|試)(?:一下|看看|看)",
)
"""An errand, or a chore after any change (`tidies`); a rule says when: always, never, before any commit."""
_LABEL = re.compile(r'"label":\s*"((?:[^"\\]|\\.)+)"')


def options_not_taken(asked: str, answered: str) -> tuple[str, ...]:
    """Return the labels that a dialog offered but its answer did not pick, at most six."""
    labels = dict.fromkeys(RECOMMENDED.sub("", label) for label in _LABEL.findall(asked))
    return tuple(label for label in labels if label not in answered)[:6]


_OVER = any_of(
    r"\b(?:instead of|rather than|as opposed to|(?:cho[os]\w+|prefer\w*|pick\w*|favou?r\w*) [^.,;:()]{2,40} over|not"
    r"|no longer (?:use|need|want|support)|(?:replac\w+(?! (?:with|by|it|them|this|that)\b)|moved (?:away )?from"
    r"|rejected|ruled out|decided against|switch\w* from|statt|anstatt|au lieu de|plutôt que|en lugar de"
    r"|en vez de))\s+((?:the |a |an |using |use )?[`\w](?:[^.,;:()—–\n]|\.(?=\w)|\(\)){1,60})"
)
_CLAUSE = any_of(
    r"\s+(?:because|since|so|as|which|when|if|for|to|due|and then|but|in order|with|by|weil|da|für|car|pour|parce"
    r"|porque|para)\b.*"
)

_USES = any_of(r"^\W*(?:no,? )?(?:please )?(?:we )?use\b")
_OTHERWISE = any_of(r"\b(?:otherwise|or else|sonst|sinon|si no|否则)\b")


def rejected_in(text: str) -> tuple[str, ...]:
    """Return the names that a sentence says were not chosen or given up: `… instead of X`, `no longer X`."""
    found = _OVER.search(_OTHERWISE.split(text)[0])
    is_name = found and (not found[0].lower().startswith("not ") or "`" in found[0] or _USES.match(text))
    if not found or not is_name or found[0].count("`") % 2:
        return ()  # truncated code, or not a name
    if found[1].startswith("`"):
        return (found[1].split("`")[1],)
    name = _CLAUSE.sub("", re.sub(r"^(?:the|a|an|using|use) ", "", found[1].strip())).strip(" `\"'")
    return (name,) if 1 < len(name) <= 60 else ()


def turned_down_in(text: str) -> str:
    """Return what a text says was not chosen, in one of many ways: `X, not Y`, `not Y, but X instead`."""
    denied = re.findall(r"(?i)(?:, not|(?:\bnot|n['’]t)(?=.*\binstead\b)) ([^,.;:—–]+?)(?: - |[,.;:—–]|$)", text)
    return " ".join(rejected_in(text) or denied)


STATUS = any_of(
    r"^(?:(?:keep|take|use) (?:HEAD|ours|theirs)\b|here(?:'s| is| are)\b|(?:scroll|click|run) )",
    r"\b(?:remaining|so far|as requested|as expected)\b",
    r"\b(?:(?:tests?|lint\w*|builds?|checks?|ci)\b.{0,30}\b(?:pass\w*|fail\w*|green|red|clean|ok)\b"
    r"|\d+ (?:\w+ )?(?:failures?|errors?|issues?|warnings?|commits|files|conflicts?|lines)\b|HEAD's\b|merge both\b"
    r"|conflict(?:ed)? (?:files?|regions?)\b|(?:updated|opened|created|pushed|merged) (?:the |a |your )?(?:pr|branch"
    r"|pull request)\b|commit `?[0-9a-f]{7,}|straightforward\b|changes? needed\b|(?:just|only) one real\b"
    r"|will display as\b)",
)

IDLE = _phrase("idle")
"""Progress reports, outcomes of reviews, claims of success, and empty phrases."""


def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text: names in code, other words in lower case, pairs of wide characters."""
    found = [name.strip("`().").lower() for name in _NAMES.findall(text)]
    found += [word for word in map(str.lower, WORD.findall(text)) if word not in _STOP]
    if WIDE.search(text):
        found += [one + other for one, other in pairwise(text) if WIDE.match(one) and WIDE.match(other)]
    return frozenset(found)
