"""Secrets that only structure tells: settings by name, Kubernetes Secrets, rows of SQL, encoded files.

A word alone tells nothing, so what counts is its place. `password: kaffeepause` on a line of its own is a setting;
`password: string,` in a signature is code. Where both are possible, a leaked password is worse than a lost word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from nugget.redaction.judging import (
    OTHER_NAMES,
    is_code,
    is_generated,
    is_given_password,
    is_not_placeholder,
    is_phrase,
    is_reference,
    is_stop_word,
    is_strong,
)

Span = tuple[int, int, str]
_BEFORE, _BEHIND = 600, 700
"""Characters before and behind the stem of a name that are looked at."""

_STEMS = tuple("pass pw kennwort contrase senha clave wachtwoord parola secret token key credential".split())
"""What the name of a secret holds; each is looked for by plain search."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z\x80-\xff]+|\d+")
_PASSWORD = re.compile(
    r"(?:passwords?|passwd|passwort|passphrase|kennwort|pwd|^(?:db|root|user|admin|my|smtp|ftp|ldap|bind|default)?pw)$"
    r"|^(?:passe|contrase.*|senha|clave|wachtwoord)$|^(?!by|com|encom|tres|sur|under|over|im|bom)\w*pass$"
)
_KEY = re.compile(
    r"secret|token|credential|(?:api|access|private|auth|encrypt(?:ion)?|sign(?:ing|ature)?|master|account|webhook|license|"
    r"shared|app|jwt|hmac|cipher|client|storage|function|service|deploy|session|cookie|subscription)key"
)
_TRAILERS = frozenset("confirm confirmation again repeat old new plain raw prod dev staging test local value".split())
_TAIL = re.compile(r"[\w\x80-\xff-]{0,40}")
_ASSIGNED = re.compile(
    r"""(?:\\{0,16}["'`*]{1,2})?\]?(?:\s?:\s?[A-Za-z][\w.<>]*(?=\s?=))?
    (?P<sign>\s{0,8}(?::=|=>|!?={1,3}|:)\s{0,8}|\s{0,2},\s{0,2}(?=\\{0,16}["'])|\((?=["'])|[ \t]{1,8}(?=[^\s&|]))
    (?:[A-Za-z]{1,8}\s(?=[\w+/-]{20}))?(?P<open>(?:[bfr]{1,2}(?=["']))?\*{0,2}\\{0,16}["'`]{1,3})?""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"(?P<value>[^\n\"'`]{1,512}?)(?=\\{0,16}[\"'`])")
_BARE = re.compile(
    r"(?P<value>[^\s,;\"'`<>(){}\[\]|\\&]{1,512}(?:&(?!\w{1,40}=)[^\s,;\"'`<>(){}\[\]|\\&]{0,80}){0,4})(?![(\[])"
)
_PAIR = re.compile(
    r"(?i)\\{0,16}[\"']?\s*,?(?:\\{1,16}n)?\s*\\{0,16}[\"']?value\\{0,16}[\"']?\s?[=:]\s?"
    r"(?P<open>\\{0,16}[\"'])?(?P<value>(?(open)[^\"'\n\\]{3,256}|[^\s\"'\\<>{}()\[\],;]{3,256}))"
)
"""A name and its value as two fields: `name: DB_PASSWORD` with `value: …` below it, `key="password" value="…"`."""
_LINE_HEAD = re.compile(
    r"(?:^|[\n\r]|\\[nr]|[=:(,]\s?\\{0,16}[\"'`]|^\\{0,16}[\"'`])"
    r"(?:[ \t>*+|#-]|\\t|"
    r"\d+(?:â\x86\x92|\t|\\{1,16}(?:u2192|t)|:|[ ]*\|)|[\w./-]{1,80}:\d+:|[\w./-]{1,80}\.\w{1,10}[-:])*"
    r"(?:(?:export|set|setx|ENV|ARG|env|-e|local|declare(?: -x)?|and|with|(?i:the|your|use|das|dein|le|la|el|mot de))"
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
_CAMEL = re.compile(r"[a-z0-9][A-Z]")
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
    if "secret" in small and "kind" in small:
        yield from _kubernetes(view)
    yield from _rows(view, small)


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
    if "value" in view[after : after + 24].lower():
        value = _PAIR.match(view, after)
    if not value:
        assigned = _ASSIGNED.match(view, after)
        if not assigned:
            return None
        sign, quoted = assigned["sign"].strip(), bool(assigned["open"])
        value = (_QUOTED if quoted else _BARE).match(view, assigned.end())
    name = view[head:after]
    parts = [part.lower() for part in _PARTS.findall(name)]
    while len(parts) > 1 and (parts[-1] in _TRAILERS or parts[-1].isdigit()):
        parts.pop()
    is_password = any(map(_PASSWORD.search, parts))
    if not value or not parts or OTHER_NAMES & set(parts) or not (is_password or _KEY.search("".join(parts))):
        return None
    start, given = value.start("value"), value["value"]
    given = given if quoted else given.rstrip(".:")
    if len(given) < 3 or (sign == ":" and view[head - 1 : head] == ":") or (not quoted and sign in (",", "(")):
        return None
    if is_password:
        chosen = bool(_PASSWORD.search(parts[-1]))
        place = (_is_quoted if quoted else _is_bare)(view, head, start, given, sign, name, chosen)
        return (start, start + len(given), "password") if place and is_not_placeholder(given, letters=3) else None
    flag = bool(sign) or name.startswith("-") or quoted
    named = parts[-1] == "secret" or parts[-2:] == ["secret", "key"]
    chosen = named and (len(parts) > 1 or name.isupper()) and len(given) >= 6
    if (flag and is_generated(given, quoted=quoted)) or (
        chosen and (_is_quoted if quoted else _is_bare)(view, head, start, given, sign, name, True)
    ):
        return start, start + len(given), "secret"
    return None


_VERB = r"(?:is|was|are|to|still|be|now|this|ist|war|lautet|auf|est|es|è|é|en|zu|as|with)"
_GAP = r"[^\n:;,\"'`=(){}\[\]]{0,60}?"
_TOLD = re.compile(
    (
        r"(?i)(?:pass(?:word|wd|phrase|wort|code|e)?|pwd|pw|kennwort|contrase.{0,2}a|clave|senha|wachtwoord|parola"
        r"|(?:(?<=api )|(?<=access )|(?<=license )|(?<=secret ))key|secret|token)\b"
        rf"(?:\*{{0,2}}(?:{_GAP}[ ](?P<verb>{_VERB})(?=[ :])[ ]?:?|{_GAP}:)\*{{0,2}})?"
        r"[ \n]{1,3}[\"'`*«]{0,4}(?P<value>[^\s\"'`<>\\]{5,256})"
    )
    .encode()
    .decode("latin-1")
)
"""What a sentence says a password is."""
_SAYS = ("is", "was", "ist", "lautet", "est", "es", "Ã¨", "Ã©")
_AFTER_WORD = re.compile(r"[.!]?[ \t]*(?:\Z|[\r\n])|\\{1,16}[nr]|[.!](?=\s)|[.!]?\\{0,16}[\"'](?=[\s.,}\]\"\\]|\Z)")


def _told(view: str, at: int) -> Span | None:
    """Return what a sentence tells after a word for a password: `the password of the server is …`."""
    if told := _TOLD.match(view, at):
        value = told["value"].rstrip(".,;:!?)]*")
        stop = told.start("value") + len(value)
        word = told["verb"] in _SAYS and value.isalpha() and len(value) >= 6 and not _SAID.match(value)
        plain = word and is_given_password(value) and _AFTER_WORD.match(view, stop)
        said = value.encode("latin-1").decode("utf-8", "replace")
        if plain or (is_strong(said) and not _is_words(value)):
            return told.start("value"), told.start("value") + len(value), "password"
    return None


def _is_quoted(view: str, head: int, start: int, given: str, sign: str, name: str, chosen: bool) -> bool:
    """Return True if a value in quotes can be the password that its name tells of."""
    if not sign and not name.startswith("-") and not is_strong(given):
        return False
    if "==" in sign or sign in ("(", "!=") or (sign == "," and not name.startswith("-")) or not chosen:
        return is_strong(given) and not _is_words(given)
    if " " in given:
        return is_phrase(given, words=2 if name.isupper() or "_" in name else 3)
    if given.isdigit():
        return len(given) >= 4
    if len(given) < 4 or is_reference(given):
        return False
    if given.isalpha():
        return not _CAMEL.search(given)
    return is_given_password(given) and not _is_words(given)


def _is_bare(view: str, head: int, start: int, given: str, sign: str, name: str, chosen: bool) -> bool:
    """Return True if a value without quotes can be the password that its name tells of."""
    if is_reference(given) or (given.startswith("!") and view[start + len(given) : start + len(given) + 1] == " "):
        return False
    strong = is_strong(given) and not _is_words(given)
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
    camel = bool(_CAMEL.search(given))
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
    camel = bool(_CAMEL.search(given)) and given.isalpha()
    if variable or line:
        return variable or not camel
    after = view[stop : stop + 1]
    listed = re.search(r"\w\s?=[^=]*[;,]\s?[\w ]*$|^[;,]\s?[\w ]+=", view[max(0, head - 80) : head])
    if after in (";", ",") and not listed:
        connection = re.match(r"[;,]\s?[A-Za-z][\w ]*=[^=]", view[stop : stop + 60])
        return bool(connection) or (strong and not _CAMEL.search(given))
    return not _NEXT_CLOSES.match(view, stop) and not camel


def _is_listed(
    view: str, head: int, stop: int, given: str, place: tuple[bool, bool, bool], before: str, name: str, strong: bool
) -> bool:
    """Return True for `name: value`, as YAML and people have it."""
    own_line, ends, spaced = place
    after, camel = view[stop : stop + 1], bool(_CAMEL.search(given))
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
    if not spaced or braced or camel or (not given.isdigit() and _is_words(given)):
        return False
    if ends and (own_line or user):
        return True
    compound = len(_PARTS.findall(name)) > 1 and "secret" not in name.lower()
    told = after == " " and (compound or "wort" in name.lower()) and not _DESCRIBED.match(view, stop)
    return len(given) >= 6 and not _SAID.match(given) and (ends or told or (user and after not in (",", ";")))


def _is_words(given: str) -> bool:
    """Return True for words with signs between them of which one is a label or of grammar: `at-least-12-letters`."""
    parts = re.split(r"[-_./: ]", given)
    plain = len(parts) > 1 and all(part.isalpha() or (part.isdigit() and len(part) < 5) for part in parts if part)
    return plain and (any(part and is_stop_word(part) for part in parts) or not any(map(str.isdigit, given)))


_FAR = 20_000
"""Characters to either side in which the parts of one document are looked for."""
_KUBERNETES = re.compile(r"kind[\"']?\s{0,4}:\s{0,4}[\"']?Secret\b")
_DATA = re.compile(r"(?m)^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*$\n(?P<body>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z))+)")
_JSON_DATA = re.compile(r"\"(?:data|stringData)\"\s{0,4}:\s{0,4}\{(?P<body>[^{}]{1,16000})\}")
_ENTRY = re.compile(
    r"(?m)^[ \t]*[\w.\"'-]+:[ \t]+[\"']?(?P<value>[^\s\"'|>][^\s\"']{2,})|^[ \t]+(?P<line>[^\s:#][^\n]{3,})$"
)
_JSON_ENTRY = re.compile(r"\"[\w.-]+\"\s{0,4}:\s{0,4}\"(?P<value>[^\"\s]{3,})\"")


def _kubernetes(text: str) -> Iterator[Span]:
    """Yield the values of Secrets; a line break or quote that JSON escaped counts as one."""
    view = text.replace("\\n", " \n").replace('\\"', ' "')
    last = -1
    for kind in (kind for at in places(view, "kind") if (kind := _KUBERNETES.match(view, at))):
        if kind.start() < last:
            continue
        begin = max(view.rfind("\n---", max(0, kind.start() - _FAR), kind.start()), kind.start() - _FAR, last, 0)
        stop = view.find("\n---", kind.end(), kind.end() + _FAR)
        last = stop if stop >= 0 else min(len(view), kind.end() + _FAR)
        for bodies, entries in ((_DATA, _ENTRY), (_JSON_DATA, _JSON_ENTRY)):
            for body in bodies.finditer(view, begin, last):
                for entry in entries.finditer(view, *body.span("body")):
                    group = entry.lastgroup or "value"
                    if is_given_password(entry[group].strip()):
                        yield *entry.span(group), "kubernetes-secret"


_INSERT = re.compile(r"(?i)insert\s+into\s+[^\s(]{1,80}\s*\((?P<columns>[^()]{1,800})\)\s*values\s*")
_ROW = re.compile(r"\s*,?\s*\((?P<row>(?:[^()']|'(?:[^']|'')*'|\([^()']*\)){1,4000})\)")
_CELL = re.compile(r"\s*(?:N|E)?'(?P<value>(?:[^']|'')*)'\s*(?:,|$)|[^,]*(?:,|$)")
_SECRET_COLUMN = re.compile(
    r"(?i)(?:passw|passwd|pwd|secret|token|api_?key|private_?key)(?!.*(?:hash|digest|salt|_at|_id))"
)


def _rows(text: str, small: str) -> Iterator[Span]:
    for insert in (insert for at in places(small, "insert into") if (insert := _INSERT.match(text, at))):
        columns = [bool(_SECRET_COLUMN.search(column)) for column in insert["columns"].split(",")]
        at = insert.end()
        while any(columns) and (row := _ROW.match(text, at)):
            at = row.end()
            cells = _CELL.finditer(text, *row.span("row"))
            for is_secret, cell in zip(columns, cells, strict=False):
                if is_secret and cell["value"] and is_given_password(cell["value"]) and cell["value"][0] != "$":
                    yield *cell.span("value"), "password"


_KEY_BEGIN = re.compile(r"-{4,5} ?BEGIN (?P<name>[A-Z0-9 ]{0,30})PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_END = re.compile(r"-{4,5} ?END(?: [A-Z0-9 ]{1,60}-{4,5})?")
_KEY_CHARS = 16_384
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=]{24}")
_CUT_KEY = re.compile(
    r"(?:\s*(?:Proc-Type|DEK-Info|Comment|Version): [^\n]*)*"
    r"(?:(?:\s|\\{1,16}[nrt]|\d+(?:â\x86\x92|\|)|[+-](?=[A-Za-z0-9]))*[A-Za-z0-9+/=]{20,})*(?:\s*[A-Za-z0-9+/]+={1,2})?"
)


def private_keys(view: str) -> Iterator[Span]:
    """Yield PEM and OpenPGP blocks, also with escaped line breaks; of a cut one, what there is of it."""
    begins = [*_KEY_BEGIN.finditer(view)] if "PRIVATE KEY" in view else []
    limits = [begin.start() for begin in begins[1:]] + [len(view)] * bool(begins)
    end: re.Match[str] | None = None
    for begin, limit in zip(begins, limits, strict=True):
        if end is None or end.start() < begin.end():
            end = _KEY_END.search(view, begin.end()) or re.compile(r"\Z").search(view)
        limit = min(limit, begin.end() + _KEY_CHARS)
        if end and end.start() < limit:
            stop = end.end()
        else:
            cut = _CUT_KEY.match(view, begin.end(), limit)
            stop = cut.end() if cut else begin.end()
        if _KEY_BODY.search(view, begin.end(), stop):
            yield begin.start(), stop, "private-key"
