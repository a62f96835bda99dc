"""Which sentences carry knowledge: cue phrases with weights, what marks chatter, and prototypes for the model.

The weights were set by reading what they let through in real sessions (`benchmarks/extraction.py` measures them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nugget.models import KnowledgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """A phrase that tells something about a sentence. `weight` is added to its score; `type` is what it points to."""

    name: str
    weight: float
    pattern: re.Pattern[str]
    type: KnowledgeType | None = None


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{phrase})" for phrase in phrases), re.IGNORECASE)


def _words(words: str) -> str:
    """A regular expression for any of the words, each whole."""
    return rf"\b(?:{'|'.join(words.split())})\b"


def _cue(name: str, weight: float, *phrases: str, type: KnowledgeType | None = None) -> Cue:
    return Cue(name=name, weight=weight, pattern=_any(*phrases), type=type)


_BUG, _DECISION = KnowledgeType.BUG, KnowledgeType.DECISION
_PATTERN, _CONCEPT = KnowledgeType.PATTERN, KnowledgeType.CONCEPT

CUES = (
    _cue("root cause", 1.6, r"\broot cause", r"\bculprit\b", r"\bturns? out\b", r"\bcaused by\b", type=_BUG),
    _cue(
        "the issue was", 1.3,
        r"\b(?:the|this|real|actual|underlying|core|key|main) (?:\w+ )?"
        r"(?:issue|problem|bug|cause|reason|failure|panic|race|mismatch|regression) "
        r"(?:is|was|were|comes|came|here is|lies)\b",
        r"^(?:the )?(?:issue|problem|bug|cause):",
        type=_BUG,
    ),
    _cue(
        "race or leak", 0.7,
        r"\brace condition", r"\bdeadlock", r"\bleaks?\b", r"\b(?:nil|null) pointer", r"\boverflow\b",
        type=_BUG,
    ),
    _cue(
        "breaks", 0.6,
        _words("breaks? broke fails? crash(?:es|ed)? silently lost dropped mismatch wrong stale"),
        type=_BUG,
    ),
    _cue(
        "why", 0.9,
        r"\bbecause\b", r"\bwhich (?:means|is why)\b", r"\bthat'?s why\b", r"\bdue to\b", r"\bso that\b",
        r"\bthis means\b",
    ),
    _cue(
        "since", 0.6,
        r"\bsince\b(?! (?:then|last|yesterday|the last|20\d\d))", r",? so (?:it|the|we)\b", r", so\b", r"\btherefore\b",
    ),
    _cue(
        "the fix is", 1.0,
        r"\bthe (?:\w+ )?(?:fix|solution|workaround|trick|answer) (?:is|was)(?: to\b| that\b| `|:)", r"^(?:the )?fix:",
        type=_BUG,
    ),
    _cue(
        "decided", 1.2,
        r"\b(?:we|i) (?:decided|chose|went with|rejected|opted|settled on)\b", r"\bdecision\b", r"\btrade-?offs?\b",
        r"\bintentional(?:ly)?\b", r"\bpragmatic choice\b", r"\brejected\b",
        r"\bi(?:'d| would) (?:still )?(?:choose|keep|recommend|prefer|avoid)\b",
        type=_DECISION,
    ),
    _cue(
        "rather than", 0.6,
        r"\binstead of\b", r"\brather than\b", r"\bas opposed to\b", r"\bin favou?r of\b", r"\bnot just\b",
    ),
    _cue(
        "rule", 0.8,
        r"\b(?:always|never|avoid)\b", r"\bmust(?:n't| not)?\b", r"\b(?:should|need)(?:n't| not)\b", r"\bmake sure\b",
        r"\bdo(?:n't| not) (?!know|think|see|want)", r"\brequires?\b", r"\bonly works?\b",
        r"\bis (?:required|needed|mandatory)\b",
        type=_PATTERN,
    ),
    _cue(
        "convention", 1.0,
        r"\bconvention\b", r"\bpattern\b", r"\banti-?pattern\b", r"\bbest practice", r"\bthe codebase\b",
        r"\bthis (?:project|repo)\b", r"\bby design\b", r"\binvariant\b", r"\bidempoten",
        type=_PATTERN,
    ),
    _cue(
        "behaviour", 0.7,
        r"\bby default\b", r"\bdefaults? to\b", r"\breturns?\b(?! to\b)", r"\bdoes(?:n't| not)\b",
        r"\bcan(?:'t|not| not)\b",
        r"\beven (?:if|though|when)\b", r"\bprocess-?(?:global|wide)\b", r"\bthread-?safe\b", r"\bwon't\b",
        _words("only ignores? accepts? handles? expects? regardless unless equivalent supports? already"),
        type=_CONCEPT,
    ),
    _cue(
        "limitation", 0.9,
        r"\bsurpris", r"\bedge case\b", r"\bfalse (?:positive|alarm)", r"\bkey (?:fix|insight|point)\b",
        _words("limitation caveat gotcha subtle pitfall stale flaky outdated misleading"),
    ),
    _cue(
        "what it does", 0.6,
        r"^(?:the |every |each )?(?:[\w./-]+'s )?`[^`]+`(?: (?:\w+ )?(?:and|or) `[^`]+`)? (?:\w+ ){0,2}"
        r"(?:ha[sd]|have|is|are|was|were|uses?|needs?|takes?|includes?|contains?|lives?|stores?|walks?|reads?"
        r"|writes?|calls?"
        r"|checks?|sets?|implements?|exposes?|compares?|counts?|validates?|parses?|removes?|skips?|falls?|clears?"
        r"|affects?"
        r"|replaces?|follows?|gets?)\b",
        type=_CONCEPT,
    ),
    _cue(
        "interface", 0.6,
        _words("parameter argument signature deprecated renamed backward pre-existing redundant unrelated"),
        r"\bcompatib", r"\bexpected\b(?! by)",
        type=_CONCEPT,
    ),
    _cue("contrast", 0.3, _words("however but whereas while although actually"), r"\s[—–]\s"),
    _cue(
        "learned", 1.2,
        r"\b(?:we|i) (?:have )?learn(?:ed|t)\b", r"\blesson\b", r"\btakeaway\b", r"\bgood to know\b",
        r"\bworth (?:noting|knowing)\b", r"\bnote that\b",
    ),
)  # fmt: skip
"""What marks knowledge. The strongest four of a sentence count, each less than the one before."""

CHATTER = (
    _cue(
        "plan", -1.6,
        r"^(?:(?:ok(?:ay)?|good|great|perfect|right|now|next|first|then|also|so|but|and|yes|done|alright|wait|hmm?"
        r"|finally)"
        r"[,.!:—-]* )*(?:let me|let's|let us|i'll|i will|i'm (?:going|about)|i am going|i (?:need|want|have) to"
        r"|i should|i can\b"
        r"|we (?:now )?need to (?:check|look|see|fix|update|add)|i just|i've|i have\b|i see\b(?! the (?:issue"
        r"|problem))|i'd like"
        r"|going to|now (?:let|i|we|for|update|add|fix|run|the test|rename|remove|rewrite|create)\b)",
    ),
    _cue("later", -0.9, r"\blet me\b", r"\bi'll\b",
    r"\b(?:i|we) (?:just |now )?(?:added|fixed|changed|updated|moved|removed|replaced)\b", r"\blet's\b",
    r"\bi need to\b"),
    _cue(
        "status", -1.3,
        r"\b(?:all|the|both|unit|integration|\d+) (?:\w+ )?(?:tests?|checks?|suites?|builds?) (?:\w+ )?pass(?:es|ed"
        r"|ing)?\b",
        r"\bpasses? (?:cleanly|now)\b", r"\bbuild (?:passes|succeeds|is clean)\b", r"\bcommitted\b(?! to)",
        r"\bpushed\b",
        r"\bgreen\b", r"\ball done\b", r"\bis (?:now )?(?:complete|done)\b",
        r"\bno (?:lint )?(?:issues|errors|problems)\b",
        r"\bcompiles?\b", r"\bfails? as expected\b", r"\b(?:red|green) phase\b", r"\btask \d+\b", r"\bdraft pr\b",
        r"\bpr (?:is )?(?:created|opened|updated)\b", r"\bready (?:to|for)\b", r"\bsummary\b", r"\bsuccessfully\b",
        r"\bworking tree\b", r"^clean\b", r"\breplied\b", r"\bstaged\b",
    ),
    _cue(
        "offer", -1.8,
        r"^(?:want me|would you|should (?:i|we)|do you want|shall i|which (?:one|approach|option)|ready\b|let me know)",
        r"^if you(?:'d)? (?:like|want|prefer)",
    ),
    _cue(
        "courtesy", -1.0,
        r"^(?:thanks?|thank you|sorry|sure|good (?:catch|question|point|observation)s?|great|perfect|excellent|nice"
        r"|yes[.!]"
        r"|you're (?:absolutely )?right|got it|understood|makes sense)[\s,.!—-]*",
    ),
    _cue(
        "change log", -0.9,
        r"^(?:\*\*)?(?:add(?:ed|s)?|updated?|removed?|changed?|replaced?|renamed?|simplif(?:y|ied)|extract(?:ed)?"
        r"|created?"
        r"|implement(?:ed)?|moved?|wrote|kept|keep|fixe?[sd]?|merged?|modif(?:y|ied)|refactor(?:ed)?|commit|new"
        r"|deleted?|set|run"
        r"|tests?|used?|made|resolve[ds]?|clean(?:ed)?|document(?:ed|s)?|show[sn]?|should|full|drop(?:ped)?|follows"
        r"|optional"
        r"|missing|verif(?:y|ied)|cover(?:ed|s)?|clarif(?:y|ied)|improved?|determined|aligned|restored?|reverted?"
        r"|bump(?:ed)?"
        r"|switch(?:ed)?|support|handle|allow|choose|select|click|open|go to|copy|paste|install|accept|only)\b(?!:)",
    ),
    _cue(
        "guess", -0.7,
        _words("might could maybe perhaps probably likely possibly seems? appears?"), r"\blooks like\b",
        r"\bnot sure\b",
        r"\bi (?:think|guess|suspect|believe|wonder)\b", r"\bi don'?t (?:actually )?know\b", r"^if\b",
        r"\b\d+% chance\b", r"\bwe'd\b",
        r"\bif (?:this|it|that) still\b",
        r"\bshould (?:\w+ )?(?:handle|work|be (?:fine|enough|able)|just)\b",
    ),
    _cue(
        "verdict", -0.8,
        r"\bstraightforward\b", r"\b(?:extremely|very|pretty|super) \w+", r"\bmakes (?:more )?sense\b",
        r"\bseems? correct\b",
        r"\bworks? (?:great|well|fine|now)\b", r"^working\b", r"\bis (?:trivial|easy|simple)\b",
        r"\bis (?:still|now) \w+ing\b",
        r"\bbecause$", r"\btoo (?:long|slow)\b", r"[✅❌⚠🎉✓✔]", r"^(?:user|result): ?", r"^request changes\b",
        r"\b(?:simplest|cleanest|best) (?:fix|approach|option|choice|way)\b", r"\bi remember\b",
        r"\ball (?:good|set)\b",
    ),
    _cue(
        "pointing", -0.5,
        r"^(?:this|that|these|those|it|they|both|here|the same|same|such|he|she|also|and|or)\b"
        r"(?! (?:codebase|project|repo|means|is because|is why))",
    ),
    _cue("pointing away", -0.5, _words("above below following earlier previous(?:ly)?"), r"\blines? \d+(?:-\d+)?\b"),
    _cue(
        "this session", -0.6,
        r"\b(?:your|our|this|my) (?:branch|pr|change|changes|commit|fix|side|code)\b",
        r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b",
        r"\bPR #?\d", r"\bone is\b", r"\bstill (?:used|needed|shows?|fails?|missing|uses|warn\w*)\b",
        r"\bup to date\b", r"^just ", r"\bthreads? #?\d", r"\bHEAD(?:'s)?\b",
        r"\bconflict(?:s|ed)? (?:in|region|marker|file|resol)", r"\b(?:new )?commits? on\b",
        r"\b(?:fail(?:s|ed|ures?)|errors?|issues) (?:in|to fix)\b",
    ),
    _cue("found how", -3.0, r"\broot cause was (?:identified|found)\b"),
    _cue("offer within", -2.0, r"\bdo you want me to\b", r"\bwould you like me to\b", r"\bshall i\b"),
    _cue(
        "change report", -1.9,
        r"\bha(?:s|ve) been (?:\w+ly )?(?:removed|added|renamed"
        r"|updated|moved|replaced|changed|deleted|fixed|resolved)\b",
        r"^\S+:\d+ ?[-–—:]",
        r"^(?:\*\*)?`?[\w./]+`?(?:\*\*)?(?: \([^()]*\))? ?[-–—:] ?(?:added|removed|reduced|updated"
        r"|modified|changed|keeping"
        r"|deleted|created|moved|renamed|fixed|dropped)\b",
        r"^(?:modify|consider adding)\b", r"\bthe (?:document|readme|docs|comment|plan)s? now\b",
        r"\bbe in this pr\b",
    ),
    _cue("unnamed choice", -0.9, r"^(?:option|approach|step|conflict|item|comment|feedback|issue) \d"),
    _cue("question", -2.0, r"\?[\"')*]*$"),
    _cue("lead-in", -1.2, r":[\"')*]*$"),
    _cue(
        "looking", -1.2,
        r"^(?:check(?:ing)?|look(?:ing)?|read(?:ing)?|verify(?:ing)?|run(?:ning)?|try(?:ing)?|found|see|find(?:ing)?"
        r"|confirm(?:ing|ed)?)\b(?! the (?:issue|problem|root))",
    ),
)  # fmt: skip
"""What marks plans, status reports and small talk; every one that is found counts."""

STRONG_CONSTRAINT = _any(
    r"(?:^|[,;:—–-] |\b(?:and|please|should|to|we|you|i|but) )(?:always|never)\b",
    _words("must mustn't whenever avoid prefer"), r"\bfrom now on\b", r"\bunder no\b", r"\bevery time\b",
    r"\bmake sure\b", r"\b(?:should|do)(?:n't| not)\b", r"\binstead of\b", r"\brather than\b",
)  # fmt: skip
"""What a person says that holds beyond the moment."""

CONSTRAINT = _any(
    STRONG_CONSTRAINT.pattern, _words("ensure"), r"\bno longer\b", r"\bha(?:s|ve) to be\b", r"\bnot (?:just|only)\b",
    r"\bshould (?:never|always|only)\b", r"\bkeep .{1,40} (?:at|in|as)\b", r"\buse \S+ (?:not|instead|for)\b",
    r"\bwe (?:use|want|need|should|prefer|already)\b", r"\bi(?:'?d)? (?:want|prefer)\b", r"\bplease use\b",
)  # fmt: skip
"""The same, and what a person wants."""

ONE_OFF = _any(
    r"^(?:ok(?:ay)?|yes|no|sure|yep|yeah|hmm?|great|good|thanks?|commit|push|continue|go ahead|do it|sorry|wait|help"
    r"|please (?:fix|run|read|do|check|commit|push))\b[^.]{0,40}$",
    r"\b(?:this|that) (?:one|pr|commit|branch|time)\b", r"\bc(?:an|ould) (?:you|we|i)\b",
    r"^i (?:do )?(?:want|need|would like) (?:to|you)\b", r"\blet'?s\b", r"\bi just\b",
    r"\bi'?ve\b",
    r"\bi noticed\b", r"\bi don'?t (?:know|remember|see|think i)\b", r"\bnot sure\b",
)  # fmt: skip
"""What a person asks for now."""

FINITE_VERB = _any(
    _words(
        """
        is are was were be isn't aren't wasn't weren't has have had hasn't haven't do does did doesn't don't didn't
        can can't cannot could couldn't will won't would wouldn't should shouldn't must may might needs? requires?
        returns? uses? used makes? made takes? gets? got sets? runs? ran reads? writes? calls? checks? handles?
        expects? accepts? ignores? breaks? broke fails? failed changes? changed causes? caused means? meant works?
        worked shows? keeps? kept holds? stores? stored leads? goes went comes came becomes? happens? waits? blocks?
        leaks? drops? loses? lost avoids? allows? prevents? treats? follows? walks? starts? stops? sends? sent
        loads? saves? contains? includes? supports? differs? applies applied knows? knew sees? saw says? said adds?
        added removed? defaults? depends? behaves? belongs? rejects? rejected chose choose decided verifies
        generates? verified overrides? replaces? reports? reported recognizes? exists?
        """
    ),
    r"^(?:always|never|don't|do not|use|avoid|prefer|make sure|write|put|run|set|pin|call|pass|return|check|keep)\b",
)  # fmt: skip
"""A verb that makes a sentence of words, or the imperative that begins one."""

DECIDED = _any(
    r"^(?:\*\*)?decision(?:\*\*)?\s*[:—–-]",
    r"\bwe(?:'ve| have)? (?:decided|chose|chosen|went with|settled on|opted)\b",
    r"\bwe(?:'re| are) going with\b", r"^(?:decided|chosen)\b",
)  # fmt: skip
"""What says outright that something was decided."""

TOOL_OUTPUT = _any(
    r"^(?:writing|downloading|fetching|cloning|resolving|installing|unpacking|extracting|pulling|uploading) .*"
    r"(?:/\S+/|https?:|\d+%|\.\.\.)",
    r"(?:^|\s)/(?:tmp|home/runner|github/workspace)/\S+", r"^\d+-\d+ lines are duplicate", r"^undefined: \S+$",
    r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d", r"\berror TS\d{4}\b", r"^(?:##\[|::|level=|time=)",
    r"\((?:errcheck|gocritic|dupl|unparam|unused|revive|typecheck|lll|ineffassign|gofmt"
    r"|goimports|wrapcheck|E\d{3}|F\d{3}|no-[a-z-]+)\)$",
    r"\b(?:declared|imported) and not used\b", r"^(?:info|warn(?:ing)?|error|debug)\s+\[", r"^npm (?:err!|warn)",
)  # fmt: skip
"""A line that a program wrote: a log, a linter, a compiler."""

LEAD_INS = re.compile(
    r"^(?:(?:found (?:it|the (?:issue|problem|bug|root cause))|got it|i see(?: the (?:issue|problem)(?: now)?)?"
    r"|(?:good|great) (?:question|catch|point|observations?)|you're (?:absolutely )?right|yes|yeah|no|right|ah+|oh"
    r"|ok(?:ay)?(?: so)?|so|actually|wait|hmm?|now|well|indeed|interesting(?:ly)?|exactly|correct|perfect|great"
    r"|good|agreed?"
    r"|done|clear picture now|the (?:issue|problem) is clear(?: now)?|now i (?:understand|see)(?: the (?:issue"
    r"|problem))?"
    r"|the important thing(?: from the fix perspective)?|looking (?:at|more) [^,—–-]{3,50}|and|but|also|however"
    r"|similarly"
    r"|in short|note|as a result|that said)(?:\s*[,.!:;]+\s*|\s+[—–-]+\s+|\s*$))+",
    re.IGNORECASE,
)
"""What stands before the point of a sentence: `Found it! `, `Good question. `, `Ah, `."""

SAYS_THE_CAUSE = _any(
    r"^(?:so )?the (?:(?:real|actual|underlying|core|key|main|root|old|current) )?(?:issue|problem|cause|root cause"
    r"|bug|reason"
    r"|point) (?:here )?(?:is|was)(?: (?:that|because))?[:,]?\s+",
    r"^(?:so )?the (?:fix|solution|point|trick|key insight) (?:is|was)(?: to| that|:)\s+", r"^the key insight:\s+",
    r"^(?:it )?turns? out(?: that)?[,:]?\s+", r"^this (?:is|happens|happened|fails|failed) because\s+",
    r"^the important thing [^:,]{0,40}[:,]\s+", r"^(?:what we learned|learned|lesson)\s*[:—-]\s+",
    r"^(?:you can see|as you can see) [^,]{0,30}that\s+", r"^(?:result|problem \d|root cause)\s*[:—-]\s+",
    r"^(?:note|worth noting|keep in mind) that\s+",
    r"^this mean(?:s|t)(?: that)?\s+", r"^the (?:fix|root cause|cause|issue|problem)\s*:\s+",
)  # fmt: skip
"""What a title does not need: `The root cause is that …`."""

KNOWLEDGE_PROTOTYPES = (
    "The root cause is that the function changes global state that is shared by all threads of the process.",
    "It failed because the default timeout is zero, which means that it waits forever.",
    "The function returns zero both for new records and for old records without that field.",
    "The parser accepts any array, so malformed elements pass detection but fail when they are decoded.",
    "The linter reports undefined names when it runs on a single file; run it on the whole package.",
    "Always store the key before the first attempt, otherwise a retry charges the customer twice.",
    "Use a context manager instead of closing by hand, because an early return leaks the connection.",
    "We chose PostgreSQL rather than Redis since the marker and the effect must commit together.",
    "The convention in this codebase is that every test calls a helper to set up its own repository.",
    "Tests that change the working directory must not run in parallel.",
    "Walking only first parents skips commits of merged branches.",
    "This is a one-way migration: older versions lose the field after the file is saved again.",
    "The validation is only needed for names that become part of a file path.",
    "The environment variable overrides the setting in the file.",
    "The state machine already updates this field, so setting it by hand is redundant.",
    "When a field is renamed, files that were merged automatically may still use the old name.",
)
CHATTER_PROTOTYPES = (
    "Let me look at the file to understand how it works.",
    "Now I'll run the tests to make sure everything passes.",
    "All tests pass and there are no lint issues.",
    "Here is a summary of the changes I made.",
    "Do you want me to commit and push this?",
    "I created a draft pull request.",
    "Task 8 is complete, moving on to the next one.",
    "Added a new test file and updated the documentation.",
    "I need to read the existing code first.",
    "Good question, let me check.",
    "The changes are committed and pushed to the branch.",
    "Let me know which option you prefer.",
    "Removed the unused import.",
    "Let me verify that it compiles.",
    "Updated the three call sites.",
    "Please fix the failing tests.",
    "Show the complete output in addition to the summary.",
    "There are 52 new commits on main since the branch was created.",
    "Only one conflict is left in this file.",
    "The change is surgical and well scoped.",
    "Two lint issues to fix in my change.",
    "Keep both sides of the conflict.",
    "Option 1 is the simplest one.",
    "The comment on line 320 is accurate.",
)
