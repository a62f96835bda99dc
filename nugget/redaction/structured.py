"""Secrets that a name or a sentence tells of: settings, arguments, "the password is …".

A word alone tells nothing, so what counts is its place. `password: kaffeepause` on a line of its own is a setting;
`password: string,` in a signature is code. Where both are possible, a leaked password is worse than a lost word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from nugget.redaction.judging import (
    OTHER_NAMES,
    are_plain_words,
    is_camel,
    is_code,
    is_generated,
    is_given_password,
    is_not_placeholder,
    is_odd,
    is_phrase,
    is_random,
    is_reference,
    is_said,
    is_strong,
)

Span = tuple[int, int, str]
_BEFORE, _BEHIND = 600, 700
"""Characters before and behind the stem of a name that are looked at."""

_STEMS = tuple(
    stem.encode().decode("latin-1")
    for stem in "pass pw kennwort contrase senha clave wachtwoord parola hasło heslo lösenord пароль "
    "psw mdp schlüssel chiave chave llave clé secret token key credential auth hmac psk community encrypted".split()
)
"""What the name of a secret holds; each is looked for by plain search."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z\x80-\xff]+|\d+")
_PASSWORD = re.compile(
    r"(?:passwords?|passwd|passwort|passphrase|kennwort|pwd|psw|mdp|^(?:db|root|user|admin|my|smtp|ftp|ldap|bind|default)?pw)$"
    r"|^(?:passe|contrase.*|senha|clave|wachtwoord|psk)$|^(?!by|com|encom|tres|sur|under|over|im|bom)\w*pass$"
)
_KEY = re.compile(
    r"secret|token|credential|(?:api|access|private|auth|encrypt(?:ion)?|sign(?:ing|ature)?|master|account|webhook|license|"
    r"shared|app|jwt|hmac|cipher|client|storage|function|service|deploy|session|cookie|subscription)key"
    r"|.(?:key|auth)$|^(?:auth|hmac)$"
)
_KEY_OF = re.compile(r"(?i)(?:jw[ts]|hmac|cipher|encrypt|signing|symmetric)[^}]{0,100}$|\b(?:the|master|api)[ ]$")
"""What stands before a name that is only `key` if it is the key of something."""
_TRAILERS = frozenset("confirm confirmation again repeat old new plain raw prod dev staging test local value".split())
_TAIL = re.compile(r"[\w\x80-\xff-]{0,40}")
_ASSIGNED = re.compile(
    r"""(?:\\{0,16}["'`*]{1,2})?\]?(?:\s?:\s?[A-Za-z][\w.<>]*(?=\s?=)|\s\{\s?get;[^{}\n"]{0,30}\}(?=\s?=))?
    (?P<sign>\s{0,8}(?::=|=>|->|!?={1,3}|:)\s{0,8}|\s{0,2},\s{0,2}(?=\\{0,16}["'])|\((?=["'])|[ \t]{1,8}(?=[^\s&|]))
    (?:[A-Za-z]{1,8}\s(?=[\w+/-]{20}))?(?P<open>(?:[bfr]{1,2}(?=["']))?\*{0,2}\\{0,16}["'`]{1,3})?""",
    re.VERBOSE,
)
_BRIDGED = re.compile(
    r"(?=[^\n\"'`;#]{0,8}[\"'`]?[^\n\"'`;#]{0,60}?(?:[=:(>{|<]|[@$][\"']))[\])]{0,2}[\"'`]?"
    r"[^\n\"'`;#]{0,60}?(?<![\w ])[ ]?[@$bfru]{0,2}"
    r"(?P<open>[\"'`])(?P<value>[^\s\"'`]{6,512})(?P=open)|[^\n<]{0,60}?>(?:\s{0,8}<\w{1,20}>)?(?P<text>[^\s<>]{6,512})</"
)
"""Code or markup between a name and the quoted value that it is given: a type, a call, an attribute, a tag."""
_QUOTED = re.compile(r"(?P<value>[^\n\"'`]{1,512}?)(?=\\{0,16}[\"'`])")
_BARE = re.compile(
    r"(?P<value>[^\s,;\"'`<>(){}\[\]|\\&]{1,512}+(?:&(?!\w{1,40}=)[^\s,;\"'`<>(){}\[\]|\\&]{0,80}+){0,4}+)(?![(\[])"
)
_PAIR = re.compile(
    r"(?i)\\{0,16}[\"']?(?:[^\n<>{}]{0,40}\s)?\s*,?(?:\\{1,16}n)?\s*\\{0,16}[\"']?(?:value|content)\\{0,16}[\"']?\s?[=:]\s?"
    r"(?P<open>\\{0,16}[\"'])?(?P<value>(?(open)[^\"'\n\\]{3,256}|[^\s\"'\\<>{}()\[\],;]{3,256}))"
)
"""A name and its value as two fields: `name: DB_PASSWORD` with `value: …` below it, `key="password" value="…"`."""
_LINE_HEAD = re.compile(
    r"(?:^|[\n\r]|\\[nr]|[=:(,]\s?\\{0,16}[\"'`]|^\\{0,16}[\"'`])"
    r"(?:[ \t>*+|#-]|\\t|"
    r"\d+(?:â\x86\x92|\t|\\{1,16}(?:u2192|t)|:|[ ]*\|)|[\w./-]{1,80}:\d+:|[\w./-]{1,80}\.\w{1,10}[-:])*"
    r"(?:(?:export|set|setx|setenv|ENV|ARG|env|-e|local|declare(?: -x)?|and|with|"
    r"(?i:the|your|use|das|dein|le|la|el|mot de))"
    r"\s+|\$env:|\$)?\\{0,16}[\"'`*]{0,3}$"
)
_LINE_END = re.compile(
    r"(?:\*\*|[.!])?[ \t]*(?:[#;]\s[^\n]*|//\s[^\n]*|\([^\n()]*\))?(?:\Z|[\r\n]|\\{1,16}[nr]|\\{0,16}[\"'`]|[|])"
)
_NEXT_CLOSES = re.compile(r"[ \t]*(?:\r?\n|\\{1,16}n)(?:[ \t]|\d+â\x86\x92)*[)}\]]")
_USER = re.compile(r"(?i)\b(?:user(?:[ _]?name)?|login|e-?mail|host|account|benutzer(?:name)?|uid)\b[^\n({]{0,80}$")
_USER_NEAR = re.compile(r"(?i)\b(?:user(?:[ _]?name)?|login|e-?mail|host|hostname|account|uid|port)[\"']?\s?[:=]")
_SECTION = re.compile(r"(?m)(?:^|\"|n)\s{0,4}\[\[?[\w .:/\"-]{1,60}\]{1,2}\s*$")
_PROPERTY = re.compile(r"(?i)^(?!(?:self|this|cls|user|form|req|request)\.)(?:[\w-]+\.){1,8}[\w-]+$")
_LONG_PARTS = re.compile(r"(?<![a-z])[a-z]{3,}[^a-z].*?[a-z]{3}")
"""Two runs of lower case letters, as in `make_session` and `getPassword`."""
_SAID = re.compile(r"^[a-z]+(?:ed|ing|able|ible|ally|ly|less|ful|ous|ive|ent|ant|al|ic)$")
_TYPE = re.compile(r"^\[?(?:[A-Z][a-z]+){2,}[?!]?\]?[?!]?$|^[A-Z][A-Za-z]*[?!\]]+$")
_DESCRIBED = re.compile(r"(?i)[ ](?:[\w-]+[ ]){0,2}(?:password|passwd|secret|credential|user|login|used)s?\b")


def structured_secrets(view: str) -> Iterator[Span]:
    """Yield the start, end and kind of each secret that its place in a document tells."""
    small = view.encode("latin-1").lower().decode("latin-1")
    for stem in _STEMS:
        for at in places(small, stem):
            first = max(0, at - _BEFORE)
            if found := _near(view[first : at + _BEHIND], at - first, len(stem)):
                yield found[0] + first, found[1] + first, found[2]


def places(text: str, part: str) -> Iterator[int]:
    """Yield where a part begins in a text."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


@lru_cache(maxsize=4096)
def _near(view: str, at: int, size: int) -> Span | None:
    """Return the secret that a stem tells of; sessions show the same text often, so answers are kept."""
    return _named(view, at, at + size) or _told(view, at)


def _named(view: str, at: int, end: int) -> Span | None:
    """Return the value that the name around a stem is given, if it is a secret."""
    tail = _TAIL.match(view, end)
    after = tail.end() if tail else end
    head = at
    while head > 0 and at - head < 40 and (view[head - 1].isalnum() or view[head - 1] in "_-."):
        head -= 1
    if view[head - 1 : head] == "\\" and view[head] in "nrt" and head < at:
        head += 1  # an escaped line break stands before the name
    value: re.Match[str] | None = None
    sign, quoted = "=", True
    if re.search("(?i)value|content", view[after : after + 60]):
        value = _PAIR.match(view, after)
    if not value and (assigned := _ASSIGNED.match(view, after)):
        sign, quoted = assigned["sign"].strip(), bool(assigned["open"])
        value = (_QUOTED if quoted else _BARE).match(view, assigned.end())
    name = view[head:after]
    parts = [part.lower() for part in _PARTS.findall(name)]
    while len(parts) > 1 and (parts[-1] in _TRAILERS or parts[-1].isdigit()):
        parts.pop()
    is_password = any(map(_PASSWORD.search, parts))
    is_key = parts == ["key"] or _KEY.search("".join(parts))
    if not parts or OTHER_NAMES & set(parts) or not (is_password or is_key):
        return None
    if value and (found := _given(view, head, name, parts, is_password, sign, quoted, value)):
        return found
    if bridged := _BRIDGED.match(view, after):
        group = "value" if bridged["value"] else "text"
        given = bridged[group]
        is_value = re.search(r"[()\[\]{}*\\]|^[\da-f]{8}-[\da-f-]{27}$", given) is None
        if (is_value and is_generated(given, quoted=True)) or (is_password and is_value and is_said(given)):
            return *bridged.span(group), "password" if is_password else "secret"
    return None


def _given(
    view: str, head: int, name: str, parts: list[str], is_password: bool, sign: str, quoted: bool, value: re.Match[str]
) -> Span | None:
    """Return the value that stands next to a name, if it is a secret."""
    start, given = value.start("value"), value["value"]
    given = given if quoted else given.rstrip(".:")
    doubled = sign == ":" and view[head - 1 : head] == ":" and not quoted
    if len(given) < 3 or doubled or (not quoted and sign in (",", "(")):
        return None
    if is_password:
        chosen = bool(_PASSWORD.search(parts[-1]))
        place = (_is_quoted if quoted else _is_bare)(view, head, start, given, sign, name, chosen)
        return (start, start + len(given), "password") if place and is_not_placeholder(given, letters=3) else None
    if parts == ["key"] and not is_random(given) and not _KEY_OF.search(view[max(0, head - 120) : head]):
        return None
    flag = bool(sign) or name.startswith("-") or quoted or is_random(given) or (parts == ["key"] and len(given) > 24)
    named = parts[-1] == "secret" or parts[-2:] == ["secret", "key"]
    chosen = named and (len(parts) > 1 or name.isupper()) and len(given) >= 6
    if (flag and is_generated(given, quoted=quoted)) or (
        chosen and (_is_quoted if quoted else _is_bare)(view, head, start, given, sign, name, True)
    ):
        return start, start + len(given), "secret"
    return None


_SPEAKING = re.compile(
    (
        r"(?i)(?:pass(?:word|wd|phrase|wort|code|e)?|pwd|pw|kennwort|contrase.{0,2}a|clave|senha|wachtwoord|parola|hasło"
        r"|heslo|lösenord|пароль|mdp|psw"
        r"|(?:clé|clave|llave|chiave|chave)[ ](?:d[eai][ ]|d')?(?:api|licen|acc|secr|privé)\w{0,8}"
        r"|schlüssel|secret|token|credentials?"
        r"|(?:(?<=api )|(?<=access )|(?<=license )|(?<=secret )|(?<=account )|(?<=signing )|(?<=tion ))key"
        r"|community string|encrypted with)s?(?!\w)"
    )
    .encode()
    .decode("latin-1")
)
_VERBS = frozenset(
    "is was are to still be now this ist war lautet auf est es en zu as with were becomes it's its "
    "be now: nu auf jetzt nun currently actually ahora maintenant adesso è é ã¨ ã©".split()
)
_TOKEN = re.compile(
    r"(?P<sign>[ \t\n]{0,4}(?:=[ ])?)(?P<open>[\"'`*(\[]{0,3}(?:[\xc2\xab\xe2\x80\x9c\x9e]{2,3}[ ]?)?)"
    r"(?P<word>[-=]>|[^\s\"\\<>`{}=]{1,256})[\"'`*]{0,3}"
)
_CLOSING = ".,;:!?)]*'\xc2\xbb"
_PROSE = re.compile(r"(?:[\w\x80-\xff]+(?:['/-][\w\x80-\xff]+)*|[-:>]{1,3})?[.,;:?!)]*\Z")
_TOKENS = 14
_SPACED = re.compile(r"[\"'`*]{0,3}[:,.?)]?[\"'`*]{0,3}(?:\s|\Z)")
_SAYS = frozenset("is was ist lautet est es".split()) | {"è", "é", "ã¨", "ã©"}
_AFTER_WORD = re.compile(r"[.!]?[ \t]*(?:\Z|[\r\n])|\\{1,16}[nr]|[.!](?=\s)|[.!]?\\{0,16}[\"'](?=[\s.,}\]\"\\]|\Z)")
_REASON = re.compile(r",?[ ](?:because|since|but|and|until|for now|btw|aber|weil|und)\b")


def _told(view: str, at: int) -> Span | None:
    """Return what a sentence tells after a word for a password: `the password of the server is …`."""
    begin = _SPEAKING.match(view, at)
    if not begin or not _SPACED.match(view, begin.end()):
        return None
    word = last = begin.group().lower()
    before = view[at - 1 : at] if at else ""
    if before in ("_", "-", ".") or (before.isalnum() and not word.startswith(("passw", "kennw"))):
        return None
    close, place = True, begin.end()
    for _ in range(_TOKENS):
        token = _TOKEN.match(view, place, begin.end() + 200)
        if not token or ("\n" in token["sign"] and last[-1] not in (":?." if last == word else ":?")):
            return None
        value = token["word"].rstrip(_CLOSING)
        value = value.rpartition(":")[2] if word.startswith("cred") and re.match(r"[\w.-]+:\w{6}", value) else value
        start = token.start("word") + token["word"].index(value)
        said = value.encode("latin-1").decode("utf-8", "replace")
        odd = is_said(said) if close or "=" in token["sign"] else is_odd(said)
        plain = (
            re.match("passp|contr|clave|sen|.*w", word)
            and (last in _SAYS or view[place - 1] == ":")
            and _is_plain(view, value, start)
        )
        if len(value) >= 5 and (odd or plain):
            return start, start + len(value), "password"
        if not _PROSE.match(token["word"]):
            return None
        last, place = token["word"].lower() or last, token.end()
        close = last in _VERBS or last[-1] in ":>?-\x92\x94" or (close and not value)
    return None


def _is_plain(view: str, value: str, start: int) -> bool:
    """Return True for a word that a sentence gives as the password itself."""
    stop = start + len(value)
    said = value.isalpha() and len(value) > 5 and is_given_password(value) and not _SAID.match(value)
    reason = value.istitle() and len(value) > 7 and _REASON.match(view, stop)
    return bool(said and (_AFTER_WORD.match(view, stop) or reason))


def _is_quoted(view: str, head: int, start: int, given: str, sign: str, name: str, chosen: bool) -> bool:
    """Return True if a value in quotes can be the password that its name tells of."""
    if not sign and not name.startswith("-") and not is_strong(given):
        return False
    if "==" in sign or sign in ("(", "!=") or (sign == "," and not name.startswith("-")) or not chosen:
        return is_strong(given) and not are_plain_words(given)
    if " " in given:
        return is_phrase(given, words=2 if name.isupper() or "_" in name else 3)
    if given.isdigit():
        return len(given) >= 4
    if len(given) < 4 or is_reference(given):
        return False
    if given.isalpha():
        return not is_camel(given)
    return is_given_password(given) and not are_plain_words(given)


def _is_bare(view: str, head: int, start: int, given: str, sign: str, name: str, chosen: bool) -> bool:
    """Return True if a value without quotes can be the password that its name tells of."""
    if is_reference(given) or (given.startswith("!") and view[start + len(given) : start + len(given) + 1] == " "):
        return False
    strong = is_strong(given) and not are_plain_words(given)
    stop = start + len(given)
    spaced = view[start - 1].isspace()
    if name.startswith("-") and sign in ("=", ""):
        return sign == "=" or (is_given_password(given) and not _SAID.match(given))
    if (
        strong
        and sign
        and "==" not in sign
        and len(given) >= 6
        and not _LONG_PARTS.search(given)
        and not is_code(given)
    ):
        return True
    own_line = bool(_LINE_HEAD.search(view[max(0, head - 160) : head]))
    ends = bool(_LINE_END.match(view, stop)) and not _NEXT_CLOSES.match(view, stop)
    line = max(view.rfind("\n", max(0, head - 400), head), view.rfind("\\n", max(0, head - 400), head), 0)
    before = view[line:head]
    called = before.count("(") > before.count(")") or before.rstrip(" \"'").endswith(("var", "let", "const", "val"))
    variable = name.rsplit(".", 1)[-1].replace("-", "_").isupper()
    if not chosen or (not sign and not (own_line and ends)):
        return strong and (bool(sign) and (variable or ends))
    if not sign:
        return strong and len(name) > 4 and not name[0].isupper()
    if called:
        return strong and not re.fullmatch(r"[\w.]+", given)
    camel = is_camel(given)
    if sign == "=" and not spaced:
        return _is_set(view, head, stop, given, own_line and ends, variable, strong)
    if sign == ":":
        return _is_listed(view, head, stop, given, (own_line, ends, spaced), before, name, strong)
    if sign not in ("=", "=>") or not own_line or not ends:
        return False
    if strong:
        return not re.fullmatch(r"[\w.]+", given) or (len(given) >= 8 and not camel and "_" not in given)
    if camel or given.endswith("!"):
        return False
    above = re.sub(r"\\{1,16}n", "\n", view[max(0, line - 600) : line + 1])
    section = bool(_SECTION.search(above)) and "(" not in above and "import " not in above
    plain = given.isalpha() and given.islower() and len(given) >= 8 and not _SAID.match(given)
    return bool(_PROPERTY.match(name)) or plain or section


def _is_set(view: str, head: int, stop: int, given: str, line: bool, variable: bool, strong: bool) -> bool:
    """Return True for `NAME=value`, as shells, `.env` files, connection strings and commands have it."""
    camel = is_camel(given) and given.isalpha()
    if variable or line:
        return variable or not camel
    after = view[stop : stop + 1]
    listed = re.search(r"\w\s?=[^=]*[;,]\s?[\w ]*$|^[;,]\s?[\w ]+=", view[max(0, head - 80) : head])
    if after in (";", ",") and not listed:
        connection = re.match(r"[;,]\s?[A-Za-z][\w ]*=[^=]", view[stop : stop + 60])
        return bool(connection) or (strong and not is_camel(given))
    return not _NEXT_CLOSES.match(view, stop) and not camel


def _is_listed(
    view: str, head: int, stop: int, given: str, place: tuple[bool, bool, bool], before: str, name: str, strong: bool
) -> bool:
    """Return True for `name: value`, as YAML and people have it."""
    own_line, ends, spaced = place
    after, camel = view[stop : stop + 1], is_camel(given)
    if (_TYPE.match(given) and name[0].islower()) or (
        name.lower() == "pass" and not _USER_NEAR.search(view, max(0, head - 200), stop + 200)
    ):
        return False
    brace = before.rfind("{")
    quote = before[brace + 1 : brace + 2]
    braced = brace >= 0 and before.count(quote if quote and quote in "'\"`" else '"', brace) % 2 == 0
    if strong and not given.isdigit():
        code = after in (",", ";", ")", "}") and (camel or re.fullmatch(r"\w+", given) is not None) and not own_line
        return (own_line and ends) or (spaced and not code and not braced)
    user = bool(_USER.search(before))
    if not spaced or braced or camel or (not given.isdigit() and are_plain_words(given)):
        return False
    if ends and (own_line or user):
        return True
    compound = len(_PARTS.findall(name)) > 1 and "secret" not in name.lower()
    told = after == " " and (compound or "wort" in name.lower()) and not _DESCRIBED.match(view, stop)
    return len(given) >= 6 and not _SAID.match(given) and (ends or told or (user and after not in (",", ";")))
