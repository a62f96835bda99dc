"""Judge a value where a secret could be: a placeholder, a reference, a word, or an issued or chosen secret."""

from __future__ import annotations

import base64
import json
import re
from functools import cache, lru_cache
from pathlib import Path
from string import hexdigits

RULES = Path(__file__).with_name("rules")
_LOOKED_AT = 160
"""Leading characters by which a value is judged."""

_LISTS = [re.sub("(?m)^#.*$", "", part) for part in (RULES / "words.txt").read_text("utf-8").split("\n\n")]
_WORDS, _GRAMMAR, OTHER_NAMES, LAST_NAMES, TRAILERS = (frozenset(part.split()) for part in _LISTS[:5])
SAYS, VERBS = (frozenset(part.encode().decode("latin-1").lower().split()) for part in _LISTS[5:])

_PLACEHOLDER = re.compile(
    r"""(?x) [\W_]*$ | [$@&%*]\w+[%*]?$ | :[a-z_]+;?$ | [$%@]?[({<\[] | \\ | my(?:[_-]|passw|secret|token)
    | (?:https?|file|ssm|urn|projects|secretsmanager):[/:] | (?:arn|op|vault|ref|secrets?): | env[:.] | @microsoft\.
    | enc\[ | /(?![a-z0-9+]{9}) | ~/ | \.\.?/ | (?:none|null|nil|true|false|undefined|string|str|int|bool|boolean|number
        |any|bytes|object|optional|required|unset|empty|test|testing|(?:super)?secret|password|passwd|pass|pwd|token|user
        |username|guest|admin|root|key|value|default|hidden)\d{0,3}$
    | (?:0+|1+|123|123456?7?8?9?0?|abc|abcdef|xyz|foo|bar|baz|foobar|qwerty)$ | ~\w+(?:\.\w+)+$
    """
)
"""Beginnings and whole forms of placeholders, in lower case."""
_PLACEHOLDER_WITHIN = re.compile(
    r"example|environ|env\(|placeholder|process\.env|redacted|replace[_-]|change[_-]?me|dummy|sample|insert[_-]|getenv"
    r"|<[a-z_ -]+>|\.html?\b|\.\.\.|…|â\x80¦|\*\*\*|xxx(?:x|\Z)|\$\{|\{\{|%s(?![a-z])|y(?<!\wy)our|f(?<![a-z]f)ake"
)
"""Parts of placeholders; each alternative begins with a literal, which is much faster to search."""
_REFERENCE = re.compile(
    r"""(?x) [A-Za-z_$][\w$]*+(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*+)++[;,]?$ | [A-Z][A-Z0-9]*+_[A-Z0-9_]*+$
    | \w++:\w++\| | [#.@][a-z] | --?[a-z] | [!?~^].{0,2}$ | https?: | \\?n?$ | !\w+$ | \d{1,5}(?:[:/-]\d{1,5})*
    (?:/\w+)?$(?<!\d{6}) | [\w.]++:\d{1,5}:\d{1,5}$ | \w++$(?:(?<=_(?i:pw))|(?<=_(?i:pwd))|(?<=_(?i:pass)))"""
)
"""Code, or the name of another value: `form.password`, `DB_PASSWORD`, `8080:80`."""
_OTHER_PASSWORD = re.compile(
    r"(?:wrong|bad|invalid|new|old|current|temp|test|some|the|your|user|admin|root|hashed?|plain|db|database|app|default"
    r"|existing|confirm|raw|encrypted|valid|weak|strong|short|long|initial|next|last|repeat|no|not|any)"
    r"(?:password|passwd|passphrase|secret|pass|pwd)s?\d{0,2}$"
)
"""Names of other passwords, in lower case: `oldpassword`."""
_CODE_WITHIN = re.compile(r"[({\[\]})]|=>|\|\||&&|::|(?<=\w)\|\w|password=")
_NAME_WORDS = re.compile("password|passwd|passwort|passphrase|secret|credential|token")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z\x80-\xff]+\d*|\d+")
"""The parts of a name."""
_WORD = re.compile(r"^(?:[A-Z]?[a-z]+|[A-Z]+)\d{0,4}$|^\d{1,4}$|^v\d+$")
_DIGEST = re.compile(
    r"^(?:sha\d{1,3}|md5|h1|blake\w*)[-:=]|^\$(?:2[aby]|argon2|pbkdf2|[156]\$)|^Ag[A-Za-z0-9+/]{150,}|^[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}$"
)
_VERSION_LIKE = re.compile(
    r"[\w-]++(?:[./:][\w-]++)++(?:@v?\d[\w.]*)?$|0x[\dA-Fa-f]|[vV]?\d+[a-z]{0,3}$|[A-Z]{2,6}-?\d+$|\d[\d.,:%-]*\w{0,3}$|\w++=(?!=?$)"
    r"|[\w.+-]++@[\w-]++(?:\.[\w-]+)*\.[a-z]{2,6}$|(?i:utf|latin|iso|cp)[_-]?\d[\d-]{0,8}$"
    r"|[A-Za-z]++@\d{1,2}$|(?:AES|X?ChaCha|RSA|SHA|HMAC|ECDSA|Argon|PBKDF)-?\d\w{0,5}(?:[-_/][A-Z]\w{1,9}){0,4}$"
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+$|[A-Z][A-Z0-9]*_[A-Z0-9_]*$|[A-Za-z]+$|--?[a-z]")
_NAMED = re.compile(r"[A-Z]*[a-z]*\d{0,5}(?:[A-Z][a-z]{2,})+|[a-z]+(?:\.[a-z-]+)+/[\w.-]+")
"""A type such as `Ed25519PrivateKey`, or a key such as `io.acme.app/logLevel`."""
_PREFIX = re.compile(
    r"(?:[a-z][a-z0-9]{1,11}|[A-Z]{2,8})(?:[_.-][A-Za-z0-9]{1,10}){0,3}[_.+-](?:[A-Za-z0-9_.=-]+|[A-Za-z0-9+/]{30,}={1,2})$"
)
_LONG_TOKEN = re.compile(
    r"[a-z][a-z0-9]{1,9}[_.](?:[a-z]{2,8}_)?(?:[A-Za-z0-9_-]{32,}|[A-Z0-9]{28,})"
    r"|[a-z][a-z0-9]{1,11}_(?:prod|live|test|dev|stg|sandbox)_[A-Za-z0-9]{16,}"
    r"|(?:[a-z0-9]{1,10}[_-]){0,2}(?:key|signkey|secret|token|live|prod|pat|tok|priv|apikey|api|ckey|sk|rk|access)"
    r"(?:[_-][a-z0-9]{1,10}){0,2}[_-](?:[a-z0-9]{24,128}|[A-F0-9]{32,64}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
)
PUBLIC = re.compile(
    r"(?i)(?:[a-z]{2,8}_01|req|msg|toolu|cus|price|in|pi|evt|sub|prod|ch|acct|file|asst|thread|run|step|call|chatcmpl|cmpl|resp|agent|org"
    r"|proj|user|batch|img|css|sha\d*|md5|pk|pub|id|uid|trace|span|build|chunk|cache|hash|digest|etag|rev|commit|tree|blob"
    r"|layer|snapshot|test|npub|age1|vs|ft|gpt|log|job|srvtoolu|cntr|container|sc|vendors?|styles?|module|gen|h\d|py\w*|node"
    r"|app|dpl|phc|seti|cs|team|prj|wrkspc|v\d+|linux|macos|windows|deps|restore|ord|order|ref\d*|[0-9a-f]{6,}(?![_.:-]\w{35}))[_.:-]|[a-z]{1,6}_kwd|[a-z]{2,8}_01\w{20,22}\b"
    r"|_Z[A-Z]*\d"
)
"""Beginnings of ids that look like keys: of requests, customers, files, compiled functions."""
_FILE = re.compile(r"\.(?:[cm]?[jt]sx?|css|map|html?|png|jpe?g|svg|woff2?|py|json|md|ya?ml|lock|tgz|whl|zip|gz)$")
_ADDRESS = re.compile(
    r"(?:[13]|Qm)[1-9A-HJ-NP-Za-km-z]{25,44}$|I[0-9a-f]{40}$|(?:AAAA|LS0t|iVBORw0KGgo|R0lGOD|UEsDB|H4sI|JVBER|d09GM|MII[A-Z])"
)
"""Addresses of coins and contents, Gerrit changes, and base64 of images, archives and certificates."""
_PUBLIC_NAMES = tuple(
    "_id -id .id ids cid kid ksuid nanoid ulid hash md5 sha1 sha256 sha384 sha512 digest checksum integrity fingerprint"
    " etag nonce pubkey public_key public-key publickey commit revision account address wallet peer tx cursor signature"
    " build cache trace span request version list".split()
) + ("public key",)
"""Ends of names, in lower case, whose values look random and are no secrets."""
_PAIR = re.compile(r"(?:[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27})[.:/][0-9a-f]{32,64}$")
_MIXED = re.compile(r"[a-z]\d+[a-z]+\d|\d[a-z]+\d+[a-z]")
_ENCODED_CHAR = re.compile("%[0-9A-F]{2}|&#|&[a-z]+;?|^[A-Za-z]+#[0-9a-f]{5}")
"""Encoded characters and numbers of bugs and commits, which nobody types as a password."""
_ISSUED, _SIGNS = re.compile(r"(?=\D{0,159}+\d)[\W\d_]{0,159}+[^\W\d_]"), frozenset("!#$%&*+?@^~")
_SIGN_WITHIN = re.compile(r"(?<=\w)[!#$%&*+?@^~]+\w|(?<=\w)[!#$%&?^]\Z")
_SETTING = re.compile(
    r"(?m)^(?:export )?\w*(?:PASS|SECRET|TOKEN|KEY|PWD|CREDENTIAL)\w*=\S{4,}|PRIVATE KEY-----\s+[A-Za-z0-9+/]{6}|://[^\s:/]+:[^\s@]+@"
)


def is_not_placeholder(value: str, letters: int = 4) -> bool:
    """Return True unless a value is a variable, a path, `<your token>`, `changeme`, or has too few `letters`."""
    seen = value[:_LOOKED_AT].lower()
    few = len(set(value[:12])) < letters and len(set(value)) < letters
    return not (few or _PLACEHOLDER.match(seen) or _PLACEHOLDER_WITHIN.search(seen))


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
    return re.compile(rf"(?>[^A-Za-z\d\x80-\xff]*+(?:{PARTS.pattern})){{{parts}}}")


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
    if len(value) == 10 and len(parts := PARTS.findall(value)) == 3:
        return any(len(part) > 2 and not re.search("(?i)[aeiouy]", part) for part in parts)
    return len(value) >= 8 and _changes(value[:_LOOKED_AT], 3.4, least=4)


def is_camel(value: str) -> bool:
    """Return True for a name such as `hashedPassword`."""
    return bool(re.search("[a-z0-9][A-Z]", value)) and not is_scrambled(value)


def is_unknown_token(value: str) -> bool:
    """Return True for a random word, also after a short prefix: a token of an issuer without a rule."""
    seen = value[:_LOOKED_AT]
    public = not seen.isalnum() and (PUBLIC.match(seen) or _FILE.search(seen) or are_words(seen))
    if public or not is_not_placeholder(seen):
        return False
    is_word = is_random_word(seen)
    if is_word or not _PREFIX.match(seen):
        return is_word
    parts = re.split(r"[_.=+-]", seen)[1:]
    jumbled = any(is_random(part) or (len(part) >= 20 and is_scrambled(part)) for part in (*parts, "".join(parts)))
    return jumbled or bool(_LONG_TOKEN.fullmatch(seen) and is_issued(parts[-1]))


def is_random_word(value: str) -> bool:
    """Return True for a random word that is no name, no address and no base64 of data."""
    letters = value.replace("_", "").replace("-", "")
    if not (26 <= len(value) <= 512 and letters.isalnum() and value.isascii()) or _ADDRESS.match(value):
        return False
    return value[:2] != "0x" and is_random(value) and (len(value) >= 30 or _changes(value, 3))


def is_told_public(view: str, start: int, end: int) -> bool:
    """Return True if the text around a random word says that it is an id, a hash or a line of encoded data."""
    before = view[max(0, start - 120) : start]
    name = before.rstrip(" \t\"'\\=:(").removesuffix(": W/")  # a weak ETag
    word = name.rsplit(None, 1)[-1] if name else ""
    is_id = word[-2:].lower() == "id" and not (word[-3:-2].isalnum() or word[-3:-2] == "_")
    if is_id or name.endswith(("Id", "ID")) or name[-12:].lower().endswith(_PUBLIC_NAMES):
        return True
    if not word.isalnum() and (word.count("$") > 1 or _DIGEST.match(word.lower()) or re.match('{[^"]*}[^"]*$', word)):
        return True
    if "did:" in before[-20:] or '"kty"' in before or (before.endswith("/") and len(word) > 24):
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
    return bool(_PAIR.search(value)) or (is_random(longest) and not PUBLIC.match(value) and not are_words(value))


def is_generated(value: str, *, quoted: bool) -> bool:
    """Return True for a value that a machine made and that is no code and no digest."""
    if len(value) < 12 or " " in value or _DIGEST.match(value) or not is_not_placeholder(value):
        return False
    named = _NAMED.fullmatch(value) or ((not quoted or "." in value) and is_code(value))
    return not named and is_jumbled(value) and not are_words(value)


def is_code(value: str) -> bool:
    """Return True for a value without quotes that reads as code: `settings.token`, not `Ab3dEf6hIj9k.Lm2nOp5qRs8t`."""
    return bool(_CODE.match(value)) and not any(map(is_random, re.split(r"\.|::|->", value)))


def are_words(value: str) -> bool:
    """Return True for a value made of words: `staging-db-password-2`, `oauth2_client_v1`."""
    parts = [part for part in re.split(r"[-_./:@ ]", value) if part]
    return len(parts) > 1 and all(map(_WORD.match, parts))


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
    return is_not_placeholder(value, letters=3) and not is_reference(value) and not _DIGEST.match(value)


@lru_cache(maxsize=64)
def is_strong(value: str) -> bool:
    """Return True for a password that is no word of a sentence: letters with digits, or with signs within."""
    letters = value.replace("-", "")
    scrambled = letters.isalpha() and len(value) >= 10 and is_scrambled(letters)
    signed = is_issued(value) or (not _SIGNS.isdisjoint(value[1:-1]) and any(map(str.isalpha, value)))
    if not (scrambled or signed) or len(set(value)) < 5 or _VERSION_LIKE.match(value):
        return False
    return is_given_password(value) and (scrambled or not are_plain_words(value))


def is_odd(value: str) -> bool:
    """Return True for a value that no sentence holds by chance: signs within, or mixed cases and digits."""
    if len(value) < 8 or not is_issued(value):
        return False
    mixed = value.isalnum() and not set(value) <= set(hexdigits) and _MIXED.search(value)
    odd = mixed or _SIGN_WITHIN.search(value) or is_random(value) or is_scrambled(value)
    return bool(odd) and is_strong(value)


def is_typed_password(value: str) -> bool:
    """Return True for letters of both cases, digits and a sign within, which are a password without a telling word."""
    mixed = len(value) >= 10 and is_issued(value) and not value.isupper() and not value.islower()
    return mixed and not _ENCODED_CHAR.search(value) and is_odd(value) and len(set(value)) >= 8


def is_stop_word(value: str) -> bool:
    """Return True for a word that nobody uses as a password: a type, a state, a word of grammar, a label."""
    word = value.split("&", 1)[0].lower().strip(".,:;!?*_-")
    return word in _WORDS or word in _GRAMMAR


def is_reference(value: str) -> bool:
    """Return True for code and for names of other values: `form.password`, `hashedPassword`, `required`."""
    short = value == "n" or (value.isdecimal() and len(value) < 6)
    if short or (not value.isalnum() and (_REFERENCE.match(value) or _CODE_WITHIN.search(value))):
        return True
    lower = value.lower()
    if is_stop_word(value) or _OTHER_PASSWORD.match(lower):
        return True
    named = _NAME_WORDS.search(lower) and value.replace("-", "_").replace("$", "_").isidentifier()
    parts = PARTS.findall(value) if named else ()
    return len(parts) > 1 and not any(map(str.isdigit, "".join(parts[:-1])))


def is_phrase(value: str, words: int = 4) -> bool:
    """Return True for a passphrase of at least so many `words` in lower case, none of grammar and at most one label."""
    parts = re.split(r"[\s,-]+", value.strip())
    if not words <= len(parts) <= 24 or not all(part.isalpha() and part.islower() and len(part) > 1 for part in parts):
        return False
    stops = sum(part in _GRAMMAR or bool(_NAME_WORDS.search(part)) for part in parts)
    return (not stops and sum(part in _WORDS for part in parts) <= 1) or (len(parts) > 10 and stops <= len(parts) // 6)


def before_grammar(value: str) -> str:
    """Return the words of a sentence before its first word of grammar."""
    stop = next((found for found in re.finditer(r"[\s,-]+(\w+)", value) if found[1] in _GRAMMAR), None)
    return value[: stop.start()] if stop and value.count(" ") < 10 else value


def holds_settings(value: str) -> bool:
    """Return True for base64 of settings that hold a secret, such as an `.env` file or a kubeconfig."""
    encoded = re.sub(r"^.*[^A-Za-z0-9+/]", "", value.rstrip("="))
    try:
        start = base64.b64decode(encoded[:48]).decode("ascii")
        text = base64.b64decode(encoded[: len(encoded) - len(encoded) % 4]).decode("utf-8", "replace")
    except ValueError:
        return False
    return all(char.isprintable() or char in "\r\n\t" for char in start) and bool(_SETTING.search(text))
