"""Promises about `nugget commit` and its git hook."""

PROMISES: dict[str, str] = {
    "COM-MATCH": "staged files are matched to the sessions that wrote them, from the store and from newer transcripts",
    "COM-LINES": "added lines count for who wrote them; blank, trivial, moved and generated ones for nobody",
    "COM-100": "the percentages of an attribution add up to 100, and whoever wrote a line has at least 1 %",
    "COM-HUMAN": "a line that a person changed after the agent is the person's",
    "COM-CONVENTIONAL": "messages are conventional commits with a first line of at most 72 characters",
    "COM-TYPE": "the type comes from paths, request and diff; the scope from the common folder",
    "COM-TRAILERS": "git reads trailers with session, attribution, and the agent as co-author where it wrote lines",
    "COM-LLM": "with a key a model words the message; where it fails rules do, and that is said",
    "COM-FACES": "dry-run prints, auto commits, else the editor opens; hooks run and signatures are made",
    "COM-REFUSE": "outside a repository, in a bare one, with nothing staged, in a merge: one clear sentence",
    "COM-SECRETS": "no secret of a session gets into a message",
    "HOOK-ONLY-EMPTY": "the hook writes only where nobody did: not for merge, squash, amend, -m, template",
    "HOOK-COMMENTS": "what git wrote below the message stays",
    "HOOK-NEVER-BLOCKS": "whatever fails in the hook, the commit goes on with the message as it was",
    "HOOK-CHAIN": "a foreign hook is kept and runs first, with its arguments, its name and its exit code",
    "HOOK-RESTORE": "installing twice changes nothing, and uninstalling brings back every byte and mode",
    "HOOK-PLACE": "core.hooksPath and worktrees are honoured",
    "HOOK-FAST": "the hook takes at most 500 ms with 200 sessions known",
}
GAPS: dict[str, str] = {
    "HOOK-FAST": "benchmarks/commit_hook.py measures it: 280 ms with what the store knows, 650 ms with a new "
    "transcript of 2 MB, most of it for opening the engine of redaction.",
}
