"""The HTTP face, and what is injected into sessions."""

PROMISES: dict[str, str] = {
    "HTTP-ASK": "/v1/ask and /v1/search answer with the very JSON of the command line, by GET and POST, redacted.",
    "HTTP-UNIT": "/v1/units/{ref} gives one unit whole; no id leads out of the brain.",
    "HTTP-MEMORY": "Memory is shown only where the server was started with its identity, whatever a request says.",
    "HTTP-MCP": "/mcp speaks the Model Context Protocol over streamable HTTP with the tool of the stdio server.",
    "HTTP-HEALTH": "/healthz says what runs, and to strangers only that it runs.",
    "HTTP-OPENAPI": "/openapi.json is a valid OpenAPI 3.1 document that lists every path.",
    "HTTP-BAD-INPUT": "Bad requests get the right status and one clear sentence in one shape, never a traceback.",
    "HTTP-START": "The server starts without a brain; an address that cannot be had is told in one sentence.",
    "HTTP-END": "SIGTERM and Ctrl-C end it in order: what was begun is answered, nothing new is taken.",
    "HTTP-EXAMPLES": "Every curl example of the documentation works as written, and its answers say what is promised.",
    "HTTP-LOGS": "Logs are taken in by GET and POST, idempotently and redacted; no session id leads anywhere else.",
    "HTTP-BACKFILL": "At its start the server takes in all logs in the background and says how far it is.",
    "HTTP-CHAT": "/v1/chat/completions does the same in the form of OpenAI's API, whole and streamed.",
    "HTTP-COMPLETE": "/v1/completions puts what a session's logs say into a call as fenced material, by context_mode.",
    "HTTP-STREAM": "A stream is passed on byte for byte as it comes; errors of the API keep their status.",
    "HTTP-COST": "Every completion is in the cost ledger, and none is made that could cost more than allowed.",
    "BRIEF-START": "A session can be told the last failure, open todos, constraints and the state of capture.",
    "BRIEF-OFF": "Before there is reviewed knowledge of the code nothing is told unasked, and never what stands in the "
    "conversation already.",
    "BRIEF-SILENT": "Whatever is broken or hostile, the hooks exit 0, say nothing wrong and keep their fence.",
    "BRIEF-NO-ECHO": "What was told is known again in transcripts, so that memory does not feed on itself.",
    "BRIEF-INSTALL": "`nugget install --brief --recall` switches them on, again and back, and leaves nothing behind.",
    "RECALL": "A prompt can bring back the few units that are likely to help, and brings back nothing otherwise.",
    "HTTP-TOKEN": "Every request needs a token, made at the first start for its owner; --no-token is for loopback.",
    "HTTP-LOOPBACK": "Beyond loopback it listens only with a token, which it then asks everybody for.",
    "HTTP-DAILY-CAP": "All calls over HTTP cost at most `http.max_usd_per_day`, however many ask, restart or not.",
    "HTTP-REBINDING": "A Host or an Origin that is not ours is refused, so that no web page can call it.",
    "HTTP-FLOOD": "A flood gets 429 with Retry-After at once; what was taken is answered, and memory stays bounded.",
}
GAPS: dict[str, str] = {}
