"""Judge a value where a secret could be: a placeholder, a reference, a word, or an issued or chosen secret."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from string import hexdigits
from types import SimpleNamespace

RULES = Path(__file__).with_name("rules")
_LOOKED_AT = 160
"""Leading characters by which a value is judged."""

_LISTS = [re.sub("(?m)^#.*$", "", part) for part in (RULES / "words.txt").read_text("utf-8").split("\n\n")]
_WORDS, _GRAMMAR, OTHER_NAMES, LAST_NAMES, TRAILERS = (frozenset(part.split()) for part in _LISTS[:5])
_SAYS, _VERBS = ([word.encode().decode("latin-1") for word in _LISTS[n].split()] for n in (5, 6))
SAYS, VERBS = (frozenset(map(str.lower, words)) for words in (_SAYS, _VERBS))


def patterns(table: str, *, of_bytes: bool) -> SimpleNamespace:
    """Return the compiled patterns of a table; those `of_bytes` see UTF-8 bytes, each as one character."""
    given = {name: "".join(parts) for name, parts in TABLES[table].items()}
    read = {name: re.compile(part.encode().decode("latin-1") if of_bytes else part) for name, part in given.items()}
    return SimpleNamespace(**read)


TABLES = tomllib.loads((RULES / "patterns.toml").read_text("utf-8"))
IS = patterns("values", of_bytes=False)
PUBLIC_KEYS = tuple(_LISTS[8].split())
_PUBLIC_NAMES = (*_LISTS[7].split(), *PUBLIC_KEYS, "public key")
_ISSUED, _SIGNS = re.compile(r"(?=\D{0,159}+\d)[\W\d_]{0,159}+[^\W\d_]"), frozenset("!#$%&*+?@^~")
is_found = bool
"""The test of kinds whose pattern is enough."""


def is_not_placeholder(value: str, letters: int = 4) -> bool:
    """Return True unless a value is a variable, a path, `<your token>`, `changeme`, or has too few `letters`."""
    seen = value[:_LOOKED_AT].lower()
    few = len(set(value[:12])) < letters and len(set(value)) < letters
    few = few or (24 < len(value) < 80 and len(set(value[12:])) < letters)
    return not (few or IS.placeholder.match(seen) or IS.placeholder_within.search(seen))


def is_issued(value: str) -> bool:
    """Return True for a value in which letters and digits mix without long runs, as in issued keys."""
    return bool(_ISSUED.match(value))


def is_jumbled(value: str) -> bool:
    """Return True for a value whose letters form no words, even without a digit."""
    letters = len(set(value)) >= 15 and any(map(str.isupper, value[4:]))
    return is_issued(value) or (letters and (is_scrambled(value) or not value.isalnum()))


@cache
def _beginning(parts: int) -> re.Pattern[str]:
    """Return a pattern for text that begins with so many parts of a name, which is faster than listing them."""
    return re.compile(rf"(?>[^A-Za-z\d\x80-\xff]*+(?:{IS.parts.pattern})){{{parts}}}")


def _changes(value: str, share: float, least: int = 1) -> bool:
    """Return True if a value has at least `least` parts, with fewer than `share` characters on average."""
    return bool(_beginning(max(least, int(len(value) / share) + 1)).match(value))


def is_random(value: str) -> bool:
    """Return True if digits and letters of both cases alternate too often for a name."""
    value = value[:_LOOKED_AT]
    if len(value) < 12 or value.isupper() or value.islower() or not _ISSUED.match(value):
        return False
    return _changes(value, 3.4 if len(value) >= 20 else 3)


def is_scrambled(value: str) -> bool:
    """Return True for letters whose case changes too often for a name: `kUXIgAAsDHPr`, not `hashedPassword`."""
    if len(value) == 10 and len(parts := IS.parts.findall(value)) == 3:
        return any(len(part) > 2 and not re.search("(?i)[aeiouy]", part) for part in parts)
    return len(value) >= 8 and _changes(value[:_LOOKED_AT], 3.4, least=4)


def is_camel(value: str) -> bool:
    """Return True for a name such as `hashedPassword`."""
    return bool(re.search("[a-z0-9][A-Z]", value)) and not is_scrambled(value)


def is_unknown_token(value: str) -> bool:
    """Return True for a random word, also after a short prefix: a token of an issuer without a rule."""
    seen = value[:_LOOKED_AT]
    public = not seen.isalnum() and (IS.public.match(seen) or IS.file.search(seen) or are_words(seen))
    if public or not is_not_placeholder(seen):
        return False
    if (is_word := is_random_word(seen)) or not IS.prefix.match(seen):
        return is_word
    parts = re.split(r"[_.=+-]", seen)[1:]
    jumbled = any(is_random(part) or (len(part) >= 20 and is_scrambled(part)) for part in (*parts, "".join(parts)))
    return jumbled or bool(IS.long_token.fullmatch(seen) and is_issued(parts[-1]))


def is_random_word(value: str) -> bool:
    """Return True for a random word that is not a name, an address or base64 of data."""
    letters = value.replace("_", "").replace("-", "")
    if not (26 <= len(value) <= 512 and letters.isalnum() and value.isascii()) or IS.address.match(value):
        return False
    return value[:2] != "0x" and is_random(value) and (len(value) >= 30 or _changes(value, 3))


def is_told_public(view: str, start: int, end: int) -> bool:
    """Return True if the text around a random word marks it as an id, a hash or a line of encoded data."""
    before = view[max(0, start - 120) : start]
    name = before.rstrip(" \t\"'\\=:(<").removesuffix(": W/")  # a weak ETag
    word = name.rsplit(None, 1)[-1] if name else ""
    is_id = word[-2:].lower() == "id" and not (word[-3:-2].isalnum() or word[-3:-2] == "_")
    is_public = name.endswith(("Id", "ID")) or name[-24:].lower().endswith(_PUBLIC_NAMES)
    if is_id or is_public or IS.told_public.search(before) or (before.endswith("/") and len(word) > 24):
        return True
    if not word.isalnum() and (word.count("$") > 1 or IS.digest.match(word.lower()) or re.match('{[^"]*}[^"]*$', word)):
        return True
    *above, line = before.replace("\\n", "\n").rsplit("\n", 2)
    if line.strip(" \"'+>") and not re.fullmatch("[ \"'+>]*[A-Za-z0-9+/]*[+/]", line):
        return False
    lines = *above[-1:], *view[end : end + 120].replace("\\n", "\n").split("\n", 2)[1:2]
    long = [text.strip(" \r\"'+>") for text in lines if "-----" in text or len(text) >= 60]
    return any(re.fullmatch("[A-Za-z0-9+/=]{60,}|-----.*|.*-----", text) for text in long)


def is_random_pair(value: str) -> bool:
    """Return True for two random parts with a sign between them."""
    parts = re.split("[.:/|]", value)
    longest = max(parts, key=len)
    return bool(IS.pair.search(value)) or (is_random(longest) and not IS.public.match(value) and not are_words(value))


def is_generated(value: str, *, quoted: bool) -> bool:
    """Return True for a value that a machine made and that is neither code nor a digest."""
    if len(value) < 12 or " " in value or IS.digest.match(value) or not is_not_placeholder(value):
        return False
    named = IS.named.fullmatch(value) or ((not quoted or "." in value) and is_code(value))
    named = named or IS.file.search(value) or (IS.reference.match(value) and not is_random(value))
    return not named and is_jumbled(value) and not are_words(value)


def is_code(value: str) -> bool:
    """Return True for a value without quotes that reads as code: `settings.token`, not `Ab3dEf6hIj9k.Lm2nOp5qRs8t`."""
    return bool(IS.code.match(value)) and not any(map(is_random, re.split(r"\.|::|->", value)))


def are_words(value: str) -> bool:
    """Return True for a value made of words: `staging-db-password-2`, `oauth2_client_v1`."""
    parts = [part for part in re.split(r"[-_./:@ ]", value) if part]
    return len(parts) > 1 and all(map(IS.word.match, parts))


def are_plain_words(given: str) -> bool:
    """Return True for words joined by signs, without digits or with a stop word: `at-least-12-letters`."""
    parts = [part for part in re.split(r"[-_./: ]", given) if part]
    plain = len(parts) > 1 and all(part.isalpha() or (part.isdigit() and len(part) < 5) for part in parts)
    return plain and (any(map(is_stop_word, parts)) or not any(map(str.isdigit, given)))


def is_jwt(value: str) -> bool:
    """Return True if the first part decodes to a JSON object: the header of a JWT, or a signed cookie."""
    header = value.partition(".")[0]
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))), dict)
    except (ValueError, RecursionError):
        return False


@lru_cache(maxsize=64)
def is_given_password(value: str, *, in_url: bool = False) -> bool:
    """Return True for a possible password where a program or URL takes one, even if it is a plain word."""
    if value in ("root", "admin", "qwerty") or (value.isdigit() and len(value) > (3 if in_url else 5)):
        return True
    if in_url:
        return is_not_placeholder(value, letters=2)
    return is_not_placeholder(value, letters=3) and not is_reference(value) and not IS.digest.match(value)


@lru_cache(maxsize=64)
def is_strong(value: str) -> bool:
    """Return True for a password that could not be a word of a sentence: letters with digits, or with signs within."""
    letters = value.replace("-", "")
    scrambled = letters.isalpha() and len(value) >= 10 and (is_scrambled(letters) or is_unspeakable(value))
    signed = is_issued(value) or (not _SIGNS.isdisjoint(value[1:-1]) and any(map(str.isalpha, value)))
    plain = IS.version_like.match(value) and not (IS.leet.match(value) or is_random(value))
    if not (scrambled or signed) or len(set(value)) < 5 or plain:
        return False
    return is_given_password(value) and (scrambled or value.isalnum() or not are_plain_words(value))


def is_unspeakable(value: str) -> bool:
    """Return True for letters of one case that form no word: `kwqzptrnvbfd`."""
    return value.isalpha() and value.islower() and bool(IS.unspeakable.search(value))


def is_coined(value: str) -> bool:
    """Return True for at least ten letters that make no single word, as in `correcthorse`."""
    if is_strong(value) or not (len(value) >= 10 and value.isalpha()):
        return is_strong(value)
    word = IS.wordly.match(value) or IS.long_word.match(value) or is_camel(value)
    return not word and is_given_password(value)


def is_odd(value: str) -> bool:
    """Return True for a value that no sentence holds by chance: signs within, or mixed cases and digits."""
    if len(value) < 8 or not is_issued(value):
        return False
    mixed = value.isalnum() and not set(value) <= set(hexdigits) and IS.mixed.search(value)
    odd = mixed or IS.chosen.match(value) or IS.sign_within.search(value) or is_random(value) or is_scrambled(value)
    return bool(odd) and is_strong(value)


def is_typed_password(value: str) -> bool:
    """Return True for letters of both cases, digits and a sign within, which are a password without a telling word."""
    mixed = len(value) >= 10 and is_issued(value) and not value.isupper() and not value.islower()
    return mixed and not IS.encoded_char.search(value) and is_odd(value) and len(set(value)) >= 8


def is_stop_word(value: str) -> bool:
    """Return True for a word that nobody uses as a password: a type, a state, a word of grammar, a label."""
    word = value.split("&", 1)[0].lower().strip(".,:;!?*_-")
    return word in _WORDS or word in _GRAMMAR


def is_reference(value: str) -> bool:
    """Return True for code and for names of other values: `form.password`, `hashedPassword`, `required`."""
    short = value == "n" or (value.isdecimal() and len(value) < 6)
    if not value.isalnum():
        short = short or (IS.reference.match(value) and not is_random(value)) or IS.code_within.search(value)
    lower = value.lower()
    if short or is_stop_word(value) or IS.other_password.match(lower):
        return True
    named = IS.name_words.search(lower) and value.replace("-", "_").replace("$", "_").isidentifier()
    parts = IS.parts.findall(value) if named else ()
    return len(parts) > 1 and not any(map(str.isdigit, "".join(parts[:-1])))


def is_phrase(value: str, words: int = 4) -> bool:
    """Return True for a passphrase of at least so many `words` in lower case, none of grammar and at most one label."""
    parts = re.split(r"[\s,-]+", value.strip())
    if not words <= len(parts) <= 24 or not all(part.isalpha() and part.islower() and len(part) > 1 for part in parts):
        return False
    stops = sum(part in _GRAMMAR or bool(IS.name_words.search(part)) for part in parts)
    return (not stops and sum(part in _WORDS for part in parts) <= 1) or (len(parts) > 10 and stops <= len(parts) // 6)


def before_grammar(value: str) -> str:
    """Return the words of a sentence before its first word of grammar."""
    stop = next((found for found in re.finditer(r"[\s,-]+(\w+)", value) if found[1] in _GRAMMAR), None)
    return value[: stop.start()] if stop and value.count(" ") < 10 else value
