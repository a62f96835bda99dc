"""How a value reads that stands where a secret could: placeholder, reference, word, or something somebody issued."""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path
from string import hexdigits

RULES = Path(__file__).with_name("rules")
_LOOKED_AT = 160
"""Characters of a value by which it is judged."""
_BITS = [0.0, *(count * math.log2(count) for count in range(1, _LOOKED_AT + 1))]

_LISTS = [re.sub("(?m)^#.*$", "", part) for part in (RULES / "words.txt").read_text("utf-8").split("\n\n")]
WORDS, GRAMMAR, OTHER_NAMES = (frozenset(part.split()) for part in _LISTS)

_PLACEHOLDER = re.compile(
    r"""(?x) \W*$ | [$@&%*]\w+[%*]?$ | [$%@]?[({<\[] | \\ | my[_-] | (?:https?|file|op|vault|ssm|arn|urn|projects):[/:]
    | secretsmanager:[/:] | (?:arn|op|vault|ref|secrets?): | env[:.] | @microsoft\. | enc\[ | / | \./ | ~/ | \.\./
    | (?:none|null|nil|true|false|undefined|string|str|int|bool|boolean|number|any|bytes|object|optional|required|unset
        |empty|test|testing|secret|password|passwd|pass|token|user|username|admin|root|key|value|default|hidden)\d{0,3}$
    | (?:0+|1+|123|123456?7?8?9?0?|abc|abcdef|xyz|foo|bar|baz|foobar|qwerty)$
    """
)
"""How a placeholder in lower case begins, or reads as a whole."""
_PLACEHOLDER_PARTS = (
    "example placeholder redacted changeme change-me change_me dummy sample insert_ insert- replace_ replace- environ"
    " process.env getenv env( ... … *** xxxx ${ {{"
).split()
_PLACEHOLDER_WITHIN = re.compile(r"%s(?![a-z])|y(?<!\wy)our|f(?<![a-z]f)ake|<[a-z_ -]+>")
_REFERENCE = re.compile(
    r"^[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)+[;,]?$|[({\[\]})]|=>|\|\||&&|^[A-Z][A-Z0-9]*_[A-Z0-9_]*$"
    r"|^\w+:\w+\||^#[a-z]|^\.[a-z]|^--?[a-z]|\w\|\w|^[!?~^].{0,2}$|^https?:|^\\?n?$|::|^!\w+$|^\d{1,5}(?:[:/-]\d{1,5})*"
    r"(?:/\w+)?$(?<!\d{6})|^[\w.]+:\d{1,5}:\d{1,5}$|password=|(?i:_(?:pw|pwd|pass)$|^(?:wrong|bad|invalid|new|old|current|temp|test"
    r"|some|the|your|user|admin|root|hashed?|plain|db|database|app|default|existing|confirm|raw|encrypted|valid|weak"
    r"|strong|short|long|initial|next|last|repeat|no|not|any)(?:password|passwd|passphrase|secret|pass|pwd)s?\d{0,2}$)"
)
"""Code, or the name of another value: `form.password`, `DB_PASSWORD`, `8080:80`, `oldPassword`."""
_NAME_WORDS = re.compile(r"password|passwd|passwort|passphrase|secret|credential|token", re.IGNORECASE)
_VARIABLE = re.compile(r"^[A-Z_]*(?:PASS|PASSWORD|PASSWD|PWD|PW|SECRET|TOKEN|KEY)$")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*|\d+")
_WORD = re.compile(r"^(?:[A-Z]?[a-z]+|[A-Z]+)\d{0,4}$|^\d{1,4}$|^v\d+$")
_DIGEST = re.compile(r"^(?:sha\d{1,3}|md5|h1|blake\w*)[-:=]|^\$(?:2[aby]|argon2|pbkdf2|[156]\$)")
_UUID = re.compile(r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$")
_VERSION_LIKE = re.compile(
    r"[({\[\]})]|^[\w-]+(?:[./:][\w-]+)+$|^[vV]?\d+[a-z]{0,3}$|^[A-Z]{2,6}-?\d+$|^\d[\d.,:%-]*\w{0,3}$"
    r"|^\w+=(?!=?$)"
)
_PREFIX = re.compile(r"[a-z][a-z0-9]{1,11}(?:[_.-][A-Za-z0-9]{1,10}){0,3}[_.-][A-Za-z0-9_.=-]+$")
_LONG_TOKEN = re.compile(r"[a-z]{2,10}[_.](?:[a-z]{2,8}_)?[A-Za-z0-9_-]{32,}")
_PUBLIC = re.compile(
    r"^(?:req|msg|toolu|cus|price|in|pi|evt|sub|prod|ch|acct|file|asst|thread|run|step|call|chatcmpl|cmpl|resp|agent|org|proj|"
    r"user|batch|img|css|sha\d*|md5|pk|pub|id|uid|trace|span|build|chunk|cache|hash|digest|etag|rev|commit|tree|blob|layer|snapshot|test|npub|age1|vs|ft|gpt|log|job|srvtoolu|"
    r"cntr|container|sc|vendors?|styles?|module|gen|h\d|py\w*|node|app|[0-9a-f]{6,})[_.:-]"
)
"""How names of requests, customers, files and the like begin that look like keys."""


_SETTING = re.compile(
    r"(?m)^(?:export )?\w*(?:PASS|SECRET|TOKEN|KEY|PWD|CREDENTIAL)\w*=\S{4,}|PRIVATE KEY-----\s+[A-Za-z0-9+/]{6}|://[^\s:/]+:[^\s@]+@"
)


def entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits per character."""
    text = text[:_LOOKED_AT]
    repeated = sum([_BITS[count] for count in map(text.count, set(text))])
    return math.log2(len(text)) - repeated / len(text) if text else 0.0


def is_not_placeholder(value: str, letters: int = 4) -> bool:
    """Return True for a value that can be a real one: no variable, no path, no `<your token>`, no `changeme`.

    It has at least so many different `letters`.
    """
    seen = value[:_LOOKED_AT].lower()
    if len(set(value)) < letters or _PLACEHOLDER.match(seen) or _PLACEHOLDER_WITHIN.search(seen):
        return False
    return not any(part in seen for part in _PLACEHOLDER_PARTS)


def is_issued(value: str) -> bool:
    """Return True for a value in which letters and digits mix without long runs, as in issued keys."""
    seen = value[:_LOOKED_AT]
    return any(map(str.isdigit, seen)) and any(map(str.isalpha, seen)) and entropy(seen) >= 2.8


def is_jumbled(value: str) -> bool:
    """Return True for a value whose letters come in no order of a word, even if no digit is among them."""
    return is_issued(value) or (entropy(value[:_LOOKED_AT]) >= 3.8 and any(map(str.isupper, value[4:])))


def is_random(value: str) -> bool:
    """Return True if digits and letters of both cases change so often that no name is written so."""
    mixed = any(map(str.isdigit, value)) and any(map(str.isupper, value)) and any(map(str.islower, value))
    return len(value) >= 12 and mixed and 3 * len(_PARTS.findall(value)) > len(value)


def is_scrambled(value: str) -> bool:
    """Return True for letters whose case changes too often for a name: `kUXIgAAsDHPr`, not `hashedPassword`."""
    parts = _PARTS.findall(value)
    unspoken = len(value) >= 10 and any(len(part) > 2 and not re.search("(?i)[aeiouy]", part) for part in parts)
    return len(value) >= 8 and len(value) < 3.4 * len(parts) and (len(parts) > 3 or (len(parts) == 3 and unspoken))


def is_camel(value: str) -> bool:
    """Return True for a name such as `hashedPassword`."""
    return bool(re.search("[a-z0-9][A-Z]", value)) and not is_scrambled(value)


def is_public(value: str) -> bool:
    """Return True for the name of a request, customer or file, which looks like a key."""
    return bool(_PUBLIC.match(value))


def is_unknown_token(value: str) -> bool:
    """Return True for a short name, a sign and something random: the token of an issuer that no rule knows."""
    seen = value[:_LOOKED_AT]
    if not _PREFIX.match(seen) or is_public(seen) or not is_not_placeholder(seen) or are_words(seen):
        return False
    parts = re.split(r"[_.=-]", seen)[1:]
    return any(map(is_random, parts)) or bool(_LONG_TOKEN.fullmatch(seen) and is_issued(parts[-1]))


def is_random_pair(value: str) -> bool:
    """Return True for two random parts with a sign between them."""
    return is_random(re.split("[.:]", value)[-1]) and not is_public(value) and not are_words(value)


def is_generated(value: str, *, quoted: bool) -> bool:
    """Return True for what a machine made: where a name tells of a key, and the value is no code and no digest."""
    if _DIGEST.match(value) or _UUID.match(value):
        return False
    if len(value) < 12 or " " in value or not is_not_placeholder(value) or (not quoted and is_code(value)):
        return False
    if len(value) >= 32 and set(value) <= set(hexdigits):
        return entropy(value) > 2.5
    if not any(map(str.isdigit, value)):
        mixed = any(map(str.isupper, value[1:])) and any(map(str.islower, value))
        return len(value) >= 24 and mixed and value.isalpha() and entropy(value) >= 4.0
    return any(map(str.isalpha, value)) and entropy(value) >= 3.0 and not are_words(value)


def is_code(value: str) -> bool:
    """Return True for a value without quotes that reads as code: `settings.token`, not `Ab3dEf6hIj9k.Lm2nOp5qRs8t`."""
    code = re.match(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+$|[A-Z][A-Z0-9]*_[A-Z0-9_]*$|[A-Za-z]+$|--?[a-z]", value)
    return bool(code) and not any(map(is_random, re.split(r"\.|::|->", value)))


def are_words(value: str) -> bool:
    """Return True for what is made of words: `staging-db-password-2`, `oauth2_client_v1`."""
    parts = [part for part in re.split(r"[-_./:@ ]", value) if part]
    return len(parts) > 1 and all(map(_WORD.match, parts))


def is_jwt(value: str) -> bool:
    """Return True if the first part decodes to a JSON object: the header of a JWS or JWE (RFC 7515 and 7516, in which
    what follows may be encrypted), or what a web framework keeps in a signed cookie. A cut end still counts.
    """
    header = value.partition(".")[0]
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))), dict)
    except (ValueError, RecursionError):
        return False


def is_url_password(value: str) -> bool:
    """Return True for what can be a password in a URL, where nothing else can stand but a placeholder."""
    if value in ("root", "admin", "qwerty") or (value.isdigit() and len(value) > 3):
        return True
    return is_not_placeholder(value, letters=2) and not _VARIABLE.match(value)


def is_given_password(value: str) -> bool:
    """Return True for what can be a password where a program takes one, however plain a word it is."""
    if value in ("root", "admin", "qwerty") or (value.isdigit() and len(value) > 5):
        return True
    return is_not_placeholder(value, letters=3) and not is_reference(value) and not _DIGEST.match(value)


def is_strong(value: str) -> bool:
    """Return True for a password that no sentence holds as a word: letters with digits, or with signs within."""
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    signs = re.search(r"[!#$%&*+?@^~]", value[1:-1])
    scrambled = value.isalpha() and len(value) >= 10 and is_scrambled(value)
    mixed = letters and (digits or signs or scrambled) and not _VERSION_LIKE.search(value)
    return bool(mixed) and is_given_password(value) and entropy(value) >= 2.0


def is_stop_word(value: str) -> bool:
    """Return True for a word that is nobody's password: a type, a state, a word of grammar, a label."""
    word = value.split("&", 1)[0].lower().strip(".,:;!?*_-")
    return word in WORDS or word in GRAMMAR


def is_reference(value: str) -> bool:
    """Return True for code and for names of other values: `form.password`, `hashedPassword`, `required`."""
    if is_stop_word(value) or _REFERENCE.search(value[:_LOOKED_AT]):
        return True
    parts = _PARTS.findall(value)
    named = _NAME_WORDS.search(value) and re.fullmatch(r"[A-Za-z_$][\w$-]*", value)
    return bool(named) and len(parts) > 1 and not any(map(str.isdigit, "".join(parts[:-1])))


def is_phrase(value: str, words: int = 4) -> bool:
    """Return True for a passphrase: so many `words` or more in lower case, none of them of grammar or a label."""
    parts = re.split(r"[\s,-]+", value.strip())
    if not words <= len(parts) <= 24 or not all(part.isalpha() and part.islower() and len(part) > 1 for part in parts):
        return False
    stops = sum(part in GRAMMAR or bool(_NAME_WORDS.search(part)) for part in parts)
    return (not stops and sum(part in WORDS for part in parts) <= 1) or (len(parts) > 10 and stops <= len(parts) // 6)


def holds_settings(value: str) -> bool:
    """Return True for base64 of a file of settings with a secret, as `.env` files and kubeconfigs are passed on."""
    encoded = re.sub(r"^.*[^A-Za-z0-9+/]", "", value.rstrip("="))
    try:
        start = base64.b64decode(encoded[:48]).decode("ascii")
        text = base64.b64decode(encoded[: len(encoded) - len(encoded) % 4]).decode("utf-8", "replace")
    except ValueError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in start) and bool(_SETTING.search(text))


def are_plain_words(given: str) -> bool:
    """Return True for words with signs between them of which one is a label or of grammar: `at-least-12-letters`."""
    parts = re.split(r"[-_./: ]", given)
    plain = len(parts) > 1 and all(part.isalpha() or (part.isdigit() and len(part) < 5) for part in parts if part)
    return plain and (any(part and is_stop_word(part) for part in parts) or not any(map(str.isdigit, given)))


def is_said(value: str) -> bool:
    """Return True for a password that follows a verb or a colon."""
    return is_strong(value) and not are_plain_words(value)


def is_odd(value: str) -> bool:
    """Return True for what no sentence about passwords holds by chance: signs within, or cases and digits mixed."""
    if len(value) < 8 or not re.search(r"\d", value):
        return False
    signs = re.search(r"\w[!#$%&*+?@^~]+\w|\w[!#$%&?^]\Z", value)
    mixed = re.search(r"\d[A-Za-z]", value) and is_random(value)
    return bool(signs or mixed) and is_said(value) and "@" not in value.split(".")[0][1:-1]
