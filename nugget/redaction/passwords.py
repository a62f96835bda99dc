"""Passwords that are plain words, known by where they stand: in a setting, on a command line, in a sentence.

A word alone tells nothing, so what counts is the place. `password: kaffeepause` at the end of a line of its own is a
setting; `password: string,` in a signature is code. Where both are possible, a leaked password is worse than a lost
word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nugget.redaction.judging import is_not_placeholder
from nugget.redaction.words import is_phrase, is_reference

_PASSWORD = re.compile(
    r"(?:passwords?|passwd|passwort|passphrase|kennwort|pwd|^(?:db|root|user|admin|my|smtp|ftp|ldap)?pw)$"
    r"|^(?:passe|contrase\w*)$|^(?!by|com|encom|tres|sur|under|over|im|bom)\w*pass$"
)
_TRAILERS = frozenset("confirm confirmation again repeat old new plain raw prod dev staging test local value".split())
_SECRET_OF = frozenset(
    "client app application jwt session shared cookie auth api oauth signing hmac webhook consumer flask django "
    "nextauth access refresh token encryption master".split()
)
"""What has a secret that people choose: `JWT_SECRET`, `client_secret`."""

_LINE_HEAD = re.compile(
    r"(?:^|[\n\r]|\\[nr]|(?<=[=:(,])\s?\\{0,16}[\"'`]|^\\{0,16}[\"'`])"
    r"(?:[ \t>*+|#-]|\\t|\d+(?:→|\t|\\{1,16}(?:u2192|t)|:|[ ]*\|)|[\w./-]{1,80}:\d+:|[\w./-]{1,80}\.\w{1,10}[-:])*"
    r"(?:(?:export|set|setx|ENV|ARG|env|-e|local|declare(?: -x)?|and|with|(?i:the|your|use|das|dein|le|la|el|mot de))"
    r"\s+|\$env:)?\\{0,16}[\"'`*]{0,3}"
    r"(?P<name>[\w.\[\]-]*)$"
)
_LINE_END = re.compile(
    r"(?:\*\*|[.!])?[ \t]*(?:[#;]\s[^\n]*|//\s[^\n]*|\([^\n()]*\))?(?:\Z|[\r\n]|\\{1,16}[nr]|\\{0,16}[\"'`]|[|])"
)
_NEXT_CLOSES = re.compile(r"[ \t]*(?:\r?\n|\\{1,16}n)(?:[ \t]|\d+→)*[)}\]]")
_USER_BEFORE = re.compile(
    r"(?i)\b(?:user(?:[ _]?name)?|login|e-?mail|host|account|benutzer(?:name)?|uid)\b[^\n({]{0,80}$"
)
_USER_NEAR = re.compile(r"(?i)\b(?:user(?:[ _]?name)?|login|e-?mail|host|hostname|account|uid|port)[\"']?\s?[:=]")
_SECTION = re.compile(r"(?m)(?:^|\")\s{0,4}\[[\w .:/\"-]{1,60}\]\s*$")
_PROPERTY = re.compile(
    r"(?i)^(?:(?!self\.|this\.|cls\.|user\.|form\.|req\.|request\.)(?:[\w-]+\.){2,8}[\w-]+$|"
    r"(?:spring|db|database|datasource|jdbc|mail|smtp|server|redis|rabbitmq|kafka|mysql|postgres|ldap|ssl|javax|quarkus|"
    r"hibernate|keystore|truststore|sonar|nexus|ftp|jmx)[.-])"
)
_DESCRIBED = re.compile(r"(?i)[ ](?:[\w-]+[ ]){0,2}(?:password|passwd|secret|credential|user|login|used)s?\b")
_TAG = re.compile(r"!\w+$")
"""The tag of a YAML value: `!Ref DbPassword`."""
_CAMEL = re.compile(r"[a-z0-9][A-Z]")
_TYPE = re.compile(r"^\[?(?:[A-Z][a-z]+){2,}!?\]?!?$|^[A-Z][A-Za-z]*\??!?\]!?$|^(?:[A-Z][a-z]+)+!$")
_SAID = re.compile(r"^(?:[a-z]+(?:ed|ing|able|ible|ally|ly|less|ful|ous|ive|ent|ant|al|ic))$")
_AFTER_WORD = re.compile(r"[ \t]*(?:[.!]?[ \t]*(?:\Z|[\r\n])|\\{1,16}[nr]|[.!](?=\s)|[.!]?\\{0,16}[\"'])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a value stands: its name from `name` on, the value from `start` to `end`, and what is between them."""

    name: int
    start: int
    end: int
    sign: str
    quoted: bool
    flag: bool


def is_chosen_word(text: str, place: Place, *, secret: bool) -> bool:
    """Whether the value at `place` is a password (or with `secret`, a secret that people choose) by where it stands."""
    given = text[place.start : place.end]
    if not 3 <= len(given) <= 256 or not is_not_placeholder(given, letters=3):
        return False
    head = text[max(0, place.name - 40) : place.name]
    name = re.search(r"[A-Za-z0-9_.-]*$", head)
    full = (name.group() if name else "") + _name_on(text, place)
    if not (_names_a_secret(full) if secret else _names_a_password(full)):
        return False
    if secret and len(given) < 6:
        return False
    return _is_quoted_password(text, place, given) if place.quoted else _is_bare_password(text, place, given, full)


def is_password_word(word: str) -> bool:
    """Whether a word of a name, in lower case, means a password: `pgpassword` and `userpass`, not `compass`."""
    return _PASSWORD.search(word) is not None


def _names_a_password(name: str) -> bool:
    """Whether a name is a password's own: `db_password` and `PGPASSWORD`, not `password_hint` nor `compass`."""
    parts = _parts(name)
    while len(parts) > 1 and (parts[-1] in _TRAILERS or parts[-1].isdigit()):
        parts.pop()
    return bool(parts) and is_password_word(parts[-1])


def _names_a_secret(name: str) -> bool:
    parts = _parts(name)
    if parts[-1:] == ["key"]:
        parts.pop()
    return parts[-1:] == ["secret"] and (bool(_SECRET_OF & set(parts)) or name.rsplit(".", 1)[-1].isupper())


def _parts(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-zñ]+|\d+", name)]


def _name_on(text: str, place: Place) -> str:
    found = re.match(r"[\wñ-]{0,60}", text[place.name : place.start])
    return found.group() if found else ""


def _is_quoted_password(text: str, place: Place, given: str) -> bool:
    sign = place.sign.strip()
    if sign in ("==", "===", "!=", "!==", "("):
        return False
    if (sign == "," or not sign) and not place.flag:
        return False
    if " " in given:
        written = _name_on(text, place).isupper() or text[place.name - 1 : place.name] in ("_", "-", ".")
        return is_phrase(given, words=2 if written else 3)
    if given.isdigit():
        return len(given) >= 4
    if is_reference(given) or len(given) < 4:
        return False
    if re.fullmatch(r"[A-Za-zÀ-ÿ]+", given):
        return not _CAMEL.search(given)
    if re.fullmatch(r"[a-z]+(?:[_-][a-z]+)+", given):
        return is_phrase(given.replace("_", "-"))
    return _is_more_than_a_word(given)


def _is_bare_password(text: str, place: Place, given: str, name: str) -> bool:
    if is_reference(given) or (_TAG.match(given) and text[place.end : place.end + 1] == " "):
        return False
    if place.flag and (place.sign.strip() in ("=", "") or place.sign.isspace()):
        return place.sign.strip() == "=" or not _SAID.match(given)
    farthest = max(0, place.name - 400)
    escaped = text.rfind("\\n", farthest, place.name)
    line_start = max(text.rfind("\n", farthest, place.name) + 1, escaped + 2 if escaped >= 0 else 0, farthest)
    before = text[line_start : place.name]
    called = before.count("(") > before.count(")") or before.rstrip(" \"'").endswith(("var", "let", "const", "val"))
    own_line = bool(_LINE_HEAD.search(text[max(0, place.name - 160) : place.name]))
    ends = bool(_LINE_END.match(text, place.end)) and not _NEXT_CLOSES.match(text, place.end)
    sign = place.sign
    if sign.strip(" :").isalpha():
        return _is_said(text, place, given)
    if called:
        return _is_more_than_a_word(given) and not re.fullmatch(r"[\w.]+", given)
    if sign == "=":
        return _is_set(text, place, given, name, own_line=own_line, ends=ends)
    if sign.strip() == ":":
        return _is_listed(text, place, given, name, own_line=own_line, ends=ends, before=before)
    if sign.strip() in ("=", "=>") and own_line and ends:
        return _is_assigned(text, place, given, name, line_start)
    return False


def _in_braces(before: str) -> bool:
    """Whether a brace was opened on the line that a string does not hold, as in `{ user: x, password: y }`."""
    brace = before.rfind("{")
    quote = before[brace + 1 : brace + 2]
    return brace >= 0 and before.count(quote if quote and quote in "'\"`" else '"', brace) % 2 == 0


def _is_set(text: str, place: Place, given: str, name: str, *, own_line: bool, ends: bool) -> bool:
    """`NAME=value`, as shells, `.env` files, connection strings and commands have it."""
    if name.rsplit(".", 1)[-1].replace("-", "_").isupper():
        return True
    if ends and own_line:
        return not (_CAMEL.search(given) and given.isalpha())
    after = text[place.end : place.end + 1]
    if after in (";", ",") and not re.search(
        r"\w\s?=[^=]*[;,]\s?[\w ]*$|^[;,]\s?[\w ]+=", text[max(0, place.name - 80) : place.name]
    ):
        connection = re.match(r"[;,]\s?[A-Za-z][\w ]*=[^=]", text[place.end : place.end + 60])
        return bool(connection) or (_is_more_than_a_word(given) and not _CAMEL.search(given))
    return not _NEXT_CLOSES.match(text, place.end) and not (_CAMEL.search(given) and given.isalpha())


def _is_listed(text: str, place: Place, given: str, name: str, *, own_line: bool, ends: bool, before: str) -> bool:
    """`name: value`, as YAML and people have it."""
    if _TYPE.match(given) or not place.sign.rstrip(" ").endswith(":"):
        return False
    after = text[place.end : place.end + 1]
    spaced = place.sign[-1:].isspace()
    if _parts(name) == ["pass"] and not _USER_NEAR.search(text, max(0, place.name - 200), place.end + 200):
        return False
    if _is_more_than_a_word(given) and not given.isdigit():
        if own_line and ends:
            return True
        code = after in (",", ";", ")", "}") and (bool(_CAMEL.search(given)) or re.fullmatch(r"\w+", given) is not None)
        return spaced and not code and not _in_braces(before)
    if not spaced:
        return False
    if ends and (own_line or _USER_BEFORE.search(before)):
        return given.isdigit() or not _CAMEL.search(given)
    telling = (len(_parts(name)) > 1 and "secret" not in name.lower()) or "wort" in name.lower()
    told = after == " " and telling and not _DESCRIBED.match(text, place.end)
    alone = ends or told
    if alone and len(given) >= 6 and not _in_braces(before) and not _CAMEL.search(given):
        return not _SAID.match(given)
    return bool(_USER_BEFORE.search(before)) and not _in_braces(before) and after not in (",", ";") and len(given) >= 6


def _is_assigned(text: str, place: Place, given: str, name: str, line_start: int) -> bool:
    """`name = value` without quotes: in most languages a variable, in INI files and properties the value itself."""
    if _is_more_than_a_word(given) and not given.endswith("!"):
        return not re.fullmatch(r"[\w.]+", given) or (len(given) >= 8 and not _CAMEL.search(given) and "_" not in given)
    if _CAMEL.search(given):
        return False
    if _PROPERTY.match(name):
        return True
    if len(given) >= 8 and given.isalpha() and given.islower() and not _SAID.match(given):
        return True
    above = re.sub(r"\\{1,16}n", "\n", text[max(0, line_start - 600) : line_start])
    return bool(_SECTION.search(above)) and "(" not in above and "import " not in above


def _is_said(text: str, place: Place, given: str) -> bool:
    """`the password is value`."""
    if _is_more_than_a_word(given) and not given.isdigit():
        return not _CAMEL.search(given) or bool(_AFTER_WORD.match(text, place.end))
    if given.isdigit():
        return len(given) >= 4
    return len(given) >= 6 and given.isalpha() and not _SAID.match(given) and bool(_AFTER_WORD.match(text, place.end))


def _is_more_than_a_word(value: str) -> bool:
    """Whether a value is more than a word: letters with digits or signs, or four digits and more."""
    if value.isdigit():
        return len(value) >= 4
    letters = any(map(str.isalpha, value))
    signs = any(not char.isalnum() and char not in "_-./:" for char in value)
    digits = any(map(str.isdigit, value))
    words = re.fullmatch(r"[A-Za-z]*(?:[_.:/-]+(?:[A-Za-z]+|\d{1,4}))+", value)
    return letters and (signs or digits) and not (words and not signs)
