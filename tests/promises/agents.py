"""Promises about the sessions of agents other than Claude Code."""

PROMISES: dict[str, str] = {
    "AGT-ENTRANCE": "one entrance finds the sessions of every agent, oldest first, and reads each",
    "AGT-PREFIX": "a session is found by the beginning of its id where that is unambiguous",
    "AGT-GOLDEN": "the sample transcripts of Codex, Gemini CLI, Cursor and OpenCode give the events that are in them",
    "AGT-CONTENT": "whose transcript a file is is told by what is in it, never by its name",
    "AGT-FOREIGN": "a file of no known agent is refused in one clear sentence",
    "AGT-FOLDERS": "each agent's own variable, or a setting, moves where its sessions are looked for",
    "AGT-COMMANDS": "commands carry exit code and output whichever agent ran them, edits what was before and after",
    "AGT-PATCH": "every form of apply_patch becomes the edits that it makes",
    "AGT-INJECTED": "what the clients weave into prompts is never taken for the person's words",
    "AGT-TORN": "torn and unknown records of any agent are counted and stop nothing",
    "AGT-UNTOUCHED": "reading another program's database takes no lock, makes no file and changes no byte",
    "AGT-CAPTURE": "capture-session takes a transcript of any known agent",
    "AGT-CATCH-UP": "catch-up finds other agents' sessions only where capture.agents names them",
    "AGT-MORE": "sessions of Copilot, Droid and Continue are read",
}
GAPS: dict[str, str] = {
    "AGT-MORE": "their formats are others again; a transcript of theirs is refused as foreign",
}
