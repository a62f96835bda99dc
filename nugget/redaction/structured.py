"""Secrets that only structure tells: Kubernetes Secrets, rows of SQL, sentences, recovery codes, encoded files."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from nugget.redaction.judging import entropy, is_given_password, lowered
from nugget.redaction.words import is_phrase, is_stop_word

Span = tuple[int, int, str]

_FAR = 20_000
"""Characters to either side in which the parts of one document are looked for."""

_KUBERNETES = re.compile(r"kind[\"']?\s{0,4}:\s{0,4}[\"']?Secret\b")
_DATA = re.compile(r"(?m)^(?P<indent>[ \t]*)(?:data|stringData):[ \t]*$\n(?P<body>(?:(?P=indent)[ \t]+\S.*(?:\n|\Z))+)")
_JSON_DATA = re.compile(r"\"(?:data|stringData)\"\s{0,4}:\s{0,4}\{(?P<body>[^{}]{1,16000})\}")
_ENTRY = re.compile(
    r"(?m)^[ \t]*[\w.\"'-]+:[ \t]+[\"']?(?P<value>[^\s\"'|>][^\s\"']{2,})|^[ \t]+(?P<line>[^\s:#][^\n]{3,})$"
)
_JSON_ENTRY = re.compile(r"\"[\w.-]+\"\s{0,4}:\s{0,4}\"(?P<value>[^\"\s]{3,})\"")

_INSERT = re.compile(r"(?i)insert\s+into\s+[^\s(]{1,80}\s*\((?P<columns>[^()]{1,800})\)\s*values\s*")
_ROW = re.compile(r"\s*,?\s*\((?P<row>(?:[^()']|'(?:[^']|'')*'|\([^()']*\)){1,4000})\)")
_CELL = re.compile(r"\s*(?:N|E)?'(?P<value>(?:[^']|'')*)'\s*(?:,|$)|[^,]*(?:,|$)")
_SECRET_COLUMN = re.compile(
    r"(?i)(?:passw|passwd|pwd|secret|token|api_?key|private_?key)(?!.*(?:hash|digest|salt|_at|_id))"
)

_WORD = (
    r"(?:pass(?:word|wd|phrase|wort|code|e)?|pwd|kennwort|contraseñ?n?a|clave|senha|wachtwoord|"
    r"parola|hasło|lösenord|пароль|(?:api|access|secret)[ -]?key|token)"
)
_VERB = r"(?:is|was|are|to|ist|war|lautet|auf|est|es|è|é|en|zu|as)"
_TOLD = re.compile(
    rf"(?i)\b{_WORD}\b(?:(?:\s[\w./@-]{{1,24}}){{0,5}}?\s{_VERB}\b\s?:?)?\s[\"'`*«]{{0,3}}(?P<value>[^\s\"'`<>\\]{{5,128}})"
)
_AS_WORD = re.compile(rf" as (?:the |a |my )?{_WORD}\b")
_PAIR = re.compile(
    r"[\w -]{3,16}\b[^\n/:]{0,60}?[ :][\"'`]?[\w.@-]{2,40}[\"'`]?\s?[/:]\s?[\"'`]?(?P<value>[^\s\"'`<>/\\]{6,64})"
)
_PIN = re.compile(r"\b[\w -]{3,17}(?:\s(?:is|was|ist|lautet|est|es|è|é)|:|=)\s?[\"'`]?(?P<value>\d{4,8})\b(?![-.:/]\d)")
_PHRASE = re.compile(
    r"\w+\b[\"']?(?:\s(?:is|ist|est|es)\s?:?|\s?[:=])\s?[\"'`]?(?P<value>[a-z]{3,9}(?:[ ,-]{1,2}[a-z]{3,9}){3,23})"
)
_HEAD = re.compile(r"\w*[^\n]{0,40}?[:\n]")
_STEMS = (
    ("pass", "pwd", "kennwort", "contrase", "clave", "senha", "wachtwoord", "parola", "hasło", "lösenord", "пароль",
     "api key", "access key", "secret key", "token"),
    ("login", "log in", "log-in", "log into", "sign in", "credential", "creds", "zugangsdaten", "anmelde",
     "identifiants", "credenciales", "credenziali"),
    ("pin", "passcode", "otp", *(f"{kind} code" for kind in "verification security access 2fa mfa door".split())),
    ("phrase", "mnemonic", "seed words"),
    tuple(f"{kind}{sign}code" for kind in ("recovery", "backup", "emergency", "scratch", "one-time") for sign in " -"),
)  # fmt: skip
"""What is looked for first, as plain search is fast, for each of the patterns of prose."""
_CODE = re.compile(
    r"[\s,;*•|-]{0,8}(?:\d{1,2}[.)]\s)?(?P<value>[A-Za-z0-9]{4,10}(?:[- ][A-Za-z0-9]{4,10}){0,3})(?=[\s,;|.]|\Z)"
)
_ENCODED = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}")
_SETTING = re.compile(
    r"(?m)^(?:export )?\w*(?:PASS|SECRET|TOKEN|KEY|PWD|CREDENTIAL)\w*=\S{4,}|PRIVATE KEY|://[^\s:/]+:[^\s@]+@"
)


def structured_secrets(text: str) -> Iterator[Span]:
    """Yield the start, end and kind of each secret that its place in a document or a sentence tells."""
    small = lowered(text)
    if "secret" in small and "kind" in small:
        yield from _kubernetes(text)
    yield from _rows(text, small)
    yield from _told(text, small)
    for word in {word for word in text.split() if len(word) >= 40}:
        for found in _ENCODED.finditer(word):
            if _holds_settings(found.group()):
                yield from ((at, at + len(found.group()), "encoded-secret") for at in places(text, found.group()))


def _kubernetes(text: str) -> Iterator[Span]:
    """Yield the values of Secrets; a line break or quote that JSON escaped counts as one."""
    view = text.replace("\\n", " \n").replace('\\"', ' "')
    last = -1
    for kind in (kind for at in places(view, "kind") if (kind := _KUBERNETES.match(view, at))):
        begin = max(view.rfind("\n---", max(0, kind.start() - _FAR), kind.start()), kind.start() - _FAR, last, 0)
        stop = view.find("\n---", kind.end(), kind.end() + _FAR)
        last = stop if stop >= 0 else min(len(view), kind.end() + _FAR)
        for bodies, entries in ((_DATA, _ENTRY), (_JSON_DATA, _JSON_ENTRY)):
            for body in bodies.finditer(view, begin, last):
                for entry in entries.finditer(view, *body.span("body")):
                    group = entry.lastgroup or "value"
                    if is_given_password(entry[group].strip()):
                        yield *entry.span(group), "kubernetes-secret"


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


def places(text: str, part: str) -> Iterator[int]:
    """Yield where a part begins in a text."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def _told(text: str, small: str) -> Iterator[Span]:
    told, pairs, pins, phrases, codes = ([at for stem in stems for at in places(small, stem)] for stems in _STEMS)
    for pattern, starts in ((_TOLD, told), (_PAIR, pairs)):
        for found in (found for at in starts if (found := pattern.match(text, at))):
            value = found["value"].rstrip(".,;:!?)]*»")
            if _is_strong(value):
                yield found.start("value"), found.start("value") + len(value), "password"
    for found in _AS_WORD.finditer(small):
        value = text[max(0, found.start() - 64) : found.start()].split()[-1:]
        if value and len(value[0]) >= 6 and _is_strong(value[0].strip("\"'`")):
            yield found.start() - len(value[0]), found.start(), "password"
    for at in pins:
        if pin := _PIN.match(small, at):
            yield *pin.span("value"), "pin"
    for at in phrases:
        if phrase := _PHRASE.match(text, at):
            words = phrase["value"].replace(",", " ").split()
            stops = sum(is_stop_word(word) for word in words)
            if is_phrase(phrase["value"], words=4) or (len(words) > 10 and stops <= len(words) // 6):
                yield *phrase.span("value"), "passphrase"
    for at in codes:
        head = _HEAD.match(text, at)
        end = head.end() if head else len(text)
        while (code := _CODE.match(text, end)) and any(map(str.isdigit, code["value"])):
            yield *code.span("value"), "recovery-code"
            end = code.end()


def _is_strong(value: str) -> bool:
    """Return True for a password that no sentence holds as a word: letters with digits, or with signs within."""
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    signs = re.search(r"[!#$%&*+?@^~]", value[1:-1])
    code = re.search(
        r"[({\[\]})]|^[\w-]+(?:[./:][\w-]+)+$|^[vV]?\d+[a-z]{0,3}$|^[A-Z]{2,6}-?\d+$|^\d[\d.,:%-]*\w{0,3}$", value
    )
    return letters and (digits or bool(signs)) and not code and is_given_password(value) and entropy(value) >= 2.0


def _holds_settings(encoded: str) -> bool:
    """Return True for base64 of a file of settings with a secret, as `.env` files and kubeconfigs are passed on."""
    try:
        start = base64.b64decode(encoded[:48]).decode("ascii")
        if not all(char.isprintable() or char in "\r\n\t" for char in start):
            return False
        body = encoded.rstrip("=")
        body = body[: len(body) - (len(body) % 4 == 1)]
        return bool(_SETTING.search(base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")))
    except ValueError:
        return False
