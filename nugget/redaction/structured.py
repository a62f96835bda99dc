"""Find secrets by a name or a sentence: settings, arguments, "the password is …".

A word alone says nothing, so its place decides. `password: kaffeepause` on a line of its own is a setting;
`password: string,` in a signature is code. Where both are possible, a leaked password is worse than a lost word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from string import ascii_letters, digits

from nugget.redaction import judging as judge

Span = tuple[int, int, str]
"""Start and end of a secret, and the rule that found it, from which `kind_of` gets its kind."""

STEMS = ("pass", "pw", "secret", "token", "key", "credential", "auth")
"""Parts of most names of secrets, found faster by plain search than by rules, which find the others."""
_PASSWORD = re.compile(
    r"(?:passwords?|passwd|passwort|passphrase|kennwort|pwd|(?<!a)psw|mdp|^(?:db|root|user|admin|my|smtp|ftp|ldap|bind|default)?pw)$"
    r"|passe$|^(?:contrase.*|senha|clave|wachtwoord|parola|psk)$|^(?!by|com|encom|tres|sur|under|over|im|bom)\w*pass$"
)
_KEY = re.compile(
    r"secret|token|credential|(?:api|access|private(?!keyid)|auth|encrypt(?:ion)?|sign(?:ing|ature)?|master|account|webhook|license|"
    r"shared|app|jwt|hmac|cipher|client|storage|function|service|deploy|session|cookie|subscription)key"
    r"|.(?:key|auth)$|^(?:auth|hmac)$|^(?:chave|chiave|llave)|geheim|segret|sleutel|schl.{1,2}ssel|salt$|pepper"
)
_KEY_OF = re.compile(
    r"(?i)(?:jw[ts]|hmac|cipher|encrypt|signing|symmetric)[^}]{0,100}$|\b(?:the|master|api)[ ]$"
    r"|\[\w*(?:auth|api)\w*\]\s*$"
)
"""Text before a bare `key` that makes it the key of something secret."""
_PUBLIC = tuple(word + sign for word in ("pub", "public") for sign in " _-")
_ENDS, _TO_VALUE = frozenset(" \t\r\n\"'`"), re.compile(r"[\w.-]*(?:\s?[:=]\s?|[\"'\\]{1,4}:?\s?|\s){0,3}")
_NAME_CHARS = f"{ascii_letters}{digits}_.-{''.join(map(chr, range(128, 256)))}"
_TAIL = re.compile(r"[\w\x80-\xff-]{0,48}")
_ASSIGNED = re.compile(
    r"""(?:\\x1b\[[\d;]{1,9}m|\x1b\[[\d;]{1,9}m)?(?:\\{0,16}["'`*]{1,2})?\]?(?:\s?:\s?[A-Za-z][\w.<>]*(?=\s?=)|\s\{\s?get;[^{}\n"]{0,30}\}(?=\s?=))?
    (?P<sign>\s{0,8}(?::=|=>|->|!?={1,3}|::?)\s{0,8}(?:(?:!{1,2}|&)[A-Za-z]\w{0,20}[ ])?
      |\s{0,2},\s{0,2}(?=\\{0,16}["'])|\((?=["'])|[ \t]{1,8}(?=[^\s&|]))
    (?:[A-Za-z]{1,8}\s(?=[\w+/-]{20}))?(?P<open>(?:[bfr]{1,2}(?=["']))?\*{0,2}["']?\\{0,16}["'`]{1,3})?
    (?P<value>(?(open)[^\n"'`]{1,512}?(?=\\{0,16}["'`])|[^\s,;"'`<>(){}\[\]|\\&]{1,512}+
      (?:&(?!\w{1,40}=)[^\s,;"'`<>(){}\[\]|\\&]{0,80}+){0,4}+(?![(\[])))""",
    re.VERBOSE,
)
_BRIDGED = re.compile(
    r"(?=(?:[^\n\"'`;#=:(>{|<]{0,8}+[\"'`])?[^\n\"'`;#=:(>{|<]{0,60}+(?:[=:(>{|<]|(?<=[@$])[\"']))[\])]{0,2}[\"'`]?"
    r"[^\n\"'`;#]{0,60}?(?<![\w ])[ ]?[@$bfru]{0,2}"
    r"(?P<open>[\"'`])(?P<value>[^\s\"'`]{6,512})(?P=open)|(?=[^\n<>]{0,60}+>)[^\n<]{0,60}?>(?:\s{0,8}<\w{1,20}>)?(?P<text>[^\s<>]{6,512})</"
)
"""Code or markup between a name and the quoted value that it is given: a type, a call, an attribute, a tag."""
_PAIR = re.compile(
    r"(?i)(?P<sign>)\\{0,16}[\"']?(?:\s?:\s?\{)?(?:[^\n<>{}]{0,40}\s)?\s*+,?(?:\\{1,16}n)?\s*+\\{0,16}[\"']?(?:value|content)\\{0,16}[\"']?"
    r"\s?[=:]\s?(?P<open>\\{0,16}[\"'])?(?P<value>(?(open)[^\"'\n\\]{3,256}|[^\s\"'\\<>{}()\[\],;]{3,256}))"
)
"""Name and value as two fields: `name: DB_PASSWORD` with `value: …` below it, `key="password" value="…"`."""
_LINE_END = re.compile(
    r"(?![ \t]*(?:\r?\n|\\{1,16}n)(?:[ \t]|\d+â\x86\x92)*[)}\]])(?:\*\*|[.!])?[ \t]*"
    r"(?:[#;]\s[^\n]*|//\s[^\n]*|\([^\n()]*\))?(?:\Z|[\r\n]|\\{1,16}[nr]|\\{0,16}[\"'`]|[|])"
)
_USER = re.compile(r"(?i)\b(?:user(?:[ _]?name)?|login|e-?mail|account|benutzer(?:name)?)\b[^\n({]{0,80}$")
_OUTCOME = re.compile(r"--- PASS: |(?:FAIL|SKIP): |PASS: [^\n]*\n+PASS: ")
_ACCOUNT = re.compile(r"(?i)user|login|mail|account|host|\w\Z")
_WORDLY = re.compile(
    r"[a-z]+(?:ed|ing|able|ible|ally|ly|less|ful|ous|ive|ent|ant|al|ic)$|\[?(?:[A-Z][a-z]+){2,}[?!]?\]?[?!]?$"
)
"""An adjective, an adverb, or the name of a type."""


def named_secrets(view: str, stems: Iterable[int], known: bytearray) -> Iterator[Span]:
    """Yield secrets given to names or told in sentences at the places `stems`; `known` marks what was found."""
    seen: set[int] = set()  # ends of names that were looked at
    for at in stems:
        around = max(0, at - 200), at + 200
        if view.startswith("PASS:", at) and _OUTCOME.search(view, *around) and not _ACCOUNT.search(view, around[0], at):
            continue  # a line of a summary of tests
        first = at if known[at] else known.find(1, at, at + 40)
        last = known.find(0, first) if first >= 0 else 0
        if first >= 0 and (last < 0 or view[last] in _ENDS) and _TO_VALUE.fullmatch(view, at, first):
            continue
        if found := _named(view, at, seen) or _told(view, at):
            yield found
        elif _HEADING.match(view, at):
            yield from _below(view, at)


def places(text: str, part: str) -> Iterator[int]:
    """Yield the places of a part in a text."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


@lru_cache(maxsize=4096)
def _meaning(name: str) -> str:
    """Return `password`, `secret`, `token`, `key`, `part` (a password is only a part of the name), or nothing."""
    parts = [part.lower().rstrip(digits) for part in judge.PARTS.findall(name)]
    while len(parts) > 1 and (parts[-1] in judge.TRAILERS or not parts[-1]):
        parts.pop()
    is_password = bool(parts and _PASSWORD.search(parts[-1]) and parts[0][:4] not in ("hash", "test"))
    is_variable = is_password and name.isupper()  # as in `CACHE_INDEX_PASSWORD`
    others = judge.OTHER_NAMES & set(parts[-1:] if is_variable else parts[is_password:])
    if not parts or others - judge.LAST_NAMES or others & set(parts[-1:]):
        return ""
    if any(map(_PASSWORD.search, parts)):
        return "password" if _PASSWORD.search(parts[-1]) else "part"
    if parts == ["key"]:
        return "key"
    if (len(parts) > 1 or name.isupper()) and (parts[-1] == "secret" or parts[-2:] == ["secret", "key"]):
        return "secret"
    return "token" if _KEY.search("".join(parts)) else ""


def _named(view: str, at: int, seen: set[int]) -> Span | None:
    """Return the value given to the name around a stem if it is a secret; each name is read once."""
    head = max(0, at - 40) + len(view[max(0, at - 40) : at].rstrip(_NAME_CHARS))
    if head < at and view[head - 1 : head] == "\\" and view[head] in "nrt":
        head += 1  # an escaped line break stands before the name
    tail = _TAIL.match(view, at)
    after = tail.end() if tail else at
    if after in seen:
        return None
    seen.add(after)
    name = view[head:after]
    meaning = _meaning(name)
    if not meaning or (meaning in ("key", "token") and view[max(0, head - 7) : head].lower().endswith(_PUBLIC)):
        return None
    rule = "name.password" if meaning in ("password", "part") else "name.secret"
    near = view[after : after + 60].lower()
    value = _PAIR.match(view, after) if "value" in near or "content" in near else None
    if value or (value := _ASSIGNED.match(view, after)):
        start, given, quoted = value.start("value"), value["value"], bool(value["open"] or not value["sign"])
        if _is_given(view, (head, start), name, meaning, (value["sign"] or "=").strip(), quoted, given):
            return start, start + len(given), rule
    if bridged := _BRIDGED.match(view, after):
        group = bridged.lastgroup or "value"
        given = bridged[group]
        is_likely = judge.is_generated(given, quoted=True) or (rule == "name.password" and judge.is_strong(given))
        if is_likely and not re.search(r"[()\[\]{}*|\\]", given):
            return *bridged.span(group), rule
    return None


def _is_given(view: str, place: tuple[int, int], name: str, meaning: str, sign: str, quoted: bool, given: str) -> bool:
    """Return True if the value next to a name is a secret."""
    head = place[0]
    flag = name.startswith("-")
    if len(given) < 3 or (not quoted and (sign in (",", "(") or (sign == ":" and view[head - 1 : head] == ":"))):
        return False
    scattered = judge.is_random(given)
    if scattered and meaning not in ("key", "part") and judge.is_given_password(given):
        return True
    if meaning == "key" and not (scattered or flag) and not _KEY_OF.search(view[max(0, head - 120) : head]):
        return False
    if meaning in ("secret", "token", "key"):
        told = bool(sign) or flag or quoted or scattered or (meaning == "key" and len(given) > 24)
        if told and judge.is_generated(given, quoted=quoted):
            return True
        if meaning != "secret" or len(given) < 6:
            return False
    if not judge.is_given_password(given):
        return False
    strong = judge.is_strong(given)
    compared = "==" in sign or sign in ("(", "!=", ",") or meaning == "part"
    if quoted:
        if (compared and not flag) or not (sign or flag):
            return strong
        if " " in given:
            return judge.is_phrase(given, words=2 if name.isupper() or "_" in name else 3)
        named = judge.is_camel(given) if given.isalpha() else not given.isdigit() and judge.are_plain_words(given)
        return len(given) >= 4 and not named
    return _is_bare(view, place, name, sign, given, strong, compared)


def _is_bare(view: str, place: tuple[int, int], name: str, sign: str, given: str, strong: bool, compared: bool) -> bool:
    """Return True if a value without quotes can be the password that its name announces."""
    head, start = place
    stop = start + len(given)
    if name.startswith("-"):
        return sign == "=" or (not sign and not _WORDLY.match(given))
    if strong and sign and not compared and len(given) >= 6 and not judge.is_code(given):
        return True
    before = view[max(0, head - 400) : head].replace("\\n", "\n").rpartition("\n")[2]
    spaced, follows = view[start - 1].isspace(), view[stop : stop + 1]
    ends = bool(_LINE_END.match(view, stop))
    if not sign:
        return strong and ends and len(name) > 4 and (not name[0].isupper() or "_" in name)
    camel = judge.is_camel(given)
    if sign == "=" and not spaced:
        called = before.count("(") > before.count(")") or follows in (")", "}", ",")
        variable = name.rsplit(".", 1)[-1].replace("-", "_").isupper()
        return variable or ((not camel or (strong and not called)) and (ends or not called))
    weak = not camel and not _WORDLY.match(given) and not judge.are_plain_words(given)
    if sign == ":":
        braced = "{" in before and before.count('"') % 2 == 0
        if strong and not given.isdigit():
            code = follows in (",", ";", ")", "}") and (camel or re.fullmatch(r"\w+", given))
            return ends or (spaced and not braced and not code) or (not spaced and follows in (" ", "]", "}"))
        compound = re.search(r"\w[_.-]\w|[a-z][A-Z]|wort$", name) or _USER.search(before)
        return spaced and weak and (ends or bool(compound and follows == " " and not braced and len(given) >= 6))
    return ends and sign in ("=", "=>") and (weak or (strong and not judge.is_code(given)))


_HEADING = re.compile(r"\w{0,20}[*`\"' ]{0,20}[,;|\t\r\n]")
_CELL, _PLAIN_CELL = re.compile(r"\s*[^\n]{0,30}?\s*"), re.compile(r"\"?[\w.-]{1,30}\"?\r?")
_CELL_SIGNS = " \t\r`*\"'"


def _below(view: str, at: int) -> Iterator[Span]:
    """Yield the cells below a heading for secrets in CSV, Markdown and the output of databases."""
    first, last = view.rfind("\n", max(0, at - 400), at) + 1, view.find("\n", at, at + 400)
    if last < 0 or at - first > 400:
        return
    headings, sign = view[first:last], next((sign for sign in "|\t;," if sign in view[first:last]), "")
    names = headings.split(sign) if sign else []
    column = view.count(sign, first, at)
    meant = _meaning(names[column].strip(_CELL_SIGNS).replace(" ", "_")) if names else ""
    if not meant or not all(map((_CELL if sign in "|\t" else _PLAIN_CELL).fullmatch, names)):
        return
    for _ in range(200):
        first, last = last + 1, view.find("\n", last + 1, last + 2000)
        row = view[first : last if last >= 0 else len(view)]
        cells = row.split(sign)
        if not row.strip(" -+:|\t\r") and len(row) > 3:
            pass  # the line below the headings
        elif len(cells) != len(names) or _meaning(cell := cells[column].strip(_CELL_SIGNS)):
            return
        elif len(cell) >= 5 and " " not in cell and (judge.is_strong(cell) or judge.is_generated(cell, quoted=True)):
            start = first + sum(map(len, cells[:column])) + column + cells[column].index(cell)
            yield start, start + len(cell), "table.password" if meant == "password" else "table.secret"
        if last < 0:
            return


_SPEAKING = re.compile(
    (
        r"(?i)(?:pass(?:word|wd|phrase|wort|code|e)?|pwd|pw|kennwort|contrase.{0,2}a"
        r"|clave(?! (?:prim|for|aj|pú|com|única))|senha|wachtwoord|parola|hasło|heslo|lösenord(?:et)?|adgangskoden?"
        r"|salasana|şifre(?:si)?|парол(?:ь|я)|mdp|psw|(?:clé|clave|llave|chiave|chave)[ ]"
        r"(?:d[eaiu][ ]|del[ ]|d')?(?:api|licen|acc|secr|privé|wi-?fi|wlan)\w{0,8}"
        r"|schlüssel|se[cg]reto?|geheimnis|token|jeton|credential|(?<=(?:.api|cess|ense|cret|ount|ning|tion)[ ])key"
        r"|community string|encrypted with)s?(?!\w)"
    )
    .encode()
    .decode("latin-1")
)
_SPACED = re.compile(r"[\"'`*]{0,3}(?:'s)?[:,.?)]?[\"'`*]{0,3}(?:\s|\Z)")
_TOKEN = re.compile(
    r"(?P<gap>[ \t\n]{0,4}(?:=[ ])?)[\"'`*(\[]{0,3}(?:[\xc2\xab\xe2\x80\x9c\x9e]{2,3}[ ]?)?"
    r"(?P<word>[-=]>|[^\s\"\\<>`{}=]{1,256})[\"'`*]{0,3}"
)
_SAID_OF_PASS = re.compile(
    "(?i)[\"'`*)]{0,3}(?:'s|\\s?[:=>-]|,?\\s(?:(?:is|was|ist|est|es|c'est|now|for|of|will|be)\\b|\xc3[\xa8\xa9])|\\s[\"'`*])"
)
"""Text after `pass` where it is no verb."""
_CLOSING = ".,;:!?)]*'\xc2\xbb"
_PROSE = re.compile(r"(?:[\w\x80-\xff]+(?:['/-][\w\x80-\xff]+)*|[-:>]{1,3})?[.,;:?!)]*\Z")
_SAID_ALONE = re.compile(
    r"[.!]?[ \t]*(?:\Z|[\r\n])|\\{1,16}[nr]|[.!](?=\s)|[.!]?\\{0,16}[\"'](?=[\s.,}\]\"\\]|\Z)"
    r"|[.!]?,?[ ](?:because|since|but|and|until|for now|btw|aber|weil|und)\b"
    r"|[.!]?,[ ](?:please|thanks|bitte|danke|merci|s'il|por favor|gracias|per favore|grazie|obrigad[oa])\b"
)


def _told(view: str, at: int) -> Span | None:
    """Return the value told after a word for a password: `the password of the server is …`.

    Plain words do not count, and a value right after that word or a verb needs less to count.
    """
    before = view[at - 1 : at] if at else ""
    compound = before.isalnum()  # as in `Initialkennwort`
    is_code = before in ("_", ".") or (before == "-" and not view[at - 2].isalpha())
    if is_code or (compound and view[at + 4 : at + 5] != "w" and view[at : at + 4].lower() != "schl"):
        return None
    begin = _SPEAKING.match(view, at)
    if not begin or not _SPACED.match(view, begin.end()):
        return None
    word = last = begin.group().lower()
    is_verb = word[:5] in ("pass", "passe") and before != "-" and view[max(0, at - 3) : at][-2:] not in ("e ", ", ")
    if is_verb and not _SAID_OF_PASS.match(view, begin.end()):
        return None
    close, place = True, begin.end()
    for _ in range(14):
        token = _TOKEN.match(view, place, begin.end() + 200)
        if not token or ("\n" in token["gap"] and last[-1] not in (":?." if last == word else ":?")):
            return None
        given = token["word"]
        if given.lower() == word and "\n" not in token["gap"]:
            return None  # it tells of the rest itself
        value = given.rstrip(_CLOSING)
        value += "!" * (value[-1:].isdigit() and given[len(value) :].startswith("!"))
        start = token.start("word")
        stop = start + len(value)
        is_word = value.isalpha() and value.islower()
        if len(value) >= 5:
            said = value if value.isascii() else value.encode("latin-1").decode("utf-8", "replace")
            if (not is_word and (judge.is_strong if close or "=" in token["gap"] else judge.is_odd)(said)) or (
                (last in judge.SAYS or view[place - 1] == ":")
                and len(value) > 5
                and value.isalpha()
                and judge.is_given_password(value)
                and not _WORDLY.match(value)
                and ("w" in word or word.startswith(("passp", "passe", "contr", "clave", "sen", "mdp")))
                and _SAID_ALONE.match(view, stop)
            ):
                return start, stop, "sentence.password"
        if not is_word and not _PROSE.match(given):
            return None
        last, place = given.lower() or last, token.end()
        spoken = last in judge.VERBS or last in judge.SAYS or (last == "a" and word[:3] in ("con", "cla", "sen"))
        close = spoken or last[-1] in ":>?-\x92\x94" or (close and not value)
    return None
