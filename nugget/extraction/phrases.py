"""Words that tell knowledge from chatter, in six languages: data for the judge, which learned what each is worth.

Every entry is one feature; a pattern counts once a sentence. Languages: English, German, French, Spanish, Japanese,
Chinese. Patterns without word boundaries serve scripts that do not put spaces between words.
"""

from __future__ import annotations

import re


def any_of(*parts: str) -> re.Pattern[str]:
    """Return a pattern that finds any of these, in small or capital letters."""
    return re.compile("|".join(parts), re.IGNORECASE)


WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""A character of a script without spaces between words, or of Korean."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
ENGLISH = any_of(r"\b(?:the|and|is|are|was|to|of|for|with|that|this|it|we|you|not)\b")
LEAD_INS = any_of(
    r"^[\u4e00-\u9fff]{0,4}(?:原因|总结|结论|问题|注意|まとめ)[\u4e00-\u9fff]{0,4}[：:]\s*",
    r"^(?:(?:found (?:it|the (?:issue|problem|bug|root cause))|got it|i see(?: the (?:issue|problem))?|(?:good|great"
    r"|excellent) (?:question|catch|point|idea|find|feedback)s?|you're (?:absolutely |completely )?right"
    r"|(?:actually |oh |ah |well |ok )?(?:yes|yeah|yep|no|nope|wait)|right|ah+|oh|ok(?:ay)?(?: so)?|so|actually|nein"
    r"|doch|halt|non|attends|いや|いいえ|違う|不|不对|不是|hmm?|now|well|indeed|interesting(?:ly)?|(?:that|this)(?:'s"
    r"| is)? (?:wrong|not (?:right|correct|true))|important(?:ly)?|from now on|in (?:the )?future|bitte|ab jetzt"
    r"|désormais|a partir de ahora|exactly|correct|perfect|great|good|sure|agreed?|done|fixed|sorry|whoops|thus"
    r"|therefore|then|next|also|and|but|however|similarly|note|basically|as a result|that said|of course|in this case"
    r"|for example)(?:\s*[,.!:;、，。]+\s*|\s+[—–-]+\s+|\s*$)|(?:so|but|and|now|then|also|yes|yeah|ok|sure|actually"
    r"|from now on) )+",
)
COMMITS = re.compile(r"\bgit\b[^\n;|&]*\bcommit\b")
ANSWERED = re.compile(r'"(?P<question>.+?)"="(?P<answer>.+?)"', re.DOTALL)
"""How the question tool reports what a person chose."""
RECOMMENDED = re.compile(r"\s*\(Recommended\)$")

OFFERS = any_of(
    r"\b(?:want me to|would you like|should i|shall i|do you want|which would you|soll ich|möchtest du|veux-tu"
    r"|voulez-vous|quieres|te gustaría)\b|しますか|ましょうか|要我|需要我|是否"
)
"""How the agent asks whether it should do something."""

FEATURES = {
    "must": any_of(
        r"\b(?:must|always|never|only|every|at most|at least|no more than|required?|requires|has to|have to"
        r"|needs? to be|cannot|can't|immer|niemals?|nie|muss|müssen|nur|jede[rns]?|darf|toujours|jamais|doit|doivent"
        r"|il faut|seulement|siempre|nunca|deben?|hay que|sol[oa]mente|solo|никогда|всегда|нельзя|должен|должн[аоы])\b"
        r"|必ず|常に|絶対|しなければ|だけ|禁止|べき|必须|总是|永远|绝不|只能|一律|务必|不要|不得"
    ),
    "not": any_of(
        r"\b(?:not|no longer|none|without|nothing|stop \w+ing|nicht|kein\w*|ohne|ne|pas|sans|aucune?|plus|no|sin)\b"
        r"|n't\b|ない|ません|不|没|無|无"
    ),
    "instead": any_of(
        r"\b(?:instead of|rather than|in place of|replac\w+|over the|not the|no longer|in favou?r of)\b|\binstead\W*$"
        r"|\bprefer\w* [^.,;]{2,40} over\b|^(?:we )?use [^,.;]{2,40},? not\b|(?-i:\bNOT )\w"
        r"|\blike .{2,60} better than\b|\w, not (?:from|in|on|at|by|with|to|as|the|an?)? ?\w|, (?:and )?no (?!need"
        r"|problem|more|longer|way|one)\w|\b(?:statt|anstatt|lieber|en vez de|en lugar de)\b|, nicht \w|\b(?:ersetz"
        r"|remplac|reemplaz)\w+|\bau lieu d|\bplutôt que|代わり|ではなく|是.{1,20}不是|不是.{1,20}是|而不是|改用"
    ),
    "because": any_of(
        r"\b(?:because|since|so that|due to|therefore|which means|as it|so the|otherwise|reason|weil|da|denn|deshalb"
        r"|damit|wegen|sonst|car|sinon|porque|ya que|si no)\b|, so\b|→|=>|\bcause (?:the|it|we|they)\b|\bthat's why\b"
        r"|\b(?:parce qu|puisqu)|から|ので|ため|因为|所以|由于|否则"
    ),
    "cause": any_of(
        r"\b(?:root cause|the (?:issue|problem|bug|reason|cause)|caus(?:e[ds]?|ing)|why|das problem|der fehler|ursache"
        r"|le problème|la cause|el problema|la causa|el error)\b|turns? out|原因|問題は|问题是|导致"
    ),
    "fix": any_of(
        r"\b(?:the solution|fix(?:es|ed)?|resolved?|workaround|to avoid|prevents?|instead|lösung|behoben|la solution"
        r"|la solución|corrig\w+)\b|修正|解決|回避|修复|解决|避免"
    ),
    "intent": any_of(
        r"\b(?:intentional\w*|by design|on purpose|deliberate\w*|trade-?off|acceptable|the whole point|best[- ]effort"
        r"|the intent|is fine|makes sense|appropriate|escape hatch|harmless|absichtlich|bewusst|exprès|a propósito)\b"
        r"|意図|わざと|故意|有意|目的"
    ),
    "decided": any_of(
        r"\b(?:decided|decision|chose|chosen|we(?:'ll| will) (?:use|go)|let's (?:use|do|go|keep)|go with|agreed?"
        r"|prefer\w*|best fit|i'd rather|should (?:use|be|have|only)|i think we|switch|entschieden|wir (?:nehmen"
        r"|verwenden)|décid\w+|choisi\w*|on utilise|decid\w+|elegi\w*|vamos a usar)\b"
        r"|決め|にします|にしよう|採用|决定|选择|采用|我们用|改用"
    ),
    "risk": any_of(
        r"\b(?:race|leak\w*|panic\w*|crash\w*|stale|lost?|lose|silent\w*|wrong|break\w*|broke|conflict\w*|mismatch"
        r"|duplicat\w+|undefined|nil|null|corrupt\w*|insecure|visible|hang\w*|block\w*|flaky|brittle|misleading"
        r"|absturz|falsch|kaputt|perd\w*|plant\w*|faux|pierd\w+|roto)\b|競合|壊れ|失わ|漏れ|丢失|冲突|崩溃|错误"
    ),
    "next_step": any_of(
        r"^(?:(?:now|next|first|then|finally|also|and|so)[,:]? )*(?:let me|let us|i'll|i will|i need|i'm going|let's"
        r"|going to|i can|i could|i see|i have|i've|i found|i also|i understand)\b|\b(?:ich werde|ich schaue|lass mich"
        r"|jetzt|je vais|maintenant|ensuite|voy a|ahora|давай(?:те)?|сейчас|теперь)\b"
        r"|確認します|見てみ|次に|让我|我来|我将|接下来|现在"
    ),
    "offer": OFFERS,
}

FORMS = {
    "contrast": any_of(
        r"\bbut\b|, not |\b(?:however|whereas|while)\b|\b(?:aber|sondern)\b|\bmais\b|\b(?:pero|sino)\b|但|しかし"
    ),
    "task": any_of(r"^(?:task|step|phase|todo)\b|^\W*(?:task|step|phase) \d"),
    "past": any_of(r"\b(?:was|were|had|did|didn't|wasn't|would|war|waren|hatte|était|era|estaba)\b"),
    "future": any_of(r"\b(?:will|going to|would|could|can be)\b|\b(?:wird|würde)\b|\bsera\b|\bserá\b"),
}
"""How a sentence is built."""

AGREES = any_of(
    r"^\W*(?:yes|yep|yeah|yup|sure|ok(?:ay)?|great|perfect|sounds good|go ahead|do (?:it|that|this)|please do|lgtm"
    r"|agreed?|exactly|correct|right|works?|good|nice|cool|thanks?|it works|ship it|commit|push|ja|genau|gut|passt"
    r"|mach (?:das|es)|stimmt|oui|d'accord|parfait|vas-y|c'est bon|sí|vale|de acuerdo|perfecto|adelante|hazlo)\b",
    r"^\W*(?:はい|いいです|お願いします|了解|それで|好的?|可以|同意|没问题|行|对|是的)",
)
OBJECTS = any_of(
    r"^\W*(?:no\b|nope|wait|stop|hmm+|but\b|actually|not (?:quite|really|what)|wrong|don't|that's not|that is not|ah\b"
    r"|oh\b|why (?:is|are|do|did|not)|whoops|nein\b|halt\b|aber\b|non\b|attends\b|mais\b|pas\b|pero\b)|\b(?:doubt"
    r"|instead|rather|shouldn't|i thought|feels? wrong|looks? wrong|duplicated|broke|still (?:fail|not|broken)"
    r"|i don't (?:want|think|like)|we don't|falsch|stattdessen|faux|plutôt|mal|incorrecto|mejor)\b|いや|違う"
    r"|でも|待って|不对|不是|等等|但是|错"
)
RECOMMENDS = any_of(
    r"\b(?:i|we)(?:'d| would| will)?(?: still| strongly)? (?:recommend|suggest|choose|go with|propose)\b(?! against)"
    r"|\bmy recommendation\b|\bi(?:'d| would) (?:use|take|pick|go for)\b|^\w+ing\b.{5,90}\bwould\b",
    r"\b(?:ich (?:würde|empfehle)|je (?:recommande|propose)|recomiendo|propongo)\b|おすすめ|推奨|我建议|推荐",
)
"""What the agent proposes for the person to accept."""
CONCEDES = any_of(
    r"\byou(?:'re| are) (?:absolutely |completely )?(?:right|correct)|\bgood (?:catch|point|idea|question)"
    r"|i apologi[sz]e|\bmy mistake|\bi missed|\bfair (?:point|enough)|\bi see\b|\bah,|\bdu hast recht|\bguter punkt"
    r"|\bstimmt\b|\b(?:tu as|vous avez) raison|\btienes razón|その通り|確かに|你说得对|没错|好主意"
)

STILL_WRONG = any_of(
    r"\W*(?:still\b|same (?:error|issue|problem|result)|(?:that )?(?:did|does)n't (?:help|work|fix)|not (?:yet|fixed"
    r"|working)|whoops|oops|hmm|immer noch|toujours|sigue)",
    r"\W*(?:まだ|还是|仍然)",
)
"""How the agent opens when what it tried did not help."""

PASSING = any_of(
    r"^(?:please )?(?:never ?mind|(?:never|always|only) (?!.*\b(?:may|must|should|can)\b)(?:\w+ing|\w+ed|the|an?|my"
    r"|some|one|saw|had|got|been|seen)\b|don'?t (?:worry|bother|stop|like|know|think|see|care|mind|ask)\b"
    r"|make sure (?:that )?(?:it|this|(?:the |all )*(?:tests?|builds?|lint\w*|ci)) |(?:only|just|don't"
    r"|keep) .*\b(?:for now|until (?:we|i|you) (?:find|know|fix|see|have))\b)|^(?:it|that|this|we|you"
    r"|there)?\s*(?:(?:must|has to|have to|can'?t) (?:have|be (?:an?|the|some\w*|because|caused|there|that|just))\b)"
    r"|^(?:undo (?:that|this|it)|(?:please |just |instead of [^,]+, )*(?:show|give|send) me (?!.*\b(?:before|always"
    r"|every|whenever)))\b|\b(?:yet|for now|right now|this time)\W*$|\?\s*$|\b(?:anything else|today|tomorrow|tonight"
    r"|\d+ passed|(?:should|would|could)(?:n't| not| never)? have \w+|(?:always|never) (?:happens|works|fails|shows"
    r"|finishes|ends|returns)|this (?:morning|afternoon|evening|week)|for this (?:run|test|demo)|para esta"
    r"|pour cette fois|or (?:is|are|do|does|not)|todav[ií]a|por ahora|pour l'instant|pas encore|noch nicht|erstmal"
    r"|diesmal)\b|まだ|とりあえず|刚才|先别|暂时"
)
"""What a person says with the words of a rule, of the moment or of themselves."""

RULES = any_of(
    r"(?:^|[,;:—–-] |\b(?:and|please|should|to|we|you|i|but|that|every|remember:?) )(?:always|never)\b"
    r"|\b(?:must(?:n't)?|from now on|under no circumstances|don't ever)\b|^(?:please |also |and )*(?:make sure|avoid"
    r"|only|stop \w+ing|(?:don't|do not)(?! (?:worry|bother|commit|push|run|stop|know|think|see|mind)\b))\b"
    r"|\bno (?:\w+ ){1,4}ever\b|^(?:every|all|each|any) [^,.]{3,60}\b(?:needs?|must|should|has|have|gets?|goes"
    r"|uses?)\b|^(?:please )?leave \S+ (?:alone|as (?:it )?is)\b|^no more \S|^no (?!need|problem|idea|one|longer"
    r"|changes?)(?:[\w-]+ ){1,3}(?:in|on|for|at|outside|inside)\b|\b(?:after|before|when) \w+ing (?:an?|any\w*) "
    r"|\bit'?s (?:\w+ )?important (?:that|to)\b|\b(?:whenever|(?:every|each) time|when you (?:add|change|create"
    r"|edit) (?:an?|any))\b|\b(?:immer|niemals|nie|muss|müssen|darf(?:st)? nicht|dürfen nicht|ab jetzt|toujours|jamais"
    r"|il faut|doi(?:t|vent)|désormais|siempre|nunca|hay que|debe[ns]?|a partir de ahora|никогда|всегда|нельзя|должен"
    r"|должн[аоы]|обязательно)\b|^ne \w+ pas\b|^no (?:uses|hagas)\b|必ず|常に|してはいけない"
    r"|ないで(?:ください|ね)?|禁止|必须|总是|永远不要|绝不|不要|不得|务必|一律|以后|今后|今後"
)
"""What a person says that holds beyond the moment."""

FOR_EVER = any_of(
    r"(?:please |ne )?(?:always|never|don't ever|immer|niemals|nie|toujours|jamais|siempre|nunca|jamás|никогда"
    r"|всегда)\b|(?:please )?(?:keep|leave)\b.{4,80}\b(?:because|since|otherwise)\b",
    r"絶対|必ず|绝不|永远|始终|总是",
)
"""How a rule begins."""

REJECTS = any_of(
    r"\b(?:i|we) (?:really )?(?:do(?:n't| not)|did(?:n't| not)) (?:want|need|use|like) (?:to )?(?!you\b)"
    r"|\brule[sd]? out\b|\b(?:decided (?:against|not to)|not worth|rejected|(?:drop|dropped"
    r"|abandoned) (?:the )?(?:idea|approach|plan)|verworfen|abgelehnt|rejeté\w*|écarté\w*|descartad\w+|rechazad\w+"
    r"|отказались)\b|放弃了|否决|却下"
)
"""What a person says was turned down."""

WORKAROUND = any_of(r"\bwork-?arounds?\b|\bworks? around\b|\btemporar(?:y|ily)\b|\bfor now\b|临时|暫定")
"""What holds only until something better."""

CHOSEN = any_of(
    r"\b(?:decided|decision|let'?s (?:keep|stick|stay|use|go with)|(?:moved|switched|migrated)(?: over)? (?:to|from)"
    r"|settled|in favou?r of)\b|^(?:let'?s )?go (?:with|for)\b|\bwe don't \w+ [^,.]+ any ?more\b|\bwe(?:'re| are|'ll"
    r"| will)? (?:going with|chose|keep|stay(?:ing)?|stick(?:ing)?|use|go with)\b",
    r"\bwe (?:no longer|only|always|never|deliberately|just|now)? ?(?:use|support|deploy|release|target|ship|store|pin"
    r"|need|want)(?<!we need)(?<!we want)\b",
    r"\b(?:entschieden|wir (?:nehmen|verwenden|behalten|bleiben)|décidé|choisi|on (?:garde|prend|reste)|decidido"
    r"|elegimos|vamos a usar|usamos|nos quedamos)\b|に決め|にしました|決定|决定|选择了|改用|我们用",
)
"""What a person says was chosen."""

ONE_OFF = any_of(
    r"\b(?:this|that) (?:one|pr|commit|branch|time)\b|\bc(?:an|ould) (?:you|we|i)\b|\blet'?s\b(?! (?:keep|stick|stay"
    r"|use|go with)\b)|\bi just\b|\bi'?ve\b|\bi noticed\b|^i (?:do )?(?:want|need|would like) (?:to|you)\b|\bnot sure\b"
    r"|\?\s*$|\bi don'?t (?:know|remember|see)\b|\b(?:diesmal|kannst du|cette fois|peux-tu|esta vez|puedes)\b"
    r"|今回|这次|能不能"
)
"""What a person asks for now."""

ERRAND = any_of(
    r"^(?:(?:yeah|yes|ok(?:ay)?|so|and|now|also|then|please|(?:can|could) you|let'?s|i want to)[,.]? )*(?:read|look|see"
    r"|review|check|continue|proceed|merge|rebase|push|commit|pull|try|retry|find|search|show|tell|list|explain|think"
    r"|investigate|research|explore|brainstorm|discuss|talk|figure|help|wait|hold|analy[sz]e|consider|branch and"
    r"|(?P<tidies>(?:update|adjust|change|fix|add(?: it)? to) (?:the |my |some )?(?:\w+ )?(?:doc(?:s|ument\w*)?|readme"
    r"|change ?log|tests?|lint\w*|conflicts?)))\b(?!.*\b(?:always|never|every|each|whenever|before any)\b)"
)
"""What to do in this session, or `tidies` after any change; a rule says when: always, never, before any commit."""
_LABEL = re.compile(r'"label":\s*"((?:[^"\\]|\\.)+)"')


def options_not_taken(asked: str, answered: str, limit: int = 6) -> tuple[str, ...]:
    """Return the labels that a dialog offered, without those in its answer."""
    labels = dict.fromkeys(RECOMMENDED.sub("", label) for label in _LABEL.findall(asked))
    return tuple(label for label in labels if label not in answered)[:limit]


_OVER = any_of(
    r"\b(?:instead of|rather than|as opposed to|(?:cho[os]\w+|prefer\w*|pick\w*) [^.,;:()]{2,40} over|not|no longer"
    r" (?:use|need|want|support)|replac\w+(?! (?:with|by|it|them|this|that)\b)|moved (?:away )?from|rejected|ruled out"
    r"|decided against|switch\w* from|statt|anstatt|au lieu de|plutôt que|en lugar de|en vez de)"
    r"\s+((?:the |a |an |using |use )?[`\w](?:[^.,;:()—–\n]|\.(?=\w)|\(\)){1,60})"
)
_CLAUSE = any_of(
    r"\s+(?:because|since|so|as|which|when|if|for|to|due|and then|but|with|by|weil|für|car|pour|porque|para)\b.*"
)

_USES = any_of(r"^\W*(?:no,? )?(?:please )?(?:we )?use\b")
_OTHERWISE = any_of(r"\b(?:otherwise|or else|sonst|sinon|si no|否则)\b")


def rejected_in(text: str) -> tuple[str, ...]:
    """Return the names that a sentence says were not chosen or given up: `… instead of X`, `no longer X`."""
    found = _OVER.search(_OTHERWISE.split(text)[0])
    is_name = found and (not found[0].lower().startswith("not ") or "`" in found[0] or _USES.match(text))
    if not found or not is_name or found[0].count("`") % 2:
        return ()  # code that was cut off, or no name
    if found[1].startswith("`"):
        return (found[1].split("`")[1],)
    name = _CLAUSE.sub("", re.sub(r"^(?:the|a|an|using|use) ", "", found[1].strip())).strip(" `\"'")
    return (name,) if 1 < len(name) <= 60 else ()


STATUS = any_of(
    r"\b(?:tests?|lint\w*|builds?|checks?|ci)\b.{0,30}\b(?:pass\w*|fail\w*|green|red|clean|ok)\b"
    r"|\b\d+ (?:\w+ )?(?:failures?|errors?|issues?|warnings?|commits|files|conflicts?|lines)\b|^(?:keep|take"
    r"|use) (?:HEAD|ours|theirs)\b|\bmerged? (?:both|branch)\b|\bconflict(?:ed)? (?:files?|regions?)\b"
    r"|\bcommit `?[0-9a-f]{7,}|\b(?:updated|opened|created|pushed) (?:the |a |your )?(?:pr|branch|pull request)\b"
    r"|\bstraightforward\b|^here(?:'s| is| are)\b|\b(?:remaining|so far)\b|^(?:scroll|click|run) "
)

IDLE = any_of(
    r"^found (?:it|the)\b|^(?:added?|updated|fixed|wrote) (?:\w+ ){0,3}tests?\b|^(?:fixed|resolved|solved) by\b"
    r"|\bstraightforward\b|\blet me know\b|^should i\b|\balready (?:fixed|done|handled)\b"
    r"|\bshould (?:now )?work (?:now|corr)|^(?:the |this )?(?:fix|approach|change)s? (?:works?|addresses|looks?"
    r"|handles?|has been|have been)\b|^(?:the|all|most) (?:\w+ ){0,2}(?:reviewer|feedback|tests?|issues?"
    r"|comments?) (?:is|are|has been|have been|provides?|covers?) (?:\w+ )?(?:right|correct|resolved|addressed|fixed"
    r"|done|comprehensive)\b|^(?:(?:copilot |thread )#?\d|test fix|pros?:|cons?:|next steps?:)|^something (?:broke"
    r"|is (?:wrong|broken))|^(?:you(?! can'?t| cannot| must)|your)\b|\b(?:has|have) (?:now )?been (?:\w+ly )?(?:fixed"
    r"|resolved|updated|improved|implemented|addressed|added|removed|completed)\b|\b(?:can|should|will) now\b|\b(?:now"
    r"|will \w+) (?:accurate|correct|normal)ly\b"
)
"""Where things stand, what a review came to, claims of success, and what says nothing."""
