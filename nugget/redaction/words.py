"""Words that stand where a password could and are none: types, states, labels, names of other values."""

from __future__ import annotations

import re

_WORDS = frozenset(
    """
    string str text varchar char type types typed bool boolean integer number object array list tuple dict map set
    buffer bytes binary optional option maybe some any never void unknown nullable null nil none undefined empty blank
    column field fields input inputs value values model schema secretstr credentials credential passwordstr securestring
    true false yes no on off default defaults auto random generated generate unset notset missing absent present
    required mandatory needed valid invalid validated validation verified verify checked check correct incorrect wrong
    bad good weak strong strength short long same different mismatch match matches matching unchanged changed change
    updated update updating reset resets resetting rotated rotate rotation forgot forgotten remember lost recover
    recovery new old current previous next first second last initial temporary temp tmp plain plaintext plaintexts
    hashed hash hashes hashing salted encrypted encrypt encryption decrypted decrypt encoded encode bcrypt argon2
    scrypt pbkdf2 sha256 masked mask hidden hide redacted removed remove omitted stripped sanitized filtered secret
        passphrase passwords secrets token tokens key keys username user users login logins account admin-only email
    name names label labels
    title placeholder description message error errors warning info help hint prompt prompts prompted interactive
    manual manually auth authentication authenticate authenticated authorization basic bearer oauth oauth2 ldap kerberos
    ident peer trust scram md5 cert certificate vault keyring keychain env environment environ variable variables
    config configuration settings setting file files path paths stdin stdout pipe see from via per using use used uses
    protected protection protect policy policies rule rules manager managers management based only less free
    security secure security-sensitive sensitive confidential private public internal external shared common
    show showed view edit save cancel submit confirm confirmed confirmation repeat again enter type-in
    sets setter getter put post patch delete deleted create created creates add added adds send sent stored store
    stores storing keep kept saved logged leaked leaking exposed visible printed shown displayed passed pass passes
    passing given provided supplied accepted rejected denied failed failure fails success successful successfully
    expired expires expiring expiry supported unsupported enabled disabled enable disable allowed disallowed deprecated
    option options requires require flag flags argument arguments arg args parameter parameters param params
    todo fixme tbd na test tests testing tested example examples sample samples dummy fake mock stub fixture foo bar
    baz qux request response req res body form data payload props state self cls event handler callback func function
    method class const let var return returns import export await async new lambda def
    minimum maximum min max length size count characters character chars char least most number digits digit letters
    uppercase lowercase special symbol symbols zeichen mindestens
    passwort kennwort contraseña contrasena senha wachtwoord parola
    falsch richtig vergessen abgelaufen ungültig erforderlich gesperrt geändert obligatoire incorrecte requise oublié
    expiré incorrecta incorrecto requerida obligatoria sbagliata scaduta incorreta onjuist
    hasło haslo heslo lösenord adgangskode passord
    salasana jelszó parool lozinka parole şifre sifre пароль 密码 密碼 パスワード 비밀번호 mot motdepasse passe clave
    """.split()
)
_GRAMMAR = frozenset(
    """
    their his her our its it the a an this that these those is are was were be been being has have had do does did done
    not and or but if when while where which who what why how to of in at by for with without into onto as than then
    so such also too very must should shall will would can could may might cannot need needs let lets get gets got set
    please your my here there below above everywhere least most see from via per during zeichen mindestens at only less
    forgot forgotten enter type-in wrong invalid incorrect missing required
    """.split()
)
_NAME_WORDS = re.compile(r"password|passwd|passwort|passphrase|secret|credential|token", re.IGNORECASE)
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LEADING = re.compile(
    r"(?i)^(?:wrong|bad|invalid|new|old|current|temp|test|some|the|your|user|admin|root|hashed?|plain|db|database|app|"
    r"default|existing|confirm|raw|encrypted|valid|weak|strong|short|long|initial|next|last|repeat|no|not|any|fake)"
    r"(?:password|passwd|passphrase|secret|pass|pwd)s?\d{0,2}$"
)
_WRITTEN_CODE = re.compile(
    r"^[A-Za-z_$][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)+[;,]?$|[({\[\]})]|=>|\|\||&&|^[A-Z][A-Z0-9]*_[A-Z0-9_]*$"
    r"|^\w+:\w+\||^#[a-z]|^\.[a-z]|^--?[a-z]|\w\|\w|^[!?~^].{0,2}$|^https?:|^\\?n?$|::"
)


def is_stop_word(value: str) -> bool:
    """Whether a word is none that would be somebody's password: a type, a state, a word of grammar, a label."""
    word = value.split("&", 1)[0].lower().strip(".,:;!?*_-")
    return word in _WORDS or word in _GRAMMAR


def is_reference(value: str) -> bool:
    """Whether a value is code, or names another value: `form.password`, `hashedPassword`, `db_secret`, `required`."""
    if is_stop_word(value) or _WRITTEN_CODE.search(value):
        return True
    if _LEADING.match(value) or value.lower().endswith(("_pw", "_pwd", "_pass")):
        return True
    if not _NAME_WORDS.search(value):
        return False
    humps = _HUMPS.findall(value)
    plain = re.fullmatch(r"[A-Za-z_$][\w$-]*", value)
    return bool(plain) and len(humps) > 1 and not any(hump.isdigit() for hump in humps[:-1])


def is_phrase(value: str, words: int = 3) -> bool:
    """Whether a value is a passphrase: so many `words` or more in lower case, none of them of grammar or a label."""
    parts = value.replace("-", " ").split()
    return (
        words <= len(parts) <= 10
        and all(word.isalpha() and word.islower() and len(word) > 1 for word in parts)
        and not any(word in _GRAMMAR or _NAME_WORDS.search(word) for word in parts)
        and sum(word in _WORDS for word in parts) <= 1
    )
