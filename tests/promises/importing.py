"""Promises about importing existing notes."""

PROMISES: dict[str, str] = {
    "IMPORT-FORMATS": "Obsidian, plain markdown, ADRs (Nygard, MADR), agents' rules, Cursor rules, and exports of "
    "mem0, claude-mem and basic-memory each become units of the right type, with the reason for it.",
    "IMPORT-GRAPH": "Links, aliases and embeds of a vault become relations; tags, statuses and attachments stay.",
    "IMPORT-CHATS": "Conversations that ChatGPT and Claude export become sessions: found, shown and captured.",
    "IMPORT-REVIEW": "What is imported is a proposal like any other: a branch that is shown, accepted, or rejected.",
    "IMPORT-ONE-IDEA": "One unit holds one idea: an ADR is one, rules and long notes are cut at their sections.",
    "IMPORT-EVIDENCE": "Each unit names the file and line that it came from, with a quote, and has origin `imported`.",
    "IMPORT-ONCE": "Importing the same notes again, moved or renamed, proposes nothing twice; nor what was rejected.",
    "IMPORT-NEAR": "What is much like a unit of the brain is flagged, what it says already left out, nothing edited.",
    "IMPORT-UNTOUCHED": "Neither the notes, nor the checkout, nor any file of the brain is changed.",
    "IMPORT-REDACTED": "Secrets and private blocks are taken out before anything is kept, and excluded files not read.",
    "IMPORT-HOSTILE": "Links, binary, huge, undecodable and broken files are left out with a reason and stop no other.",
    "IMPORT-REAL": "What claude-mem, mem0 and basic-memory themselves wrote is read, databases too, and left alone.",
    "IMPORT-LEFT-OUT": "Journals, task lists, lists of links, templates and stubs are left out, and it is said.",
}
