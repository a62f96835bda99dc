"""Every command of `nugget`, as `nugget --help` lists it."""

from __future__ import annotations

from nugget.cli.lazily import Listed

ASK = "Ask"
LEARN = "Learn from sessions"
WHY = "Why code is as it is"
HAPPENED = "What happened"
KEEP = "Write"
CARE = "Set up and look after"


def _listed(name: str, place: str, panel: str, help_: str) -> Listed:
    return Listed(name=name, place=place, panel=panel, help=help_)


COMMANDS = (
    _listed("ask", "asking:ask", ASK, "Ask the brain."),
    _listed(
        "search",
        "searching:search",
        ASK,
        "Find everything that matches, in every source at once: the brain, canon, provenance, sessions and more.",
    ),
    _listed(
        "get",
        "searching:get",
        ASK,
        "Show what a ref names, whole: a unit, a note, a section, an exchange or message with those around it.",
    ),
    _listed(
        "suggest",
        "searching:suggest",
        ASK,
        "Show what can be asked for: domains, tags, types, paths, people and frequent words, with counts.",
    ),
    _listed("serve", "upkeep:serve", ASK, "Answer coding agents over MCP on stdin and stdout, or everybody over HTTP."),
    _listed("capture-session", "capturing:capture_session", LEARN, "Propose what is worth keeping of a session."),
    _listed("capture", "capturing:capture", LEARN, "Work the queue of ended sessions, here and now."),
    _listed("review", "reviewing:review", LEARN, "Accept or reject what capture proposed."),
    _listed("import", "importing:import_notes", LEARN, "Propose knowledge from existing notes."),
    _listed(
        "extract",
        "extracting:extract",
        WHY,
        "Extract nuggets, and which files were touched, from the sessions of this workspace.",
    ),
    _listed("context", "provenance:code_context", WHY, "Say why code is the way it is."),
    _listed("nuggets", "travelling:nuggets", WHY, "What is known of this workspace, newest session first."),
    _listed(
        "coverage",
        "provenance:show_coverage",
        WHY,
        "Show how many nuggets each file has, or with --gaps where they are missing.",
    ),
    _listed(
        "commit", "committing:commit", WHY, "Commit what is staged, with a message from the sessions that wrote it."
    ),
    _listed("promote", "promoting:promote_nugget", WHY, "Propose a nugget as a knowledge unit of the brain."),
    _listed("sessions", "reading:sessions", HAPPENED, "The agent sessions of this workspace, newest first."),
    _listed("logs", "logs:logs", HAPPENED, "What happened in shells and agent sessions: commands, failures, fixes."),
    _listed(
        "shell-init",
        "logs:shell_init",
        HAPPENED,
        "Print a hook that records a shell: each command with its exit code, duration and folder.",
    ),
    _listed("brief", "briefing:brief", HAPPENED, "Show the brief of a session that starts in this folder."),
    _listed("recall", "briefing:recall", HAPPENED, "Show what a prompt brings back."),
    _listed("add", "keeping:add", KEEP, "Keep a piece of knowledge."),
    _listed("forget", "keeping:forget", KEEP, "Take a unit out of the brain and keep it from coming back."),
    _listed("mv", "keeping:move", KEEP, "File a unit under another domain, or rename it."),
    _listed("lint", "keeping:lint", KEEP, "Check knowledge files."),
    _listed("init", "upkeep:init", CARE, "Make a brain and use it by default."),
    _listed("clone", "trusting:clone", CARE, "Get a copy of a brain, check and trust it, and read it."),
    _listed("trust", "trusting:trust_brain", CARE, "Use a brain whenever you work in its folder."),
    _listed(
        "install", "installing:install", CARE, "Have Claude Code capture its sessions and ask the brain by itself."
    ),
    _listed("uninstall", "installing:uninstall", CARE, "Take Nugget out of Claude Code's settings again."),
    _listed(
        "sync",
        "syncing:sync",
        CARE,
        "Bring the indexes in line with the files: first the brain's, then that of everything else that is searched.",
    ),
    _listed("rebuild", "syncing:rebuild", CARE, "Rebuild the index."),
    _listed("eval", "evaluating:evaluate", CARE, "Measure how well golden questions are answered."),
    _listed("queries", "evaluating:queries", CARE, "Show what was asked of the brain, most often first."),
    _listed("config", "settings:config", CARE, "Show your settings, or change them."),
    _listed("status", "upkeep:status", CARE, "Show what is indexed, captured, queued, failed and spent."),
    _listed("doctor", "upkeep:doctor", CARE, "Look for what is wrong and name the next command."),
)
