"""`nugget brief` and `nugget recall`: what sessions are told, to look at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from nugget.cli.asking import words
from nugget.cli.terminal import JsonOption, console, current_folder, print_json
from nugget.config import read_environment
from nugget.render import clean
from nugget.text import estimate_tokens
from nugget.upkeep import briefing


def brief(as_json: JsonOption = False) -> None:
    """Show the brief of a session that starts in this folder.

    With `nugget install --brief` each new session is told it: the last failure and its fix, open todos, constraints
    of this code, and whether capture works.
    """
    text = briefing.brief(read_environment(), current_folder(), now=datetime.now(UTC))
    _show(text, "There is nothing to tell about this folder.", as_json=as_json)


def recall(
    prompt: Annotated[list[str], typer.Argument(metavar="PROMPT", help="What a person might type.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a prompt brings back.

    With `nugget install --recall` each prompt is given it: the few strongest units, found by words (by meaning too
    while a server of Nugget runs), and nothing where nothing is likely to help.
    """
    text = briefing.recall(read_environment(), words(prompt, "a prompt"), current_folder(), now=datetime.now(UTC))
    _show(text, "Nothing is likely to help with this.", as_json=as_json)


def _show(text: str | None, nothing: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"text": text, "tokens": estimate_tokens(text or "")})
    else:
        console().print(clean(text or nothing))
