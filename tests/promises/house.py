"""The house: layers, names, start-up, packaging, documentation."""

PROMISES: dict[str, str] = {
    "HOUSE-LAYERS": "Modules import downward only, heavy packages have one gateway, and one module reads the "
    "environment.",
    "HOUSE-SIZE": "Modules, lines, classes, patterns and parameters stay within budgets that may only fall.",
    "HOUSE-DOCSTRINGS": "Every public module, class, function and method says what it does.",
    "HOUSE-STARTUP": "`import nugget`, `nugget --help` and a search without vectors import no heavy package.",
    "HOUSE-WHEEL": "The wheel, installed without dev dependencies, carries template, hooks and model, and "
    "init, add and ask work there.",
    "HOUSE-DOCS-RUN": "Every console block in README and docs runs as it stands, in a new HOME.",
    "HOUSE-DOCS-COMPLETE": "Every command, option, configuration key, error and profile is in the documentation.",
    "HOUSE-DOCS-COMMANDS": "Every command line that a page names exists, with the options that it shows.",
    "HOUSE-DOCS-GENERATED": "The reference pages for the CLI, configuration and MCP are what the code says.",
    "HOUSE-OLD-HOME": "A home and a brain of 0.1.0 open as they are: every command works, nothing is lost "
    "or captured twice.",
    "HOUSE-EXTRA": "What an extra brings is asked for in one sentence with the command that installs it, pinned, "
    "never by a bare name.",
    "HOUSE-RELEASE": "Version and changelog are those of one place, and the notes on a version stay short.",
    "HOUSE-SYSTEMS": "What Windows lacks is called in one module, where each function says what happens there; without "
    "these calls a session is captured, reviewed and found again.",
    "HOUSE-SELF-CHECK": "`nugget self-check` plays the way from a session to an answer in a temporary home and "
    "says what works.",
    "HOUSE-MANUAL": "The wheel brings a man page and completions, which are what the code says.",
    "HOUSE-SITE": "The documentation is a site that is built without a warning and without a network.",
    "HOUSE-DEMO": "The demo runs the main job, from transcript to an answer over MCP, offline in a temporary HOME.",
}
