"""Write the reference parts of the documentation from the code: commands, settings, errors, the MCP tool.

`python scripts/reference.py` writes them; with `--check` it only says which pages are out of date, and exits 1.
Everything between `<!-- generated: NAME -->` and `<!-- end -->` in docs/*.md is made here.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

import typer
from typer.main import get_command

from nugget import config, errors
from nugget.app.agent_session import AgentSession
from nugget.cli import app
from nugget.index.fulltext import COLUMN_WEIGHTS, STOP_WORDS
from nugget.markdown.chunking import MAX_TOKENS, MIN_TOKENS, OVERLAP_TOKENS
from nugget.mcp import DESCRIPTION, INSTRUCTIONS, make_server
from nugget.redaction.judging import RULES
from nugget.retrieval import scoring
from nugget.retrieval.candidates import BM25_DEPTH, PROFILES

DOCS = Path(__file__).parent.parent / "docs"
KINDS = {int: "N", float: "NUMBER", str: "TEXT"}
FOUND = ("private", "secret", "password", "private-key", "kubernetes-secret", "pin", "passphrase", "recovery-code",
         "encoded-secret", "unknown-token", "random-pair")  # fmt: skip
"""Kinds of secrets that code finds and no rule."""
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands(command: Any = None, path: str = "nugget") -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, in the order of `nugget --help`."""
    command = command or get_command(app)
    yield path, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(None, name), f"{path} {name}")


def commands_part() -> str:
    return "\n".join(_command(path, command) for path, command in commands() if not command.hidden)


def _command(path: str, command: Any) -> str:
    arguments = [entry for entry in command.params if entry.param_type_name == "argument"]
    options = [entry for entry in command.params if entry.param_type_name == "option" and not entry.hidden]
    usage = [path, *(["COMMAND"] if hasattr(command, "commands") else []), *(map(placeholder, arguments))]
    lines = [f"## `{path}`\n", " ".join((command.help or "").split("\f")[0].split()) + "\n"]
    lines.append(f"```\n{' '.join(usage)}{' [OPTIONS]' if options else ''}\n```\n")
    rows = [(placeholder(entry), entry.help or "") for entry in arguments]
    rows += [(option_names(entry), entry.help or "") for entry in options]
    if rows:
        lines.append("| | |\n|---|---|")
        lines += [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows]
        lines.append("")
    return "\n".join(lines)


def placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def option_names(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    kind = option.type_descriptor.annotation
    is_enum = isinstance(kind, type) and issubclass(kind, StrEnum)
    choices = "|".join(one for one in (kind if is_enum else get_args(kind)) if isinstance(one, str))
    return f"{names} {option.metavar or choices or KINDS[kind]}"


def settings_part() -> str:
    rows = ["| key | default | what it sets |", "|---|---|---|"]
    for key, (default, doc) in config.documented_keys().items():
        text = str(default).lower() if isinstance(default, bool) else str(default)
        text = ", ".join(default) if isinstance(default, tuple) else text
        shown = {None: "", (): "none", "": ""}.get(default, text)
        rows.append(f"| `{key}` | {f'`{shown}`' if shown not in ('', 'none') else shown} | {_cell(doc)} |")
    return "\n".join(rows) + "\n"


def errors_part() -> str:
    rows = ["| error | exit code | when |", "|---|---|---|"]
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.NuggetError):
            rows.append(f"| `{kind.__name__}` | {kind.exit_code} | {_cell((kind.__doc__ or '').split(chr(10))[0])} |")
    return "\n".join(rows) + "\n"


def profiles_part() -> str:
    rows = ["| profile | candidates of each list | relations followed |", "|---|---|---|"]
    rows += [f"| `{profile.name}` | {profile.candidates} | {profile.hops} |" for profile in PROFILES.values()]
    return "\n".join(rows) + "\n"


def redaction_part() -> str:
    rules = "".join(file.read_text("utf-8") for file in RULES.glob("*.yaml") if file.stem not in ("marks", "unused"))
    named = sorted({*re.findall(r"(?m)^  - name: (.+)$", rules), *FOUND})
    return ", ".join(f"`{kind}`" for kind in named) + "\n"


def layers_part() -> str:
    """Return the rows of .importlinter, top first."""
    contracts = ConfigParser()
    contracts.read(DOCS.parent / ".importlinter")
    rows = contracts["importlinter:contract:layers"]["layers"].replace("nugget.", "").strip().splitlines()
    return "\n".join(["```text", *(re.sub(r"\s*[:|]\s*", "  ", row).strip() for row in rows), "```"]) + "\n"


def constants_part() -> str:
    """Return the constants of docs/retrieval.md as a table."""
    shares = f"{scoring.CHUNK_SHARE} / {scoring.UNIT_SHARE} / {scoring.TITLE_SHARE}"
    rows = ["| constant | value | |", "|---|---|---|"]
    rows += [f"| {name} | {value} | {said} |" for name, value, said in (
        ("chunk", f"{MAX_TOKENS} tokens at most", "cut at headings, then at paragraphs"),
        ("small chunk", f"{MIN_TOKENS} tokens", "a smaller one joins its neighbour"),
        ("overlap", f"{OVERLAP_TOKENS / MAX_TOKENS:.0%}", "of chunks that one section was cut into"),
        ("BM25 columns", " / ".join(f"{weight:g}" for weight in COLUMN_WEIGHTS), "title with tags / text / word parts"),
        ("stop words", len(STOP_WORDS), "function words only"),
        ("candidates", PROFILES["task"].candidates, "taken from each list"),
        ("BM25 depth", BM25_DEPTH, "rows of which the scores are known"),
        ("share of the cosine", scoring.MATCH_COSINE_SHARE, "in the match; the rest is BM25's"),
        (
            "cosine / BM25 / near the best match / dated",
            " / ".join(map(str, (scoring.COSINE_SHARE, scoring.BM25_SHARE, scoring.NEAR_SHARE, scoring.DATE_SHARE))),
            "of the score",
        ),
        ("half point of BM25", scoring.BM25_HALF, "counts half"),
        ("chunk / unit / title", shares, "of the cosine"),
        ("weak below", scoring.WEAK_BELOW, f"relevance of the best hit; {scoring.WEAK_BELOW_BY_TEXT} without vectors"),
        ("helpful", scoring.HELPFUL_ABOVE, f"and {scoring.HELPFUL_SHARE} of the best hit's relevance, at least"),
        ("stands out", scoring.STANDS_OUT, "relevance of what recall tells without being asked"),
        ("expanded hits", scoring.SEEDS, "1 related unit each"),
        ("placed behind", scoring.PLACED_BEHIND, "hits"),
    )]  # fmt: skip
    return "\n".join(rows) + "\n"


def mcp_part() -> str:
    environment = config.read_environment({"HOME": "/"})
    server = make_server(AgentSession(flag=None, environment=environment, cwd=Path("/")))
    (tool,) = asyncio.run(server.list_tools())
    properties = tool.input_schema["properties"]
    rows = ["| argument | type | default | |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {_json_type(schema)} | {_json_default(schema)} | {_cell(schema['description'])} |"
        for name, schema in properties.items()
    ]
    table = "\n".join(rows)
    return f"### `{tool.name}`\n\n{DESCRIPTION}\n\n{table}\n\n### Instructions\n\n```text\n{INSTRUCTIONS}```\n"


def _json_type(schema: dict[str, Any]) -> str:
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind["type"] != "null"]
    return " or ".join("list of strings" if kind["type"] == "array" else kind["type"] for kind in kinds)


def _json_default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    return "required" if "default" not in schema else "" if default is None else f"`{default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands_part,
    "settings": settings_part,
    "errors": errors_part,
    "profiles": profiles_part,
    "constants": constants_part,
    "mcp": mcp_part,
    "redaction": redaction_part,
    "layers": layers_part,
}


def rendered(page: str) -> str:
    """Return a page with its generated parts up to date."""
    return PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}{found[3]}", page)


def main(*, check: bool) -> int:
    """Write the pages, or only say which are out of date."""
    stale = 0
    for file in sorted(DOCS.glob("*.md")):
        page = file.read_text("utf-8")
        if rendered(page) != page:
            stale += 1
            typer.echo(f"{file.name}: {'out of date; run `make docs`' if check else 'written'}")
            if not check:
                file.write_text(rendered(page), "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
