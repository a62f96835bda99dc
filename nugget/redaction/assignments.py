"""Secrets that are known by the name they are given: `password = "…"`, `"client_secret": "…"`, `--token …`.

Each word is looked up by plain search, so that the regular expressions run only where one stands. A value
counts when it is neither a placeholder nor code, and looks issued (for keys and tokens) or chosen (for
passwords).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import hexdigits

from nugget.redaction.judging import entropy, is_not_placeholder
from nugget.redaction.passwords import Place, is_chosen_word, is_password_word
from nugget.redaction.words import is_stop_word

_PASSWORD_WORDS = ("pass", "pw", "kennwort", "contrase")
"""What a password's name holds; `pass` stands for `password`, `passwd`, `passphrase`, `Passwort`, `mot de passe`."""

_KEY_WORDS = (
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "accesskey",
    "access_key",
    "access-key",
    "privatekey",
    "private_key",
    "auth_key",
    "authkey",
    "encryption_key",
    "signing_key",
    "master_key",
    "credential",
    "account_key",
    "accountkey",
    "webhook_key",
    "license_key",
    "api key",
    "access key",
)

_CHOSEN_WORDS = (*_PASSWORD_WORDS, "secret")
_TAIL = re.compile(r"[A-Za-z0-9_ñ-]{0,40}")
_ASSIGNED = re.compile(
    r"""(?:\\{0,16}["'`])?\]?(?:\s?:\s?[A-Za-z]\w*(?=\s?=))?
    (?:\s(?:for|of|to|on|für|zu)(?:\s[\w.@-]+){1,4}?(?=:\s|\s(?:is|was|ist|lautet)\b))?
    (?P<sign>\s(?:is|was|ist|lautet|est|es):?\s|\s{0,8}(?::=|=>|===?|!==?|=|:)\s{0,8}|\s{0,2},\s{0,2}(?=\\{0,16}["'])|\s(?=\S)|\((?=["']))
    (?P<open>\\{0,16}["'`]{1,3})?(?:(?P<prefix>[A-Za-z]{1,8})\s)?""",
    re.VERBOSE,
)
_QUOTED_END = re.compile(r"[^\n]{0,512}?(?=\\{0,16}[\"'`])")
_BARE = re.compile(r"(?:[^\s,;\"'`<>(){}\[\]|\\&]+|&(?!\w+=))+")
_LONGEST = 512
"""Characters of the longest value that is looked at."""
_PAIR = re.compile(
    r"(?i)\\{0,16}[\"']?\s*,?(?:\\{1,16}n)?\s*\\{0,16}[\"']?value\\{0,16}[\"']?\s?[=:]\s?"
    r"(?P<open>\\{0,16}[\"'])?(?P<value>(?(open)[^\"'\n\\]{3,256}|[^\s\"'\\<>{}()\[\],;]{3,256}))"
)
"""A name and its value as two fields: `name: DB_PASSWORD` with `value: …` below it, `key="password" value="…"`."""

_NOT_A_SECRET = frozenset(
    """
    hash hashes hashed digest count counts counter length len limit limits max min budget tokens tokenizer
    tokenize tokenized type types name names path paths file files filename dir directory folder url uri
    endpoint host page next cursor pagination continuation policy field fields label labels prompt hint pattern
    regex regexp format column error errors message messages title description version manager scanner scanning
    rotation reset strength status expiry expires expiration ttl length usage used input output cache cached
    total class classname selector arn ref refs reference exists test tests helper public pubkey symbol
    position index offset kind stream checksum sha sha256 sha1 md5 salt nonce state csrf xsrf uuid guid secretsmanager
    """.split()
)
"""Words that make a name one of something else: `token_count`, `secret_name`, `password_hash`."""

_PROSE = re.compile(r"^[A-Za-z][a-z']*(?:[ ,.!?:;-]+[A-Za-z][a-z']*)+[.!?:]?$")
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+$|[A-Z][A-Z0-9]*_[A-Z0-9_]*$|[A-Za-z]+$|--?[a-z]")
"""How a value without quotes begins that is code: it holds no brackets, where it ends."""
_CHECKS = re.compile(r"^\w+(?::[\w,]+)?(?:\|\w+(?::[\w,]+)?)+$|^!\w+$")
"""The checks of a form field (`required|min:8`), the tag of a YAML value (`!vault`)."""
_UUID = re.compile(r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
_DIGEST = re.compile(r"^(?:sha\d{1,3}|md5|h1|blake\w*)[-:=]|^\$(?:2[aby]|argon2|pbkdf2)")
_WORD = re.compile(r"^(?:[A-Z]?[a-z]+|[A-Z]+)\d{0,4}$|^\d{1,4}$|^v\d+$")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_LONG_PARTS = re.compile(r"(?<![a-z])[a-z]{3,}[^a-z].*?[a-z]{3}")
"""Two runs of lower case letters, as in `make_session` and `getPassword`."""


def assigned_secrets(text: str, lowered: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, kind) of each secret that is given a telling name; `lowered` is the text in lower case."""
    for words, kind in ((_PASSWORD_WORDS, "password"), (_KEY_WORDS, "secret")):
        for word in words:
            position = lowered.find(word)
            while position >= 0:
                end = position + len(word)
                place = _value_behind(text, position, end)
                if place and (
                    _is_secret(text, place, kind=kind)
                    or (word in _CHOSEN_WORDS and is_chosen_word(text, place, secret=kind == "secret"))
                ):
                    yield place.start, place.end, kind
                    end = place.end
                position = lowered.find(word, end)


def _value_behind(text: str, start: int, end: int) -> Place | None:
    """Where the value stands that the name at `start` is given."""
    tail = _TAIL.match(text, end)
    after = tail.end() if tail else end
    if "value" in text[after : after + 24].lower():
        pair = _PAIR.match(text, after)
        if pair:
            return Place(
                name=start, start=pair.start("value"), end=pair.end("value"), sign="=", quoted=True, flag=False
            )
    assigned = _ASSIGNED.match(text, after)
    if not assigned:
        return None
    sign = assigned.group("sign")
    opened = assigned.group("open")
    flag = _is_flag(text, start)
    if sign.isspace() and not flag and (not opened or text[start:after].lower() == "pass"):
        return None
    begin = assigned.end("open") if opened else assigned.end("sign")
    if opened:
        close = _QUOTED_END.match(text, begin)
        if not close or close.end() == begin:
            return None
        return Place(name=start, start=begin, end=close.end(), sign=sign, quoted=True, flag=flag)
    compares = "==" in sign or "!=" in sign
    if compares or sign.strip() in (",", "("):
        return None
    bare = _BARE.match(text, begin, begin + _LONGEST)
    if not bare:
        return None
    # `password=make_one(…)` is code: the call's name is no value.
    if bare.end() < len(text) and text[bare.end()] in "([":
        return None
    stop = begin + len(bare.group().rstrip(".:"))
    return Place(name=start, start=begin, end=stop, sign=sign, quoted=False, flag=flag)


def _is_flag(text: str, start: int) -> bool:
    head = text[max(0, start - 32) : start]
    return bool(re.search(r"(?:^|[\s\"'`\[(,;&|])--?[\w-]*$", head))


def _is_secret(text: str, place: Place, *, kind: str) -> bool:
    name_start, start, quoted = place.name, place.start, place.quoted
    given = text[start : place.end]
    if not 6 <= len(given) <= _LONGEST:
        return False
    parts = _name_parts(text, name_start, start)
    if kind == "password" and (not any(map(is_password_word, parts)) or (parts == {"pass"} and not quoted)):
        return False
    if place.sign == ":" and text[name_start - 1 : name_start] == ":":  # the name of a resource: `arn:…:secret:name`
        return False
    if parts & _NOT_A_SECRET or _DIGEST.match(given):
        return False
    if _UUID.match(given):
        return {"api", "key"} <= parts
    if kind == "password":
        variable = not quoted and _is_variable(text, name_start)
        likely = _is_chosen(given, quoted=quoted or variable, variable=variable, phrase="passphrase" in parts)
    else:
        likely = _is_issued(given, quoted=quoted)
    return likely and is_not_placeholder(given)


def _name_parts(text: str, start: int, end: int) -> set[str]:
    """The words of the identifier around `start`: `dbPassword`, `DB_PASSWORD` -> {db, password}."""
    head = start
    while head > 0 and start - head < 40 and (text[head - 1].isalnum() or text[head - 1] in "_-"):
        head -= 1
    tail = start
    while tail < end and (text[tail].isalnum() or text[tail] in "_-"):
        tail += 1
    return {part.lower().rstrip("0123456789") for part in _PARTS.findall(text[head:tail])}


def _is_variable(text: str, position: int) -> bool:
    """Whether the name at `position` is an environment variable's, whose values need no quotes."""
    return text[position : position + 4].isupper()


def _is_chosen(value: str, *, quoted: bool, variable: bool, phrase: bool) -> bool:
    """Whether a value can be a password that somebody chose."""
    if _PROSE.match(value):
        return phrase and quoted
    if (" " in value and not phrase) or is_stop_word(value) or _CHECKS.match(value):
        return False
    if not quoted and (_LONG_PARTS.search(value) or _is_code(value)):
        return False
    if re.match(r"^[A-Za-z_.]+$", value):
        return variable and value.islower() and len(value) >= 8
    has_digit = any(map(str.isdigit, value))
    has_symbol = any(not char.isalnum() and char not in "_-./:" for char in value)
    has_letter = any(map(str.isalpha, value))
    return has_letter and (has_digit or has_symbol) and not _all_words(value)


def _is_issued(value: str, *, quoted: bool) -> bool:
    """Whether a value looks like a key that a machine made."""
    if len(value) < 12 or " " in value or (not quoted and _is_code(value)):
        return False
    if len(value) >= 32 and set(value) <= set(hexdigits):
        return entropy(value) > 2.5
    if not any(map(str.isdigit, value)):
        mixed = any(map(str.isupper, value[1:])) and any(map(str.islower, value))
        return len(value) >= 24 and mixed and value.isalpha() and entropy(value) >= 4.0
    if not any(map(str.isalpha, value)):
        return False
    return entropy(value) >= 3.0 and not _all_words(value)


def _is_code(value: str) -> bool:
    """Whether a value without quotes reads as code: `settings.token`, but not `Ab3dEf6hIj9k.Lm2nOp5qRs8t`."""
    return _CODE.match(value) is not None and not any(map(_is_jumble, re.split(r"\.|::|->", value)))


def _is_jumble(name: str) -> bool:
    """Whether digits and letters of both cases change so often that no name is written so."""
    mixed = any(map(str.isdigit, name)) and any(map(str.isupper, name)) and any(map(str.islower, name))
    return len(name) >= 12 and mixed and 3 * len(_PARTS.findall(name)) > len(name)


def _all_words(value: str) -> bool:
    """Whether a value is made of words: `staging-db-password-2`, `oauth2_client_v1`."""
    parts = [part for part in re.split(r"[-_./:@ ]", value) if part]
    return len(parts) > 1 and all(_WORD.match(part) for part in parts)
