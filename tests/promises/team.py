"""A team: its index in PostgreSQL, and its server."""

PROMISES: dict[str, str] = {
    "TEAM-SAME": "a team's index in PostgreSQL gives the hits of the embedded one, with the same BM25 scores",
    "TEAM-TRIPS": "a question to a team's index takes at most five trips to the database",
    "TEAM-SPACES": "Each brain of a team's server is a space; to callers who may not read it, it does not exist.",
    "TEAM-TOKENS": "Tokens are stored as hashes, expire, and stop working when they are revoked.",
    "TEAM-OIDC": "Access tokens of an OpenID provider are checked by keys, issuer, audience and expiry; groups "
    "give rights, and clients find the provider by RFC 9728.",
    "TEAM-PROXY": "A proxy's header names the caller only if it comes from an address that the settings name.",
    "TEAM-SESSIONS": "A member's session is redacted, sent, redacted again, and proposed in the space by the server.",
    "TEAM-WEBHOOK": "A signed webhook of GitHub for a known repository is followed, once a delivery.",
}
