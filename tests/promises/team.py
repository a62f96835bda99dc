"""A team: its index in PostgreSQL, and its server."""

PROMISES: dict[str, str] = {
    "TEAM-SAME": "a team's index in PostgreSQL gives the hits of the embedded one, with the same BM25 scores",
    "TEAM-IDEMPOTENT": "publishing writes what differs, twice is as once, and no other brain's space is taken",
    "TEAM-ROWS": "rows of a space are seen and changed only by a transaction that names it, through every door",
    "TEAM-FAULTS": "a team's index that is killed, cut off, busy or of another version gives one clear sentence; "
    "what was being written is whole or not there",
    "TEAM-CONFIG": "a team's index is set by one line of one's own configuration, never by a brain, and never with a "
    "password",
    "TEAM-MODEL": "a client with another model than the space searches by words and says `other_model`",
    "TEAM-TRIPS": "a question to a team's index takes at most five trips to the database",
    "TEAM-SPACES": "Each brain of a team's server is a space; to callers who may not read it, it does not exist.",
    "TEAM-TOKENS": "Tokens are stored as hashes, expire, and stop working when they are revoked.",
    "TEAM-OIDC": "Access tokens of an OpenID provider are checked by keys, issuer, audience and expiry; groups "
    "give rights, and clients find the provider by RFC 9728.",
    "TEAM-PROXY": "A proxy's header names the caller only if it comes from an address that the settings name.",
    "TEAM-SESSIONS": "A member's session is redacted, sent, redacted again, and proposed in the space by the server.",
    "TEAM-WEBHOOK": "A signed webhook of GitHub for a known repository is followed, once a delivery.",
    "TEAM-PAGE": "The commands of docs/team.md, followed as they stand, give a second account its answers.",
}
