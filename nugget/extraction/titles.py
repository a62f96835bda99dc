"""Titles and sentences of units, worded so that they stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nugget.extraction import phrases
from nugget.extraction.phrases import ANSWERED, ENGLISH, LEAD_INS, RECOMMENDED, WIDE, WORDS, any_of, words_of

TITLE_CHARS = 80

_MARKS = re.compile(r"(`[^`\n]*`)|(?<![\w/*!.])\*\*(?=[^\s/*])|(?<=\S)\*\*(?![\w/*])|^[\s✅❌⚠️•🎯🚀🎉>-]+")
_LINK = re.compile(r"\[([^\[\]]{1,300})\]\([^)]{0,500}\)")
_LABEL = re.compile(
    r"^(?:\*\*)?(?P<label>[\w`](?:[^*\n:—–]|:(?=\d)){1,60}?)(?:\*\*)?\s*(?::|\s[-–—])(?:\*\*)?\s+(?=\S)"
)
_VALUE = any_of(r"[{[\d\"']")
"""The beginning of a value, as in `margin: 0`."""
_LABELS = any_of(rf"^(?:{'|'.join(WORDS['labels'])})$")
"""Labels before a colon that carry no meaning."""
_SAYS = any_of(
    r"^(?:(?:so |but )?the (?:[\w-]+ )?(?:issue|problem|cause|bug|reason|point|fix|solution|trick|idea|intent"
    r"|approach|insight|catch|culprit|(?:error|failure)(?= (?:is|was) that\b| (?:occurs|happens|arises) )) (?:here )?"
    r"(?:is|was|seems to be|(?:occurs|happens|arises)(?= because\b)|(?:should|would|could) be(?= to\b))"
    r"(?: that| because| to)?[:,]?\s+|(?:identified|found|spotted|located) (?:the|an?) (?:\w+ )?(?:problem|issue|bug"
    r"|cause)[:.]\s+|(?:it )?turns? out(?: that)?[,:]?\s+|(?:this means?|this meant|which means)(?: that)?\s+"
    r"|(?:please )?(?:note|worth noting|keep in mind|remember|be aware|it'?s (?:\w+ )?important)(?: that|:| to)?\s+"
    r"|(?:i|we) (?:also )?(?:found|see|noticed|realized|think|believe"
    r"|know|feel|guess|confirmed|agree)(?: out)?(?: that|,| why)?\s+(?=\S+ \S+)|we(?:'re| are) \w+ing(?: \w+){0,4} that"
    r" |(?:fix(?:ed|es)?|resolved?) (?:an? |the )?(?:\w+ )?(?:bug|issue|problem|case) (?:where|in which|that)\s+"
    r"|(?:correctly )?(?:identifies|determined|ensures|confirms) that |you're (?:absolutely )?right that "
    r"|you can (?:still |also |just )?(?=[a-z]+ )|(?:one|another|the (?:other|first|only"
    r"|main)) thing (?:here )?is(?: that)?\s+|你的\s*|[^,.]{3,60} (?:is|are|works?|looks?) (?:right|correct|fine|good"
    r"|great|true|nice)(?: here)?, but\s+|(?:my|the) (?:understanding|guess|recommendation"
    r"|suggestion) is(?: that)?\s+|(?:bitte )?merk(?: es)? dir(?: bitte)?[:,]?\s*(?:dass )?|remember[:,]\s*)"
)
_WHICH = any_of(
    r"^(?:which|what)(?: kind of)? (?P<what>.+?) (?:do you (?:want|prefer)|would you (?:like|prefer)|should (?:we|i"
    r"|be)(?: used)?)(?: to use)? ?(?P<rest>.*)$"
)
_EITHER = any_of(r",? or (?:would you (?:prefer|rather|like)|should (?:i|we)|do you prefer) (?:the )?")
_ASIDE = re.compile(
    r"(`[^`]*`)|(?<![=+*/:-])\s+\((?:[^()]|\([^()]*\))*\)|\s[—–]\s[^—–]+\s[—–](?=\s)"
    r"|,\s(?:which|who|whose|where)\s[^,;:]+,(?=\s)"
)
"""Asides in brackets, between dashes, or between commas; or inline code, which has none."""
_ARTICLE = any_of(r"^(?:the|an?) (?=\S)|(?<= )the (?=\S)")
_COMMIT_PREFIX = any_of(r"^(?:fix|feat|chore|docs?|style|tests?|refactor|perf|ci|build)(?:\([^)]*\))?!?:\s+")
_CODE_FIRST = re.compile(
    r"`|[a-z][\w .-]{0,20}[\u3040-\u9fff]|(?!(?:in|on|re|first|non|pre|per|up|off|self|multi|read|write|run|end"
    r"|third)-)[a-z]+(?:[A-Z_.(/-]|:\S|\d)|--"
)
_REASON = any_of(
    r",? (?:bec(?!ame|ome)[a-z]{2,5}|cos|cuz|cause(?= (?:the|it|we|they|i|you)\b)|since(?= \w+ \w)|so that"
    r"|as otherwise|or else|as (?=(?:that|it|they|we|there) (?:is|was|are|were|has|had|does|would|will|\w+s)\b))\b ?"
    r"|, (?=(?:otherwise|it|they|we got|we were|there)\b)|: (?=(?:it|they)\b)|; (?=(?:it|they|otherwise|we got)\b)"
    r"|,? (?:weil|denn|damit) |, (?=sonst\b)|, car |,? (?:parce qu|puisqu)(?:e |')|, (?=sinon\b)|,? (?:porque|ya que) "
    r"|，(?=因为|否则)"
)
_CLAUSES = (
    any_of(r"(?<=[\w)`\"'»])\.\s+|[。；;]\s*"),
    any_of(rf"\s[—–-]\s|(?P<colon>:)\s(?!{_VALUE.pattern})|：\s*"),
    _REASON,
    any_of(rf"\sand\s(?=(?:then |also |only )?(?:{'|'.join(WORDS['verbs_before'].split())})\s)"),  # a second verb
    any_of(
        r",\s(?:which|so|where|only(?! (?:if|when|for|in))|as|while|whereas|though|although|even|not|never|always"
        r"|by which|just|then|like|including|especially|such as|(?:\w+ly )?\w+ing)\b|\s(?:so|but|and)\s(?=(?:we|you"
        r"|they|it|it's|the|that|that's|there|there's|don't|leave|keep|use|no)\b)|(?P<joined>,)\s(?:and|or)\s"
        r"|\s(?P<so>so)\s(?!that\b|far\b|many\b|much\b)|\s(?:even though|although|due to|in addition to|as well as)\s"
        r"|(?P<comma>,)\s(?=(?:i|my|we|you|it|they|this|that|there|the|an?|each|every|don't|wir|sie|es|die|der|das|le"
        r"|la|les|on|il|elle|nous|chaque|el|los|las|ya|se|nos)\b)|,\s(?:sodass|aber|donc|mais|pues|pero|así que|lo que"
        r"|потому что|так как|поэтому|чтобы|но)\b|，(?=导致|所以|因此|由于|但|而|从而|不过)"
    ),
    any_of(r"\b(?:instead of|rather than) (?:the |an? )?[\w`.-]+(?P<named>\s)(?:that|which|where|when|before|after)\s"),
    any_of(
        r"(?:`[^`]+`|\w*[a-z0-9_](?-i:[A-Z_./=])\w[\w./=-]*(?:\(\))?|\d)(?: [a-z]+(?= that\b))?(?P<named>\s)"
        r"(?:that|by|for|via|with|using|from|on|at|in|across|under|until|before|after|while)\s"
    ),
)
"""The ends of whole parts of a sentence: after a full stop, a dash or colon, or before a conjunction."""
_PAUSES = any_of(
    r"[,;:(.，、；]|\s[—–-]\s|\s(?:that|which|who|where|because|cause|since|so|when|while|if|unless|even|weil|damit|sonst"
    r"|parce|puisque|que|porque)\s"
)
_LINKS = any_of(
    r"\s(?:and|but|or|before|after|until|also|then|instead of|rather than|und|aber|et|mais|pour|para|pero|y)\s"
)
"""Places at which a sentence can end early: the last pause, or else the first link."""
_BUT = any_of(r"(?:,|\s[—–-])\s(?:but|aber|mais|pero|но)\s(?!.*\b(?:its?|the(?:y|m|ir|se)|this)\b)|，(?:但是?|而是)")
"""The place where a concession ends and the point begins, unless that only refers to what was conceded."""
_NO_SENTENCE = re.compile(
    r"^[^\s\u3040-\u9fff]+$|^\S+: \S*(?:::|<)\S*$|^\W*https?://\S+$|[;{]\s*$|[\"',;)]\s*//|^(?:const|let|var|return"
    r"|import|export|def|func|class) [^.]*[=({]"
)
"""A bare link, or a line of code."""
_HANGING = any_of(
    rf"(?:^|[\s(])(?:{'|'.join(WORDS['hanging'].split())}|such as|(?:by|for|without|while) \w+ing)$|[(\[{{,、，]$"
    r"|[\u3040-\u9fff](?:が|けど|ので)$|\b(?:and|but|or) (?:when|if|where|while|once|because) [^,]*$"
)
"""Endings that no sentence has."""
_LEADING = any_of(
    r"^(?:since|because|as|while|although|given|to)\b[^,:]{5,120},\s+(?=(?!(?:it|they|this|that|you|we|i)\b)[^,].{20})"
)
"""An opening clause that can be dropped without changing the rest."""
_PASSING = any_of(
    r"(?<=\w) (?:(?<!from )now|already|currently|still)(?= \w)|^(?:now|currently),? |,? now(?=[.,;]|$)| here$"
    r"|(?<=\w) (?:that )?you(?:'re| are|'ve been) (?:hit|see|gett|hav|fac|experienc|describ)ing(?= \w)"
)
_CHAT = any_of(r"(?:yes|yeah|okay|ok|sure|great|perfect|done|wait|hmm|now|so|let me|let's|i(?=['’ ]))\b")
_LINES = re.compile(
    r"\s*\((?:~?lines?|line|see) ~?[\d–-]+(?:[^()]*)\)|(?<=\.go):\d+(?:-\d+)?|\s+at lines? \d+(?:-\d+)?"
    r"|\s+on line \d+(?:-\d+)?|:\d+(?:-\d+)?(?=`)"
)
_HANGS = any_of(
    r"(?:(?:(?:given|all(?: of)?) )?(?:these|those|this|that)|the (?:rest|others?|former|latter|above)|both|which"
    r"|there(?:'s| is| are)|it|its|they|also|just|why|how|would|could|might|only one|(?:if|when|once|since|as) (?:it"
    r"|they|this|that|these|those)\b|(?:\w+ly,?|(?:in|for|at|on|with|by|from|during|under) [^,]{2,40},) (?:it|it's"
    r"|this|that|they|these)\b|(?:o|y|ou|et|oder|und|aber|mais|pero) (?=\w)|(?:эт(?:от|а|о|и)|ce(?:tte|la|s)?"
    r"|est[aeo]s?|dies\w*)\b|(?:use|do|make|try|find|have|want|need|keep) (?:something|anything|stuff|this|that|it))\b"
    r"|(?:if|when|where|after|before|while|once|since|because|as|to|wenn|weil|nachdem|quand|lorsque|comme|cuando|como"
    r"|aunque|если|когда|instead of|rather than)\b[^,]*$|这|那|它|これ|それ|この|その|(?:如果|因为|由于|虽然|为了"
    r"|当)[^，]*$|(?:inside|in|with|for|like|by|on|at)\b(?:(?!\b(?:we|always|never|must|cannot|should|only)\b)[^,])*"
    r"(?:,\s*(?:when|if|where|while)\b[^,]*)?$"
)
_ASKS = re.compile(r"[?？](?:\s|$)|？")
_FLEETING = any_of(
    r"^(?:[→#]|(?:(?:shall|should) (?:i|we)|want me|do you (?:want|prefer)|or (?:would|should|could|can|do)|your)\b"
    r"|you can (?:see|quickly)\b|the (?:first|second|third|last|next|remaining|failing) (?:test|problem|issue|failure"
    r"|error|case)s?\b|(?:\w+ )?the (?:first|last|other|next) (?:one|two|three|few)\b"
    r"|i (?:want|need|would like)\b|not (?:possible|working|sure|quite|really)|finally|next|one thing"
    r"|теперь|[а-яё]{3,}(?:[дрлнвтс]им|[уа]ем|айте)\b|ahora|vamos a|maintenant|jetzt|让我|现在|目前|我(?!们)|(?:added"
    r"|removed|updated|changed|fixed|renamed|created|modified|reworded|refactored|implemented|moved|cleaned)\b)",
    r"\b(?:so far|as requested|was (?:meant|supposed) to)\b",
    r"\b(?:this (?:pr|pull request|merge|commit|branch|session)\b|should (?:now )?(?:be (?:\w+ )?green|pass)\b"
    r"|(?:option|task|step|phase|approach|point) #?(?:\d+|(?-i:[A-E]))\b|let(?:'?s| us)\b|why (?:are|is|do|does|can"
    r"|did)(?:n't)?\b|(?:too|as well)$|(?:this|these|those)(?= (?:is|was|are|were|will|would|should|can|could|has|had"
    r"|does|way|too|instead|in|on|at|for|to|from|with|and|or|but|reasons?|cases?|points?)\b|[.,;:!?]|$)"
    r"|that (?:instead|too|way)\b|(?:do|with|for|like|of|about|after|before|than|using) (?:this|that|it)(?=$|[.,;:])"
    r"|(?:is|are|looks?) (?:done|complete|fixed|green|ready|in place|up to date|running|resolved|implemented)$)",
    r", (?:can|could|would) you\b|^(?:\S+ ){2,3}(?:it|them)$|\.{3}\W?$",
)
"""Signs of a sentence about the moment, or one that continues another."""
_TELLS = any_of(r"^(?:no|only|rather|prefer|merk)\b|\binstead of\b|\b(?:never|always|don't|do not|must)\b")
_VERB = re.compile(
    rf"\b(?:{'|'.join(WORDS['verbs'].split())})\b|\b(?:{'|'.join(WORDS['verbs_before'].split())}) (?=\S)|"
    r"^[A-Z][a-z]{2,}ed (?=\S)|`(?:\(\))? [a-z]{3,}s (?=[a-z`])|\b[a-z]{3,}(?:s|ed) (?:the|a|an|its?|to|all|only"
    r"|no|not|in|on|by|from|with|for|when|if|into|as|at|every|each|`)|\b(?:[Tt]he"
    r"|[Oo]ur) (?:[\w-]+ ){0,2}[\w-]+s [a-z]{3,}(?<!s) (?:by|to|from|in|on|at|the|an?|as|with|for|only|not)\b"
    r"|\b(?:I|[Ww]e|[Yy]ou|[Tt]hey) (?!are\b)[a-z]+ |(?:`[^`]+`|\b[A-Z][A-Za-z]+|\w[._]\w+|[a-z][A-Z]\w+|\(\))"
    r" (?:also |only |never |always |silently )?[a-z]{2,}s\b|\b(?:only|never|always|silently) [a-z]{3,}s\b"
)
_NO_SUBJECT = re.compile(r"(?!Always|Across|Besides)[A-Z][a-z]+s (?:the|an?|any|both|each|every|its|using)\b")
_NAMED = any_of(r"`|(?-i:[a-z][A-Z])|\w_\w|\(\)|[a-z][./][a-z]")
_CODE = re.compile(r"`[^`]*`|\([^)]*\)")
IMPERATIVES = frozenset(WORDS["imperatives"].split())
"""Verbs that begin a request or a rule."""


def clean(text: str) -> str:
    """Return a sentence as prose on one line, without markup."""
    unescaped = re.sub(r"(?<!`)\\`", "`", text).replace('\\"', '"')
    return " ".join(_MARKS.sub(r"\1", _LINK.sub(r"\1", unescaped)).split())


def point_of(text: str) -> str:
    """Return a sentence without a leading label, `Found it!` or `The root cause is that`."""
    if answered := ANSWERED.match(text.strip()):
        return _answer(answered.group("question"), answered.group("answer"))
    plain = text.strip()
    if not text.startswith("**"):
        plain = _LINK.sub(r"\1", plain.lstrip("✅❌⚠️•-* "))
    marked, said = _LABEL.match(plain), clean(text)
    rest = clean(plain[marked.end() :]) if marked else ""
    is_named_again = marked and words_of(marked["label"]) <= words_of(rest) and not _VALUE.match(rest)
    if marked and (_LABELS.match(clean(marked["label"])) or is_named_again):
        said = rest
    before, said = "", _COMMIT_PREFIX.sub("", _LINES.sub("", said))
    while said != before:
        before = said
        for pattern in (LEAD_INS, _SAYS):
            shorter = pattern.sub("", said, count=1)
            if len(shorter) + 3 * len(WIDE.findall(shorter)) >= 6:
                said = shorter
    return capitalised(_PASSING.sub("", said))


def title_of(text: str, context: str = "") -> str:
    """Return a title of at most TITLE_CHARS characters for a text in its context; empty if no whole part fits."""
    if _ASKS.search(text):
        return ""
    short, whole = "", _ends(_LINES.sub("", text))
    uncut = (whole, plain := _ends(_ASIDE.sub(r"\1", whole)), _terse(plain))
    for part in _shorter(whole, set()):
        said = _ends(part)
        if len(said) + len(WIDE.findall(said)) < 12 or len(said) > TITLE_CHARS or _CHAT.match(said):
            continue
        is_cut_well = part in uncut or (not part.count("`") % 2 and _is_whole(said, context or text))
        if is_cut_well and _is_closed(said) and stands_alone(said, context):
            if is_telling(said):
                return capitalised(said)
            short = short or capitalised(said)
    return short


def is_telling(title: str) -> bool:
    """Return whether a title has a subject and enough content words; of 16 with fewer, a reader found none good."""
    words = sum(not WIDE.search(word) for word in words_of(title)) + len(WIDE.findall(title)) / 2
    return words >= 3 and not _NO_SUBJECT.match(title)


def opening_of(text: str, context: str) -> str:
    """Return an opening of a sentence that fits in a title and stands alone, or nothing."""
    pauses, links = ([*breaks.finditer(text, 24, TITLE_CHARS + 2)] for breaks in (_PAUSES, _LINKS))
    for end in (*reversed(pauses), *links):
        said = _ends(text[: end.start()])
        if len(said) <= TITLE_CHARS and _is_closed(said) and stands_alone(said, context):
            return capitalised(said)
    return ""


def _shorter(text: str, tried: set[str]) -> Iterator[str]:
    """Yield a sentence, then shorter forms without asides, label, trailing clauses and phrases, unless it was tried."""
    if text in tried:  # a label and a concession often end at the same point
        return
    tried.add(text)
    plain = _ends(_ASIDE.sub(r"\1", text))
    yield from (text, plain)
    label, mark, rest, *_ = *re.split(rf"(:\s(?!{_VALUE.pattern})|：|\s[—–-]\s)", plain, maxsplit=1), "", ""
    is_told = mark[:1] not in ":：" or (is_imperative(label) and not is_imperative(rest))  # a rule, and its reason
    is_announced = not is_told or _is_label(label) or phrases.FIRST_PERSON.search(label)
    if rest and is_announced and _is_closed(label) and is_statement(rest, text):
        yield from _shorter(_SAYS.sub("", LEAD_INS.sub("", rest)), tried)
    told, point, *_ = *_BUT.split(plain, maxsplit=1), ""
    if len(point) + len(WIDE.findall(point)) > 30 and _is_closed(told) and not is_imperative(told):
        yield from _shorter(point, tried)
    yield _terse(plain)
    if (main := _LEADING.sub("", plain)) != plain:
        yield from _shorter(main, tried)
    for breaks in _CLAUSES:
        for end in reversed([*breaks.finditer(plain, 0, 2 * TITLE_CHARS)]):
            head = _ends(plain[: end.start(end.lastgroup or 0)])
            if _is_followed(end.lastgroup, head, plain[end.end() :], plain):
                yield head


def _terse(text: str) -> str:
    """Return a sentence that is a little too long without its articles, as in a headline."""
    while len(text) > TITLE_CHARS and (found := _ARTICLE.search(text)):
        text = text[: found.start()] + text[found.end() :]
    return text


def _is_followed(kind: str | None, head: str, rest: str, whole: str) -> bool:
    """Return whether a sentence may end at a break: another statement follows, and it does not only announce that."""
    if kind == "colon":
        return _NAMED.search(head) is not None or not is_statement(rest, whole)
    if kind == "named":  # a rule or a denial may hold only with what follows
        return " but " not in rest and not any(phrases.FEATURES[one].search(head.lower()) for one in ("must", "not"))
    rest = rest.partition(" ")[2] if kind == "joined" else rest  # a verb alone goes on with the subject before
    return kind is None or is_statement(rest, whole)


def _is_label(text: str) -> bool:
    """Return whether the text before a colon or dash only names the subject of the rest."""
    is_short = text.count(" ") < 3 and not is_imperative(text)
    names = is_short or not stands_alone(text, "the") or not is_statement(text, "the")
    return names and len(text) <= 60 and "," not in text


def _ends(text: str) -> str:
    return text.lstrip(" ,;:!—–-。：，").rstrip(" .,;:!—–-。：，").removesuffix(", OR")


def _is_whole(said: str, context: str) -> bool:
    """Return whether a shortened sentence is still complete, with a verb that is not its last word."""
    ends = bool(WIDE.search(said)) or said[-1:] in "`)"
    return is_statement(said if ends else said.rpartition(" ")[0], context)


def _is_closed(said: str) -> bool:
    """Return whether all brackets and quotation marks are closed, and the ending is one of a sentence."""
    pairs = all(said.count(one) == said.count(other) for one, other in ("()", "[]", "{}", "“”", "「」", "（）"))
    return pairs and not (said.count("`") % 2 or said.count('"') % 2 or _HANGING.search(said))


def split_reason(text: str) -> tuple[str, str]:
    """Return a claim and the reason that its sentence gives, which may be empty."""
    found = _REASON.search(text)
    if not found or found.start() < 12 or len(text) - found.end() < 8 or not _is_closed(text[: found.start()]):
        return text, ""
    return text[: found.start()].rstrip(" ,;-–—"), text[found.end() :].strip()


def stands_alone(title: str, context: str) -> bool:
    """Return whether a title is complete and needs no sentence before it."""
    if _HANGS.match(title) or _FLEETING.search(title):
        return False
    _, colon, rest = _CODE.sub("``", title).partition(": ")
    return not colon or is_statement(rest, context)


def is_statement(text: str, context: str = "") -> bool:
    """Return whether an English text has a verb or says what to do; other languages always pass.

    `context` is the whole text around it: a phrase of a few names does not show its language.
    """
    if not ENGLISH.search(context or text):
        return True
    return is_imperative(text) or _TELLS.search(text) is not None or _VERB.search(text) is not None


def is_imperative(text: str) -> bool:
    """Return whether a text begins with a verb that asks for something or lays it down."""
    return text.lower().lstrip("`'\" ").split(" ", 1)[0].rstrip(".,:;!") in IMPERATIVES


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


def sentence(text: str) -> str:
    """Return a sentence with its full stop, or nothing for a bare link, a line of code or a fragment."""
    one = balanced(re.sub(r"\s*\(?``\)?", "", text)).rstrip(" :;,")
    is_torn = "`" not in text and any(text.count(mark[0]) != text.count(mark[1]) for mark in ("[]", "{}"))
    if not one or is_torn or _NO_SENTENCE.search(one):
        return ""
    return capitalised(one) + ("" if one[-1] in ".!?。！？" else "。" if WIDE.match(one[-1]) else ".")


def balanced(text: str) -> str:
    """Return a text without a backtick, bracket or quotation mark that is not closed."""
    if text.count("`") % 2:
        text = text[: text.rfind("`")].rstrip()
    if text.count("(") > text.count(")"):
        text = text[: text.rfind("(")].rstrip()
    if text.count('"') % 2:
        text = text.replace('"', "")
    return text.rstrip(" ,;:—–-")
