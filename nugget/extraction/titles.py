"""Titles and sentences of units, worded so that they stand alone."""

from __future__ import annotations

import re

from nugget.extraction.phrases import ANSWERED, ENGLISH, RECOMMENDED, WIDE, any_of

TITLE_CHARS = 80

_MARKS = re.compile(r"(`[^`\n]*`)|(?<![\w/*!.])\*\*(?=[^\s/*])|(?<=\S)\*\*(?![\w/*])|^[\s✅❌⚠️•🎯🚀🎉>-]+")
_LINK = re.compile(r"\[([^\[\]]{1,300})\]\([^)]{0,500}\)")
_LABEL = re.compile(
    r"^(?:\*\*)?(?P<label>[\w`](?:[^*\n:—–]|:(?=\d)){1,60}?)(?:\*\*)?\s*(?::|\s[-–—])(?:\*\*)?\s+(?=\S)"
)
_BARE_LABEL = any_of(
    r"^(?:(?:the )?(?:root )?cause|(?:the )?(?:fix|issue|problem|bug|solution|result|effect|symptom|reason|conclusion"
    r"|summary)|note|important|major|minor|nit|before|after|old|new|now|why|what|how|update|verdict|agreed?|disagree"
    r"|what (?:changed|i changed|the issue was)|key (?:insight|difference|point)|correct(?: by design)?|good catch"
    r"|not a real issue|my assessment|tl;?dr|example|fixed in [0-9a-f]{7,40}"
    r"|(?:critical )?(?:thread|conflict|problem|option|step|phase|task|issue|commit|line|file|approach) ?[#`\w.\d/]*"
    r"(?: \([^)]*\))?|[\w/.`-]+\.[a-z]{1,4}`?(?::[\d-]+)?`?|behaviou?ral change(?: documentation)?)$"
)
_LEAD_IN = any_of(
    r"^(?:(?:found (?:it|the (?:issue|problem|bug|root cause))|got it|i see(?: the (?:issue|problem"
    r"|full picture)(?: now)?)?"
    r"|(?:good|great|excellent) (?:question|catch|point|idea|find|feedback|observations?)s?"
    r"|you're (?:absolutely |completely )?right"
    r"|(?:actually |oh |ah |well |hmm? |yeah |ok )?(?:yes|yeah|yep|no|nope|wait)|right|ah+|oh|ok(?:ay)?(?: so)?|so"
    r"|actually|nein|doch|halt|non|attends|いや|いいえ|違う|違います|不|不对|不是"
    r"|hmm?|now|well|indeed|interesting(?:ly)?|(?:be )?careful|heads up|fyi|btw|by the way|(?:friendly )?reminder"
    r"|hey|important(?:ly)?|from now on|going forward|in (?:the )?future|bitte|ab (?:jetzt|sofort)|in zukunft|künftig"
    r"|désormais|à partir de maintenant|a partir de ahora|de ahora en adelante"
    r"|exactly|correct"
    r"|perfect|great|good|sure|agreed?|done|fixed|mostly|not yet|sorry|whoops"
    r"|thus|therefore|then|next|also|and|but|however|similarly"
    r"|in short|note|basically"
    r"|as a result|that said|of course|additional feedback|looking (?:at|more) [^,—–-]{3,60}|if anything"
    r"|in this case|for example)"
    r"(?:\s*[,.!:;、，。]+\s*|\s+[—–-]+\s+|\s*$)|(?:so|but|and|now|then|also|yes|yeah|ok|sure|btw|by the way|fyi"
    r"|actually|from now on|going forward) )+"
)
_SAYS = any_of(
    r"^(?:(?:so |but )?the (?:[\w-]+ )?(?:issue|problem|cause|bug|reason|point|fix|solution|trick|idea|intent|approach"
    r"|insight) (?:here )?(?:is|was|seems to be|(?:should|would|could) be)(?: that| because| to)?[:,]?\s+"
    r"|(?:it )?turns? out(?: that)?[,:]?\s+|this mean(?:s|t)(?: that)?\s+|which means(?: that)?\s+"
    r"|(?:please )?(?:note|worth noting|keep in mind|remember|be aware)(?: that|:)?\s+"
    r"|(?:i|we) (?:also )?(?:found|see|noticed|realized|think|believe|know|feel|guess|confirmed|agree)(?: out)?"
    r"(?: that|,| why)?\s+(?=\S+ \S+)|we(?:'re| are) \w+ing(?: out| more and more| now)* that\s+"
    r"|(?:fix(?:ed|es)?|resolved?) (?:an? |the )?(?:\w+ )?(?:bug|issue|problem|case) (?:where|in which|that)\s+"
    r"|(?:root cause fix [-–—:] )?(?:correctly )?(?:identifies|determined|ensures|confirms) that\s+"
    r"|you're (?:absolutely )?right that |you can (?:still |also |just )?(?=[a-z]+ )"
    r"|there(?:'s| is| was) an? (?:[\w`]+ ){1,3}[-–—:] (?=\w)"
    r"|(?:my|the) (?:understanding|guess|recommendation|suggestion) is(?: that)?\s+"
    r"|(?:bitte )?merk(?: es)? dir(?: bitte)?[:,]?\s*(?:dass )?|remember[:,]\s*)"
)
_OPENER = any_of(
    r"^(?:(?:yeah|ye[sp]|ok(?:ay)?|nope?|well|oh|ah|hm+|so|and|but|also|really|because|cos)[\s,.…]+)+"
    r"(?=(?:let'?s|we|i|i'd|you|just|use|maybe|please|don't)\b)"
)
"""What opens a turn before it says what is wanted."""
_PLEASE = any_of(r",? (?:please|pls|bitte|for (?:this|that|it))(?=[ ,.;!?]|$)")
_WANTS = (
    r"^(?:looks like |i (?:kind of )?(?:think|feel|guess)(?: like)? |maybe |perhaps )*(?:we|i)"
    r"(?: might| do| just| really| only| also)* (?P<verb>want|need)"
)
_WISHES = (
    (any_of(r"^(?:i|we) want (?P<what>.+?) (?P<done>\w{3,}ed)\.?$"), r"\g<what> must be \g<done>"),
    (any_of(r"^(?P<what>[^,?]{15,}), why aren't (?:we|you) using (?P<how>.+)$"), r"\g<what>: use \g<how>"),
    (any_of(r"^(?P<what>[^,?]{15,}), why don't (?:we|you) (?:just )?(?P<how>.+)$"), r"\g<what>: \g<how>"),
    (any_of(r"^[^,.]{3,40}, (?P<what>the \w+ (?:is|are) (?:right|correct|fine|wrong|intended))\.?$"), r"\g<what>"),
    (any_of(r"^(?:we(?:'re| are) (?:now )?going with |let'?s (?:do|use|go with) (?=`))"), "Use "),
    (any_of(r"^(?:i|we)(?:'d| would| will)?(?: still| strongly)? (?:recommend|suggest|choose|go with"
            r"|propose)(?: to)?(?: use| using)? "
            r"(?=(?!against\b)[`\w])"), "Use "),
    (any_of(r"^(?:i|we)(?: really| explicitly| definitely| just| also)* (?:do not|don't) need "), "We don't need "),
    (any_of(r"^(?:i|we)(?: really| explicitly| definitely| just| also)* (?:do not|don't) (?:want"
    r"|like)(?: to have| to)? "), "No "),
    (any_of(r"^(?:i|we)(?: really| explicitly| definitely| also| do)* (?:would like|want|need"
    r"|'d like)(?: to have)? (?:the |a )?(?P<what>.+? (?:to be|called) )"), r"\g<what>"),
    (any_of(r"^(?:i|we|i'd|we'd)(?: really| also| do)* (?:would like|want|need|'d like)(?: it)? to "), ""),
    (any_of(r"^(?:i'd|i would|we'd|we would|i|we)(?: much)? (?:rather|prefer)(?: to)? (?:implement (?:it"
    r"|this) as )?"), "Rather "),
    (any_of(r"^(?:can|could|would|will) (?:you|we)(?: please| just| also"
    r"| now)* (?:make sure (?:that )?)?"), ""),
    (any_of(r"^(?:want me to|would you like me to|should i|shall i|do you want me to|i can|i could"
    r"|i'd suggest|i'd recommend|i recommend|i suggest"
                r"|i'll|i will|let me(?! know)|let'?s|let us|we'll|we will|we (?:can|could)|you (?:can|could))(?: also"
                r"| just| now| then| instead)* (?!against\b)"), ""),
    (any_of(r"^(?:i think |maybe |perhaps |probably )*(?:we|you|i|it)(?: probably| just| only| also)? (?:should"
    r"|must|have to|need to)(?: just)? (?!not )"), ""),
    (any_of(rf"{_WANTS} to (?:use|have) "), "Use "),
    (any_of(rf"{_WANTS} (?=\S*\w[./:`]\w)"), "Use "),
    (any_of(rf"{_WANTS} (?!to\b|you\b)"), r"We \g<verb> "),
    (any_of(r"^(?:please|pls|just|how about(?: just)?|what about|why don't we|why not)[, ]+"), ""),
)  # fmt: skip
_WHICH = any_of(
    r"^(?:which|what)(?: kind of)? (?P<what>.+?) (?:do you (?:want|prefer)|would you (?:like|prefer)"
    r"|should (?:we|i|be)(?: used)?)(?: to use)? ?(?P<rest>.*)$"
)
_EITHER = any_of(r",? or (?:would you (?:prefer|rather|like)|should (?:i|we)|do you prefer) (?:the )?")
_ASIDE = re.compile(r"\s+\((?:[^()]|\([^()]*\))*\)")
_COMMIT_PREFIX = any_of(r"^(?:fix|feat|chore|docs?|style|tests?|refactor|perf|ci|build)(?:\([^)]*\))?!?:\s+")
_CODE_FIRST = re.compile(
    r"`|(?!(?:in|on|re|non|pre|per|up|off|self|multi|read|write|run|end|third)-)[a-z]+(?:[A-Z_.(/-]|:\S|\d)|--"
)
_ENDS = (
    re.compile(r"(?:\.|[。；;])\s+|[。；]"),
    re.compile(r"\s[—–-]\s|:\s|;\s"),
    re.compile(
        r",\s(?:which|so|because|but|since|and|even|where|then|not|rather|as|while|making|meaning|causing"
        r"|leading)\b|\s(?:because|so that|since|even though|although|rather than|instead of)\s"
    ),
    re.compile(r",\s(?!(?:if|when|unless|until|except|only|wenn|falls|si|cuando)\b)|、|，"),
)
_SPARE = any_of(
    r"(?:^the|(?<=\w )(?:the|an?|just|also|actually|really|simply|basically|explicitly|correctly|pre-existing|current"
    r"|entire|itself|own|any))\s(?=[\w`])"
)
"""Words that a title can do without when it is too long."""
_LAST_ENDS = re.compile(r"\s(?:for|by|via|with|using|to|from|which|that|and|or|in|on|at)\s")
"""Where a sentence may be cut in the end; before `if` or `when` it would no longer be true."""
_PASSIVE = any_of(r"\b(?:is|are|was|were) (?:\w+ed|shown|set|made|built|run)$")
"""How no sentence may end that was cut before `by`, `in` or `to`: that says the thing."""
_DANGLING = any_of(
    r"\s(?:by|in|to|for|of|with) both (?!.* and ).*$|[\s,]+(?:because|since|that|so|and|or|with|as|by|to|in|is|are|was"
    r"|be|been|the|a|an|of|for|from|on|at|when|if|not|but|which(?: \w+s)?|it|via|than|rather|e\.g\.?|i\.e\.|even|though"
    r"|although|never|only|just|also|any|will|would|should|can|could|its|this|these|has|have|does|do|in other words"
    r"|such as|based|especially|(?:by|for|without|of|while) \w+ing)$"
)
_MAY_END, _END_CHARS = (" it", " that", " does", " is", " are"), 12
"""How a sentence may end that was not cut, and how much of its end shows that."""
_REPORTED = any_of(
    r"^(?:Updated|Changed|Added|Fixed|Modified|Created|Made) (?:the )?(?P<name>`[^`]+`)[^—–:`-]*(?:`[^`]+`)?"
    r"(?: function)?\s*[—–:-]\s+(?:now )?(?P<does>(?:\w+ly )?[a-z]+s\b.*)$"
)
_EDITS = any_of(r"^(?:update|change|modify|edit|adjust) (?:`[^` (]*[./][^` (]*`(?:,? and |, )?)+ to (?=[a-z]+ )")
_CLAUSE_FIRST = re.compile(
    r"^(?P<side>(?:If|When|Since|Because|As|While|For|After|Before|With|In|Once|To|By|Without"
    r"|Where)\b[^,]{5,120}),\s+(?:then )?(?P<main>[^,].{20,})$"
)
_PASSING = any_of(
    r"(?<=\w) (?:(?<!from )now|already|currently|still)(?= \w)|^(?:now|currently),? |,? now(?=[.,;]|$)| here$"
)
_CHAT = any_of(r"(?:yes|yeah|okay|ok|sure|great|perfect|done|wait|hmm|now|so|let me|let's|i(?=['’ ]))\b")
_LINES = re.compile(
    r"\s*\((?:~?lines?|line|see) ~?[\d–-]+(?:[^()]*)\)|(?<=\.go):\d+(?:-\d+)?|\s+at lines? \d+(?:-\d+)?"
    r"|\s+on line \d+(?:-\d+)?|:\d+(?:-\d+)?(?=`)"
)


_REASON = any_of(
    r",? (?:because|since(?= \w+ \w)|so that|as otherwise|or else"
    r"|as (?=(?:that|it|they|we|there) (?:is|was|are|were|has|had|does|would|will|\w+s)\b))\b ?"
    r"|, (?=(?:otherwise|it|they|we got|we were|there)\b)|: (?=(?:it|they)\b)|; (?=(?:it|they|otherwise|we got)\b)"
    r"|,? (?:weil|denn|damit) |, (?=sonst\b)|, (?:car|parce que|puisque) |, (?=sinon\b)"
    r"|,? (?:porque|ya que) |，(?=因为|否则)"
)
_HANGS = any_of(
    r"(?:(?:(?:given|all(?: of)?) )?(?:these|those|this|that)|the (?:rest|others?|former|latter|above)|both|which"
    r"|there(?:'s| is| are)|it|its|they|also|just|only one"
    r"|(?:use|do|make|try|find|have|want|need) (?:something|anything|stuff|this|that|it))\b"
    r"|(?:if|when|after|before|while|once|since|because|as)\b[^,]*$"
    r"|(?:inside|in|with|for|like|by|on|at)\b(?:(?!\b(?:always|never|must|cannot|should|only)\b)[^,])*"
    r"(?:,\s*(?:when|if|where|while)\b[^,]*)?$"
)
_FLEETING = any_of(
    r"^→|^(?:(?:shall|should) (?:i|we)|want me|do you (?:want|prefer)|or (?:would|should|could|can|do)|your)\b"
    r"|\bthis (?:pr|pull request|merge|commit|branch|session)\b|, (?:can|could|would) you\b|^you can (?:see|quickly)\b"
    r"|\bshould (?:now )?(?:be (?:\w+ )?green|pass)\b|\b(?:option|task|step|phase|approach|point) #?\d+\b"
    r"|^the (?:first|second|third|last|next|remaining|failing) (?:test|problem|issue|failure|error|case)s?\b"
    r"|\bwhy (?:are|is|do|does|can|did)(?:n't)?\b|\b(?:too|as well)$"
    r"|\b(?:so far|as requested|was (?:meant|supposed) to)\b"
    r"|\b(?:this|these|those)(?= (?:is|was|are|were|will|would|should|can|could|has|had|does|way|too|instead|in|on|at"
    r"|for|to|from|with|and|or|but|reasons?|cases?|points?)\b|[.,;:!?]|$)|\bthat (?:instead|too|way)\b"
    r"|\b(?:do|with|for|like|of|about|after|before|than|using) (?:this|that|it)(?=$|[.,;:])"
    r"|\b(?:is|are|looks?) (?:done|complete|green|ready|in place|up to date|running|resolved|implemented)$"
)
"""What is true of the moment, or goes on from something else."""
_TELLS = any_of(r"^(?:no|only|rather|prefer|merk)\b|\b(?:never|always|don't|do not|must)\b")
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|do|did|can|could|must|will|would|should|may|might|needs?|gets?|makes?|means?"
    r"|isn't|aren't|doesn't|don't|didn't|won't|can't|cannot|wasn't|hasn't|seems?|returns?|contains?|holds?|creates?|requires?"
    r"|expects?|ignores?|accepts?|rejects?|allows?|counts?|breaks?|causes?|supports?|keeps?|timed|failed|became|took)\b"
    r"|^[A-Z][a-z]{2,}ed (?=\S)|`(?:\(\))? [a-z]{3,}s (?=[a-z`])"
    r"|\b[a-z]{3,}(?:s|ed) (?:the|a|an|its?|to|all|only|no|not|in|on|by|from|with|for|when|if|into|as|at|every|each|`)"
    r"|\b(?:[Ww]e|[Yy]ou|[Tt]hey) (?!are\b)[a-z]+ |(?:`[^`]+`|\b[A-Z][A-Za-z]+|\(\)) (?:also |only |never "
    r"|always |silently )?[a-z]{2,}s\b"
)
_CODE = re.compile(r"`[^`]*`|\([^)]*\)")
_IN_QUOTES = re.compile(r'"[^"]*"')
IMPERATIVES = frozenset(
    """
    adapt add adjust allow apply avoid build bump change clean combine configure convert copy create cut debug delete
    deploy design disable document double drop enable ensure exclude extend extract fall fetch find fix follow format
    generate give handle have hide implement improve include increase inline install introduce investigate keep let
    limit log lower make match merge migrate move open optimise optimize pass parse port prepare prevent print put raise
    rebase reduce refactor reject release remove rename repair replace report reset resolve restore restructure retry
    return reuse revert rewrite run send separate set show sign simplify skip solve sort speed split start stop store
    support switch take teach test tidy treat trim turn undo unify update upgrade use validate verify wire wrap write
    """.split()
)
"""Verbs with which a request or a rule begins."""


def clean(text: str) -> str:
    """Return a sentence as prose on one line, without markup."""
    unescaped = text.replace("\\`", "`").replace('\\"', '"')
    return " ".join(_MARKS.sub(r"\1", _LINK.sub(r"\1", unescaped)).split())


def point_of(text: str) -> str:
    """Return a sentence without label, `Found it!` and `The root cause is that` before it."""
    if answered := ANSWERED.match(text.strip()):
        return _answer(answered.group("question"), answered.group("answer"))
    plain = text.strip()
    if not text.startswith("**"):
        plain = _LINK.sub(r"\1", plain.lstrip("✅❌⚠️•-* "))
    marked, said = _LABEL.match(plain), clean(text)
    if marked and _BARE_LABEL.match(clean(marked["label"])):
        said = clean(plain[marked.end() :])
    before, said = "", _COMMIT_PREFIX.sub("", _LINES.sub("", said))
    while said != before:
        before = said
        for pattern in (_LEAD_IN, _SAYS):
            shorter = pattern.sub("", said, count=1)
            if len(shorter) + 3 * len(WIDE.findall(shorter)) >= 6:
                said = shorter
    return capitalised(_PASSING.sub("", said))


def wish(text: str) -> str:
    """Return the wish of a person, or an offer that they accepted, without `I want` or `Should I`."""
    said = capitalised(_OPENER.sub("", point_of(text)))
    worded = (pattern.sub(replacement, said, count=1) for pattern, replacement in _WISHES)
    said = next((shorter for shorter in worded if shorter != said and len(shorter) >= 12), said)
    if said.startswith("Rather ") and " than " in said:
        said = said.removeprefix("Rather ").replace(" than ", " rather than ", 1)
        said = said if is_statement(said, "the") else f"Use {said[:1].lower()}{said[1:]}"
    return capitalised(_PLEASE.sub("", said).rstrip("?").strip())


def title_of(text: str) -> str:
    """Return a title of at most TITLE_CHARS characters for a text, empty if none fits."""
    said = _main_first(_of_label(_LINES.sub("", text).strip()))
    if len(said) > TITLE_CHARS:
        said = _ASIDE.sub("", said)
    if len(said.rstrip(" .:;,")) > TITLE_CHARS:
        tight = _SPARE.sub("", said) if said.startswith("`") else _SPARE.sub("", said).replace("`", "")
        said = tight if len(tight.rstrip(" .:;,")) <= TITLE_CHARS else said
    said = balanced(_cut(said, TITLE_CHARS).strip(" .,;:!—–-。"))
    is_cut = not text.rstrip(" .,;:!—–-。").endswith(said[-_END_CHARS:])
    before = ""
    while before != said and (is_cut or not said.endswith(_MAY_END)):
        before, said = said, _DANGLING.sub("", said)
    said = capitalised(said)
    if len(said) > TITLE_CHARS or len(said) + len(WIDE.findall(said)) < 12 or _CHAT.match(said):
        return ""
    return said


def _cut(said: str, most: int) -> str:
    """Return a sentence cut at the strongest border that leaves at most `most` characters, if there is one."""
    for ends in (*_ENDS, _LAST_ENDS):
        if len(said.rstrip(" .:;,")) <= most:
            break
        cuts = [
            found.start()
            for found in ends.finditer(said)
            if 0.35 * most <= found.start() <= most
            and said[: found.start()].count("`") % 2 == 0
            and said[: found.start()].count("(") == said[: found.start()].count(")")
            and not (ends is _LAST_ENDS and _PASSIVE.search(said[: found.start()]))
        ]
        if cuts:
            said = said[: cuts[-1]]
    return said


def _of_label(text: str) -> str:
    """Return a long sentence without its label or report: `Updated X - now does Y` as `X does Y`."""
    if len(text.rstrip(" .")) <= TITLE_CHARS:
        return text
    if found := _REPORTED.match(text):
        return f"{found['name']} {found['does']}"
    if found := _EDITS.match(text):
        return capitalised(text[found.end() :])
    label, _, rest = text.partition(": ")
    rest = _main_first(_SAYS.sub("", rest))
    is_label = 0 < len(label) <= 60 and "`" not in label and "(" not in label and "`" in rest[:60] and len(rest) >= 40
    return capitalised(rest) if is_label and is_statement(rest) and not _HANGS.match(rest) else text


def _main_first(text: str) -> str:
    """Return a sentence that begins with `If` or `When` with its main clause in front, where it would be cut."""
    found = _CLAUSE_FIRST.match(text)
    if not found or len(text.rstrip(" .")) <= TITLE_CHARS:
        return text
    main, side = found.group("main").rstrip(" .;"), found.group("side")
    if ":" in side or re.match(r"(?:it|they|this|that|you|we|i)\b", main, re.IGNORECASE):
        return text
    swapped = f"{main} {side[:1].lower()}{side[1:]}"
    if len(swapped) <= TITLE_CHARS:
        return swapped
    room = TITLE_CHARS - len(side) - 2
    head = _cut(_ASIDE.sub("", main), room)
    if len(head) <= room and is_statement(head):
        return f"{side}, {head}"
    return text if side.lower().startswith(("if ", "without ")) else main  # without its condition it may be false


def split_reason(text: str) -> tuple[str, str]:
    """Return a claim and the reason given for it in the same sentence, which may be empty."""
    found = _REASON.search(text)
    if found is None or found.start() < 12 or len(text) - found.end() < 8:
        return text, ""
    if text[: found.start()].count("`") % 2 or text[: found.start()].count("(") > text[: found.start()].count(")"):
        return text, ""
    return text[: found.start()].rstrip(" ,;-–—"), text[found.end() :].strip()


def title_part(said: str, *, is_told: bool) -> str:
    """Return the part of a claim that its title says: all of it if it fits, else the claim without its reason.

    A claim of a few words only names what goes wrong, and the reason is what to know.
    """
    head, reason = split_reason(said)
    if len(said.rstrip(" .")) <= TITLE_CHARS or not reason:
        return said
    if len(head.split()) > 4:
        return head
    return said if is_told else reason


def stands_alone(title: str, context: str) -> bool:
    """Return whether a title needs no sentence before it and says a whole thing."""
    if _HANGS.match(title) or _FLEETING.search(title):
        return False
    label, colon, rest = _CODE.sub("``", title).partition(": ")
    return not colon or is_statement(rest, context) or "?" in label


def is_statement(text: str, context: str = "") -> bool:
    """Return whether an English text has a verb or tells what to do; other languages are taken as they are.

    `context` is the whole text that it stands in: a phrase of a few names does not tell its language.
    """
    if not ENGLISH.search(context or text):
        return True
    text = _IN_QUOTES.sub('""', text)
    first = text.lower().lstrip("`'\" ").split(" ", 1)[0].rstrip(".,:;!")
    return first in IMPERATIVES or _TELLS.search(text) is not None or _VERB.search(text) is not None


def capitalised(text: str) -> str:
    """Return a text with a capital first letter, unless it begins with code."""
    return text if _CODE_FIRST.match(text) else text[:1].upper() + text[1:]


def _answer(question: str, answer: str) -> str:
    """Return a question and its answer as a statement."""
    answer = RECOMMENDED.sub("", answer)
    asked = question.strip().rstrip("?")
    either, _, other = _EITHER.sub("\n", asked, count=1).partition("\n")
    if other and answer in either:
        return f"{answer} instead of {other}"
    if found := _WHICH.match(asked):
        return capitalised(f"{found.group('what')} {found.group('rest')}".strip() + f": {answer}")
    return f"{answer}: {asked}"


def balanced(text: str) -> str:
    """Return a text without a backtick, bracket or quotation mark that was opened and cut off."""
    if text.count("`") % 2:
        text = text[: text.rfind("`")].rstrip()
    if text.count("(") > text.count(")"):
        text = text[: text.rfind("(")].rstrip()
    if text.count('"') % 2:
        text = text.replace('"', "")
    return text.rstrip(" ,;:—–-")
