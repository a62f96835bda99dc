"""The MCP face."""

PROMISES: dict[str, str] = {
    "MCP-CONTRACT": "One tool, get_relevant_context, with the parameters of the contract, answering in plain markdown.",
    "MCP-INSTRUCTIONS": "The server's instructions sell the tool in at most 1,500 characters.",
    "MCP-LENGTH": "An answer to the default budget is under 10,000 characters, whatever the units are like.",
    "MCP-ERRORS": "What goes wrong comes back as text that says what to do: no brain, bad arguments, a lost index.",
    "MCP-START": "initialize and server/discover are answered before any model is loaded; then the brain is warmed up.",
    "MCP-STDERR": "What goes wrong beside the answers is told on stderr without secrets.",
    "MCP-RESIDENT": "All windows of a home share one server, which ends some minutes after the last.",
    "MCP-ALONE": "A window that cannot have the shared server, or must not trust its socket, serves itself.",
    "RECALL-RESIDENT": "While a window is open, recall asks its server in time, and so also searches by meaning.",
    "MCP-END": "The server ends with its client, and prints nothing but the protocol on stdout.",
}
