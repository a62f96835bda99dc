"""Promises about knowledge files, their chunks, and the brain that holds them."""

from __future__ import annotations

PROMISES: dict[str, str] = {
    "KNOW-CHUNK-HEADINGS": "A body is split at its headings, found by a Markdown parser: a `#` in code is no heading.",
    "KNOW-CHUNK-LONG": "A section that is too long is cut at paragraphs, its parts overlapping by 10 to 15 percent.",
    "KNOW-CHUNK-SMALL": "A section that is too small joins the next one under the same parent.",
    "KNOW-CHUNK-FENCE": "A code fence is never cut, unless it alone is too long.",
    "KNOW-CHUNK-BLOCKS": "A long table is cut between rows and a long list between entries.",
    "KNOW-CHUNK-CJK": "Text without spaces is cut at its sentences, then anywhere.",
    "KNOW-CHUNK-LOSSLESS": "Chunking loses no text.",
    "KNOW-CHUNK-DETERMINISTIC": "The same body gives the same chunks.",
    "KNOW-FORMAT": "A knowledge file has the keys, types and relations of the contract.",
    "KNOW-TOLERANT": "The parser takes what people write: dates as text, missing optional keys, CRLF, a BOM.",
    "KNOW-PROBLEM-LINE": "What a file has wrong is told with path, line and reason, and raises nothing.",
    "KNOW-ROUND-TRIP": "Parse, serialise, parse gives the identical unit.",
    "KNOW-EDIT-ONLY": "A file that is changed in part changes only there, byte for byte.",
    "KNOW-HOSTILE": "YAML bombs, tags, deep nesting, binary and huge files do no harm.",
    "BRAIN-INIT": "`init` makes a git repository from the template with a first commit and ignores `.nugget/`.",
    "BRAIN-INIT-IDEMPOTENT": "`init` again changes nothing.",
    "BRAIN-INIT-FOREIGN": "`init` refuses a non-empty foreign folder with a clear sentence.",
    "BRAIN-CONTAINED": "No path and no symbolic link leads out of the brain.",
    "BRAIN-GUARDED-WRITE": "A file that changed since it was read is not overwritten; a write is whole or not at all.",
    "BRAIN-ADD": "`add` files a text as a unit and commits only that file.",
    "BRAIN-FORGET": "`forget` removes a unit and the relations to it, and remembers that it is not wanted.",
    "BRAIN-MOVE": "`mv` files a unit elsewhere or renames it, and relations follow.",
    "BRAIN-ID": "A clone, a move or a rewritten history proposes nothing again; a copied id gives nothing.",
    "BRAIN-READY": "In a merge, rebase, cherry-pick or bisect, or without a branch, nothing is written.",
    "BRAIN-UNCOMMITTED": "A change of a file with uncommitted work is refused before anything moves; other work stays.",
    "WRITE-WHOLE": "A change killed at any step is there whole or not at all, and the next command finishes it.",
    "WRITE-FULL-DISK": "A change on a full disk is there whole or not at all, and can be made again.",
    "BRAIN-ONE-WRITER": "Writers of a brain wait for each other, and each gets its commit.",
    "BRAIN-LINT": "`lint` tells what is wrong with each file and between files, with path, line and reason.",
    "BRAIN-LINT-SECRETS": "`lint` warns of secrets in knowledge files by kind and line, and never shows them.",
    "SETTINGS-BOUNDED": "brain.yaml and config.yaml are read with bounds: size, depth, aliases, tags.",
    "SETTINGS-KNOWLEDGE": "brain.yaml sets only what belongs to the knowledge: it has nothing sent, run or read.",
    "SETTINGS-MOVE": "`doctor` names each key that brain.yaml may not set, and `nugget config move` takes it over.",
    "SETTINGS-SET": "`nugget config` shows settings with their origin and writes them, keeping every other line.",
    "BRAIN-BAD-INPUT": "Each kind of bad input gets a clear sentence, and everything else still works.",
}

GAPS: dict[str, str] = {}
