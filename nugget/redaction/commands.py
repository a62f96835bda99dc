"""Passwords where programs take them: command lines, SQL, and the files that hold logins."""

from __future__ import annotations

import re

from nugget.redaction.shapes import Rule, Shape, is_mixed, is_not_placeholder
from nugget.redaction.words import is_reference

_VALUE = (
    r"(?P<open>\\{0,16}[\"'])?(?P<secret>(?(open)[^\"'\n\\$<>{}][^\"'\n\\]{2,255}|"
    r"[^\s\"'`$<>{}()\[\]|;&\\-][^\s\"'`<>|;&\\)]{2,255}))"
)
"""One argument, quoted or not."""

_PORTS = re.compile(r"^\d{1,5}(?:[:/-]\d{1,5})*(?:/\w+)?$|^[\w.]+:\d{1,5}:\d{1,5}$")
_REST = r"\b[^\n|;]{0,300}?\s"

_COMMANDS = (
    ("login ", r"login" + _REST + r"(?:-p|--password)(?:\s+|=)"),
    ("mongo", r"mongo(?:sh|dump|restore|export|import|stat|top)?" + _REST + r"-p(?:\s+|=)?"),
    ("mysql", r"mysql(?:dump|admin|import|show|check|pump)?" + _REST + r"-p(?![\s=])"),
    ("mariadb", r"mariadb(?:-dump|-admin)?" + _REST + r"-p(?![\s=])"),
    ("redis-cli", r"redis-cli" + _REST + r"(?:-a|(?i:auth))\s+"),
    ("requirepass", r"requirepass\s+"),
    ("masterauth", r"masterauth\s+"),
    ("sshpass", r"sshpass\s+-p\s*"),
    ("curl", r"curl" + _REST + r"(?:-u|-U|--user|--proxy-user)[ =]?\\{0,16}[\"']?[\w.@+%-]*:"),
    ("htpasswd", r"htpasswd(?:\s+-\w+)*?\s+-(?=\w*b)(?!\w*n)\w+(?:\s+-\w+)*\s+[^\s-]\S*\s+\S+\s+"),
    ("htpasswd", r"htpasswd(?:\s+-\w+)*?\s+-(?=\w*b)(?=\w*n)\w+(?:\s+-\w+)*\s+[^\s-]\S*\s+"),
    ("-pass", r"-pass(?:in|out)?\s+[\"']?pass:"),
    ("--password-stdin", r"--password-stdin\b[^\n|;]{0,200}?<<<\s*"),
    ("gh secret set", r"gh secret set\s+\S+" + _REST + r"(?:-b|--body)[\s=]"),
    ("smbclient", r"smbclient" + _REST + r"-U\s*\\{0,16}[\"']?[\w.\\/-]{1,64}%"),
    ("ldap", r"ldap(?:search|modify|add|delete|passwd|whoami|compare)" + _REST + r"-w\s+"),
    ("cypher-shell", r"cypher-shell" + _REST + r"-p\s+"),
    ("twine", r"twine" + _REST + r"-p\s+"),
    ("NEO4J_AUTH", r"NEO4J_AUTH\s?[=:]\s?[\"']?\w+/"),
    ("rabbitmqctl", r"rabbitmqctl\s+(?:add_user|change_password|authenticate_user)\s+[\"']?[\w.@-]+[\"']?\s+"),
    ("wpa_passphrase", r"wpa_passphrase\s+(?:\"[^\"\n]+\"|\S+)\s+"),
    ("nmcli", r"nmcli" + _REST + r"password\s+"),
    ("xfreerdp", r"xfreerdp" + _REST + r"/p:"),
    ("net use", r"net use\s+(?:(?:[\w*]:?\s+)?\\\\\S+\s+)(?:/user:\S+\s+)?(?!/)"),
)
"""What must be in the text, and what stands before the password."""

_BEFORE = (
    (" -P", r"(?:sqlcmd|bcp|mosquitto_(?:pub|sub|rr)|zip)\b[^\n|;]{0,300}?\s-P\s*" + _VALUE),
    (
        "--password-stdin",
        r"(?:echo|printf)\s+(?:-\w+\s+|[\"']?%s[\"']?\s+)?"
        + _VALUE
        + r"\\{0,16}[\"']?\s*\|[^\n|]{0,80}--password-stdin",
    ),
    ("sudo -S", r"echo\s+(?:-\w+\s+)?" + _VALUE + r"\\{0,16}[\"']?\s*\|\s*sudo -S"),
    (
        "chpasswd",
        r"echo\s+(?:-\w+\s+)?\\{0,16}[\"']?[\w.-]+:(?P<secret>[^\s\"'|$<>{}\\]{3,255})\\{0,16}[\"']?\s*\|"
        r"\s*(?:sudo\s+)?chpasswd",
    ),
)
"""What must be in the text, and the whole command, which begins before it."""


def is_given_password(value: str) -> bool:
    """Whether an argument that stands where a program takes a password can be one, however plain a word it is."""
    if value in ("root", "admin", "qwerty"):
        return True
    digits = value.isdigit() and len(value) > 5
    return digits or (is_not_placeholder(value, letters=3) and not _PORTS.match(value) and not is_reference(value))


def written_rules() -> list[Rule]:
    """The rules of this module."""
    rules = [
        Rule(kind="command-password", trigger=trigger, pattern=Shape(head + _VALUE), accept=is_given_password)
        for trigger, head in _COMMANDS
    ]
    rules += [
        Rule(
            kind="command-password",
            trigger=trigger,
            pattern=Shape(pattern),
            before=300,
            after=260,
            accept=is_given_password,
        )
        for trigger, pattern in _BEFORE
    ]
    return [*rules, *_sql_rules(), *_login_file_rules()]


def _sql_rules() -> list[Rule]:
    identified = Shape(
        r"(?i)identified\s+(?:with\s+[\"'`]?\w+[\"'`]?\s+)?by\s+(?:password\s+)?\\{0,16}[\"'](?P<secret>[^\s\"'\\]{3,255})"
    )
    bare = Shape(r"(?i)\buser\s+[\w.@'\"-]{1,64}\s+identified\s+by\s+" + _VALUE)
    role = Shape(
        r"(?i)\b(?:create|alter|add|set)\s[^\n;]{0,120}?\bpassword\s*(?:=\s*)?(?:for\s\S+\s?=\s?)?(?:N|E)?"
        r"\\{0,16}'(?P<secret>[^\s'\\,][^\s'\\]{2,255})"
    )
    return [
        Rule(kind="password", trigger="identified ", pattern=identified, any_case=True, accept=is_given_password),
        Rule(
            kind="password", trigger="identified ", pattern=bare, any_case=True, before=80, after=200,
            accept=is_given_password,
        ),
        Rule(
            kind="password", trigger="password", pattern=role, any_case=True, before=160, after=260,
            accept=is_given_password, anchor=re.compile(r"password\s*(?:=\s*)?[ne]?\\{0,16}'"),
        ),
    ]  # fmt: skip


def _login_file_rules() -> list[Rule]:
    netrc = Shape(r"login\s+\S+\s+password\s+(?P<secret>[^\s$<>{}\"'\\]{4,})(?!\s*=)")
    npmrc = Shape(r":_(?:authToken|auth|password)\s*=\s*[\"']?(?P<secret>[^\s\"'$]{12,})")
    putty = Shape(r"Private-MAC:\s*(?P<secret>[a-f0-9]{40,64})")
    docker_auth = Shape(r"\"auth\\{0,16}\"\s*:\s*\\{0,16}\"(?P<secret>[A-Za-z0-9+/=]{16,})\\{0,16}\"")
    pgpass = Shape(
        r"(?<![^\s\"'n])[\w.*-]+:(?:\d{2,5}|\*):[\w*-]+:[\w.*-]+:(?P<secret>[^\s:\"'<>${}\\]{3,128})(?=[\s\"\\]|$)"
    )
    return [
        Rule(kind="netrc-password", trigger="login ", pattern=netrc, accept=is_given_password),
        Rule(kind="npm-token", trigger=":_", pattern=npmrc, accept=is_not_placeholder),
        Rule(kind="private-key", trigger="Private-MAC:", pattern=putty),
        Rule(kind="docker-auth", trigger='"auth"', pattern=docker_auth, accept=is_mixed),
        Rule(kind="docker-auth", trigger='"auth\\', pattern=docker_auth, accept=is_mixed),
        Rule(kind="password", trigger=":5432:", pattern=pgpass, before=80, after=200, accept=is_given_password),
    ]
