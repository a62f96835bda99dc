"""What secrets look like: the rules of redaction, each with the cheap text that must be there before it is tried.

Formats are those that the issuers publish (GitHub, GitLab, AWS, Stripe, ... token formats) and those of the
library detect-secrets, whose detectors are used as they are where they are precise enough for free text.
"""

from __future__ import annotations

import base64
import json
import re
from functools import cache

from nugget.redaction.commands import written_rules
from nugget.redaction.shapes import Rule, Shape, is_mixed, is_not_placeholder


def is_jwt(value: str) -> bool:
    """Whether the first part decodes to a JSON object: the header of a JWS or JWE (RFC 7515 and 7516, where what
    follows may be encrypted), or what a web framework keeps in a signed cookie. A cut end still counts.
    """
    header = value.partition(".")[0]
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))), dict)
    except ValueError:
        return False


def _three_classes(value: str) -> bool:
    return is_mixed(value) and any(map(str.isupper, value)) and any(map(str.islower, value))


_VARIABLE = re.compile(r"^[A-Z_]*(?:PASS|PASSWORD|PASSWD|PWD|PW|SECRET|TOKEN|KEY)$")
_EDGE, _END = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))", r"(?![A-Za-z0-9])"

_PREFIXED = """
github-token           ghp_             [A-Za-z0-9]{36,251}
github-token           github_pat_      [A-Za-z0-9_]{40,255}
gitlab-token           glpat-           [A-Za-z0-9_.\\-]{20,300}
slack-token            xoxe.            xox[bp]-\\d-[A-Za-z0-9]{40,}
slack-token            xoxe-            \\d-[A-Za-z0-9]{40,}
slack-token            xapp-            \\d-[A-Z0-9]+-\\d+-[a-f0-9]{20,}
slack-token            xoxb-            [A-Za-z0-9-]{20,}
slack-token            xoxp-            [A-Za-z0-9-]{20,}
anthropic-key          sk-ant-          [A-Za-z0-9_\\-]{20,}
openai-key             sk-proj-         [A-Za-z0-9_\\-]{20,}
openai-key             sk-svcacct-      [A-Za-z0-9_\\-]{20,}
openai-key             sk-admin-        [A-Za-z0-9_\\-]{20,}
openrouter-key         sk-or-v1-        [a-f0-9]{40,}
stripe-key             sk_live_         [A-Za-z0-9]{16,}
stripe-key             rk_live_         [A-Za-z0-9]{16,}
stripe-key             sk_test_         [A-Za-z0-9]{16,}
stripe-key             rk_test_         [A-Za-z0-9]{16,}
stripe-key             whsec_           [A-Za-z0-9+/=]{24,}
google-key             AIza             [A-Za-z0-9_\\-]{35}
google-key             GOCSPX-          [A-Za-z0-9_\\-]{20,}
google-key             ya29.            [A-Za-z0-9_\\-]{20,}
npm-token              npm_             [A-Za-z0-9]{36}
huggingface-token      hf_              [A-Za-z0-9]{30,}
digitalocean-token     dop_v1_          [a-f0-9]{64}
digitalocean-token     doo_v1_          [a-f0-9]{64}
shopify-token          shpat_           [a-fA-F0-9]{32}
shopify-token          shpss_           [a-fA-F0-9]{32}
shopify-token          shpca_           [a-fA-F0-9]{32}
linear-key             lin_api_         [A-Za-z0-9]{32,}
notion-token           ntn_             [A-Za-z0-9]{40,}
postman-key            PMAK-            [a-f0-9]{24}-[a-f0-9]{34}
databricks-token       dapi             [a-f0-9]{32}(?:-\\d)?
vault-token            hvs.             [A-Za-z0-9_\\-]{24,}
vault-token            hvb.             [A-Za-z0-9_\\-]{24,}
newrelic-key           NRAK-            [A-Z0-9]{27}
sentry-token           sntrys_          [A-Za-z0-9_=/+\\-]{40,}
sentry-token           sntryu_          [a-f0-9]{64}
supabase-token         sbp_             [a-f0-9]{40}
docker-token           dckr_pat_        [A-Za-z0-9_\\-]{24,}
pulumi-token           pul-             [a-f0-9]{40}
grafana-token          glsa_            [A-Za-z0-9]{32}_[a-fA-F0-9]{8}
grafana-token          glc_             [A-Za-z0-9+/=]{32,}
atlassian-token        ATATT3           [A-Za-z0-9_\\-=]{40,}
planetscale-token      pscale_tkn_      [A-Za-z0-9_\\-.=]{32,}
planetscale-token      pscale_pw_       [A-Za-z0-9_\\-.=]{32,}
groq-key               gsk_             [A-Za-z0-9]{40,}
xai-key                xai-             [A-Za-z0-9]{60,}
perplexity-key         pplx-            [A-Za-z0-9]{40,}
replicate-token        r8_              [A-Za-z0-9]{37}
netlify-token          nfp_             [A-Za-z0-9]{36,}
doppler-token          dp.pt.           [A-Za-z0-9]{40,}
doppler-token          dp.st.           [A-Za-z0-9_\\-.]{40,}
age-key                AGE-SECRET-KEY-  1[A-Z0-9]{50,}
fly-token              FlyV1            \\ [A-Za-z0-9_=,/+\\-]{40,}
flyio-token            fo1_             [A-Za-z0-9_\\-]{40,}
dropbox-token          sl.              (?:u\\.)?[A-Za-z0-9_\\-]{100,}
airtable-token         pat              [A-Za-z0-9]{14}\\.[a-f0-9]{64}
heroku-key             HRKU-            [A-Za-z0-9_\\-]{36,}
sourcegraph-token      sgp_             (?:[a-f0-9]{16}_|local_)?[a-f0-9]{40}
figma-token            figd_            [A-Za-z0-9_\\-]{36,}
rubygems-key           rubygems_        [a-f0-9]{48}
cloudflare-key         v1.0-            [a-f0-9]{24}-[a-f0-9]{146}
easypost-key           EZAK             [A-Za-z0-9]{54}
confluent-key          cflt             [A-Za-z0-9+/]{60}
artifactory-token      AKC              [A-Za-z0-9]{60,}
artifactory-token      cmVmdGtu         [A-Za-z0-9]{50,}
terraform-token        .atlasv1.        [A-Za-z0-9_\\-]{60,}
square-token           EAAA             [A-Za-z0-9_\\-]{60}
square-token           sq0atp-          [A-Za-z0-9_\\-]{22}
mapbox-token           sk.eyJ           [A-Za-z0-9_\\-]{20,}\\.[A-Za-z0-9_\\-]{20,}
"""
"""kind, literal beginning, and what follows it."""


def _prefixed_rules() -> list[Rule]:
    rules = []
    for line in _PREFIXED.strip().splitlines():
        kind, trigger, rest = line.split(None, 2)
        pattern = Shape(f"{_EDGE}(?P<secret>{re.escape(trigger)}{rest}){_END}")
        if trigger == ".atlasv1.":
            pattern = Shape(rf"{_EDGE}(?P<secret>[A-Za-z0-9]{{14}}\.atlasv1\.{rest}){_END}")
        before = 14 if trigger == ".atlasv1." else 0
        accept = is_not_placeholder if trigger == "GOCSPX-" else is_mixed
        rules.append(
            Rule(kind=kind, trigger=trigger, pattern=pattern, before=before, accept=accept, unbroken=" " not in rest)
        )
    return rules


def _shaped_rules() -> list[Rule]:
    """Secrets that are known by what stands around them."""
    url_password = Shape(
        r"://(?!(?:localhost|[\w-]+(?:\.[\w-]+)+):\d+@)[^\s:/?#\[\]@'\"<>{}$]{0,64}:"
        r"(?P<secret>[^\s/?#@'\"<>]{3,256}(?:@[^\s/?#@'\"<>]+)*)@(?!sha256:)[\w\[]"
    )
    header = r"authorization[\"']?\s{0,2}[:=,]\s{0,2}[\"']?"
    bearer = Shape(rf"(?i){header}(?:bearer|token|basic|apikey|bot|ssws)\s+(?P<secret>[A-Za-z0-9._~+/=:\-]{{8,}})")
    cookie = Shape(
        r"(?i)cookie[\"']?\s{0,2}[:=]\s{0,2}[\"']?(?:[^\n\"']{0,400}?;\s?)??"
        r"[\w.-]*(?:sess|sid|auth|token|jwt)[\w.-]*=(?P<secret>[A-Za-z0-9%._~+/=\-]{16,})"
    )
    aws_pair = Shape(r"(?<![A-Za-z0-9/+=])(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])")
    webhook = Shape(r"https://(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks/\d{15,20}/[\w-]{50,}")
    slack = Shape(r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/+-]{30,}")
    teams = Shape(r"https://[\w-]+\.webhook\.office\.com/(?P<secret>webhookb2/[\w@/-]{40,})")
    sas = Shape(r"(?<=[?&;])sig=(?P<secret>[A-Za-z0-9%+/=]{40,})")
    aws_secret = Shape(
        r"(?i)aws.{0,24}?(?:key|secret|token).{0,24}?(?<![A-Za-z0-9/+=])"
        r"(?P<secret>(?-i:[A-Za-z0-9/+]{40}))(?![A-Za-z0-9/+=])"
    )
    jwt = Shape(rf"{_EDGE}(?P<secret>eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{6,}}(?:\.[A-Za-z0-9_-]*){{0,3}})")
    # Base64 of `PRIVATE KEY` where it begins at the first, second or third byte of a group: no certificate.
    named = r"[A-Za-z0-9+/]{0,36}(?:UFJJVkFURSBLRV|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW)"
    pem = Shape(rf"(?P<secret>LS0tLS1CRUdJTi(?={named})[A-Za-z0-9+/]{{40,}}={{0,2}})")
    return [
        Rule(kind="private-key", trigger="LS0tLS1CRUdJTi", pattern=pem, unbroken=True),
        Rule(kind="jwt", trigger="eyJ", pattern=jwt, longest=4096, unbroken=True, accept=is_jwt),
        Rule(kind="aws-secret-key", trigger="aws", pattern=aws_secret, any_case=True, accept=_three_classes, after=200),
        Rule(
            kind="aws-secret-key",
            trigger="AKIA",
            pattern=aws_pair,
            accept=_three_classes,
            before=1,
            after=300,
            across_lines=True,
        ),
        Rule(kind="webhook-url", trigger="/api/webhooks/", pattern=webhook, before=60),
        Rule(kind="webhook-url", trigger="hooks.slack.com/", pattern=slack, before=8),
        Rule(kind="webhook-url", trigger=".webhook.office.com", pattern=teams, before=90),
        Rule(kind="azure-sas", trigger="sig=", pattern=sas),
        Rule(kind="bearer-token", trigger="authorization", pattern=bearer, any_case=True, accept=is_not_placeholder),
        Rule(kind="session-cookie", trigger="cookie", pattern=cookie, any_case=True, accept=is_mixed),
        Rule(kind="url-password", trigger="://", pattern=url_password, accept=_is_url_password),
    ]


_LIBRARY = {
    "AWSKeyDetector": ("aws-access-key", ("AKIA", "ASIA", "ABIA", "ACCA", "A3T"), False),
    "AzureStorageKeyDetector": ("azure-storage-key", ("AccountKey=",), False),
    "CloudantDetector": ("cloudant-key", ("cloudant",), True),
    "DiscordBotTokenDetector": ("discord-token", (".",), False),
    "GitHubTokenDetector": ("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), False),
    "GitLabTokenDetector": (
        "gitlab-token",
        ("gldt-", "glft-", "glsoat-", "glrt-", "GR1348941", "glcbt-", "glimt-", "glptt-", "glagent-", "gloas-"),
        False,
    ),
    "IbmCloudIamDetector": ("ibm-key", ("ibm",), True),
    "IbmCosHmacDetector": ("ibm-key", ("secret",), True),
    "MailchimpDetector": ("mailchimp-key", ("-us",), False),
    "OpenAIDetector": ("openai-key", ("T3BlbkFJ",), False),
    "PypiTokenDetector": ("pypi-token", ("pypi-AgE",), False),
    "SendGridDetector": ("sendgrid-key", ("SG.",), False),
    "SlackDetector": ("slack-token", ("xox",), False),
    "SoftlayerDetector": ("softlayer-key", ("softlayer",), True),
    "SquareOAuthDetector": ("square-token", ("sq0csp-",), False),
    "TelegramBotTokenDetector": ("telegram-token", (":AA",), False),
    "TwilioKeyDetector": ("twilio-key", ("SK", "AC"), False),
}
"""detect-secrets detector -> our kind, what must be in the text, and whether its case matters not.

Not used: its keyword, entropy, public IP and basic-auth detectors (wrong too often in free text; the rules for
assignments and URLs replace them), and those whose formats the list above covers more closely.
"""

_BEFORE = {
    "CloudantDetector": 150,
    "DiscordBotTokenDetector": 30,
    "IbmCloudIamDetector": 3,
    "IbmCosHmacDetector": 20,
    "MailchimpDetector": 33,
    "OpenAIDetector": 120,
    "SoftlayerDetector": 12,
    "TelegramBotTokenDetector": 12,
}
_DISCORD_ANCHOR = re.compile(r"\.[\w-]{6}\.[\w-]{27}")
_SHAPES = {
    "DiscordBotTokenDetector": _DISCORD_ANCHOR,
    "IbmCosHmacDetector": re.compile(r"[a-f0-9]{48}"),
    "TwilioKeyDetector": re.compile(r"(?:SK|AC)[a-z0-9]{32}"),
}
"""What every secret of a detector with common triggers holds."""


def _library_rules() -> list[Rule]:
    import importlib
    import pkgutil

    import detect_secrets.plugins

    rules = []
    for module in pkgutil.iter_modules(detect_secrets.plugins.__path__):
        detectors = vars(importlib.import_module(f"detect_secrets.plugins.{module.name}"))
        for name in _LIBRARY.keys() & detectors.keys():
            kind, triggers, any_case = _LIBRARY[name]
            anchor = _DISCORD_ANCHOR if name.startswith("Discord") else None
            for pattern in detectors[name]().denylist:
                bounded = Shape(f"{_EDGE}(?:{pattern.pattern}){_END}", pattern.flags)
                rules += [
                    Rule(
                        kind=kind,
                        trigger=trigger,
                        pattern=bounded,
                        before=_BEFORE.get(name, 0),
                        after=300,
                        any_case=any_case,
                        unbroken=not any_case,
                        anchor=anchor,
                        accept=is_mixed,
                    )
                    for trigger in triggers
                    if len(triggers) == 1 or trigger.rstrip("-_").lower() in pattern.pattern.replace("\\", "").lower()
                ]
    return rules


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, the more telling kinds first."""
    return (*_prefixed_rules(), *_library_rules(), *_shaped_rules(), *written_rules())


@cache
def _own_rules() -> tuple[Rule, ...]:
    return (*_prefixed_rules(), *_shaped_rules(), *written_rules())


def rules_for(lowered: str, long_words: str) -> tuple[Rule, ...]:
    """The rules that can find something in a text, given in lower case, whose words of SHORTEST_RUN and more are given.

    Importing the library takes longer than most searches, so its rules are made when the first text may need them.
    """
    if rules.cache_info().currsize:
        return rules()
    for name, (_, triggers, any_case) in _LIBRARY.items():
        haystack = lowered if any_case else long_words
        shape = _SHAPES.get(name)
        if any(trigger in haystack for trigger in triggers) and (shape is None or shape.search(haystack)):
            return rules()
    return _own_rules()


def _is_url_password(value: str) -> bool:
    """Whether it can be one: where a URL has a password, nothing else can stand but a placeholder."""
    if value in ("root", "admin", "qwerty") or (value.isdigit() and len(value) > 3):
        return True
    return is_not_placeholder(value, letters=2) and not _VARIABLE.match(value)
