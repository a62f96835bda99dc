"""Promises about limits, faults and who may read what."""

PROMISES: dict[str, str] = {
    "FILES-PRIVATE": "what Nugget keeps is readable by its owner alone under any umask; repair mends wider modes",
    "FAULT-DISK": "a command that runs out of space is done or not begun, and can be done when there is space again",
    "FAULT-FUZZ": "files, settings, arguments and requests of any content are taken, or refused in a sentence",
    "FAULT-KILL": "a command killed at any call is done or not begun, and any next command puts all in order",
    "FAULT-MODEL": "commands in any order leave a brain as a simple model says; nothing is lost or doubled",
    "FAULT-ISOLATED": "a hostile session, file or log is named or skipped and stops no other, in every loop",
    "LIMIT-FILE": "at most 2,000 passages, relations and links of a file are indexed; sync and lint name the rest",
    "GIT-NO-PROGRAMS": "no command runs a program that a folder's git configuration, hooks or attributes name",
    "SPEAKER-CHANNELS": "a rule planted in any of the channels of tests/faults is never said to be the user's",
    "SPEAKER-REFUSAL": "why a call was refused is the user's only where the client itself recorded who refused it",
    "SPEAKER-PASTED": "what a person pasted or quoted in a prompt is told from what they typed",
    "SPEAKER-TOLD": "brief and recall tell what was reviewed, and beside it only events and what the user typed",
    "SPEAKER-SHOWN": "review, pull request and answers show who said it and whether a person reviewed it",
    "SPEAKER-OLD": "what was kept before speakers were known is the agent's",
    "REVIEW-FLAGS": "commands, addresses and installs in a proposed unit are pointed out to the reviewer",
    "ANSWER-TAGS": "tags that clients give a meaning to are escaped in every answer, unseen characters spelled out",
    "THREATS-SHOWN": "docs/threat-model.md names attackers, what each can reach, and tests that exist",
}
