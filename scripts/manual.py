"""Write the man page and the completions of bash, zsh and fish from the code, into share/, which the wheel installs.

`python scripts/manual.py` writes them; with `--check` it only says which are out of date, and exits 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from reference import commands, option_names, placeholder
from typer.completion import get_completion_script

import nugget

SHARE = Path(__file__).parent.parent / "share"
COMPLETIONS = {
    "bash": "bash-completion/completions/nugget", "zsh": "zsh/site-functions/_nugget",
    "fish": "fish/vendor_completions.d/nugget.fish",
}  # fmt: skip
SECTIONS = """.SH EXIT STATUS
0 done; 1 an expected failure, in one sentence with what to do; 2 wrong usage; 3 unexpected; 130 interrupted.
.SH FILES
.TP
.I ~/.nugget
your settings, queue, archive and ledgers; NUGGET_HOME names another folder
.TP
.I BRAIN/brain.yaml
the settings of a brain
.TP
.I BRAIN/domains
its knowledge, as markdown
.SH ENVIRONMENT
NUGGET_BRAIN names the brain to use; each setting is read from NUGGET_<KEY> as well.
.SH SEE ALSO
.BR git (1)
"""


def manual() -> str:
    """Return the man page of all commands, in man(7)."""
    (_, root), *every = commands()
    parts = [
        f'.TH NUGGET 1 "" "nugget {nugget.__version__}" "User Commands"', ".SH NAME",
        "nugget \\- the memory layer for coding agents", ".SH SYNOPSIS", ".B nugget", ".I COMMAND", "[OPTIONS]",
        ".SH DESCRIPTION", escaped(root.help), ".SH COMMANDS",
    ]  # fmt: skip
    for path, command in every:
        if not command.hidden:
            arguments = [entry for entry in command.params if entry.param_type_name == "argument"]
            parts += [f".SS {escaped(' '.join([path, *map(placeholder, arguments)]))}", escaped(command.help)]
            parts += [part for entry in command.params if (part := described(entry))]
    return "\n".join(parts) + "\n" + SECTIONS


def described(entry: Any) -> str:
    """Return an argument or option with its help, nothing for a hidden one."""
    if entry.param_type_name == "argument":
        return f".TP\n.I {escaped(placeholder(entry))}\n{escaped(entry.help)}"
    return "" if entry.hidden else f".TP\n.B {escaped(option_names(entry))}\n{escaped(entry.help)}"


def escaped(text: str | None) -> str:
    """Return a line of text in which roff finds no instruction."""
    line = " ".join((text or "").split("\f")[0].split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


def pages() -> dict[str, str]:
    """Return each file below share/ with the text that it should have."""
    scripts = {
        place: get_completion_script(prog_name="nugget", complete_var="_NUGGET_COMPLETE", shell=shell).strip() + "\n"
        for shell, place in COMPLETIONS.items()
    }
    return {"man/man1/nugget.1": manual(), **scripts}


def main(*, check: bool) -> int:
    """Write the files, or only say which are out of date."""
    stale = 0
    for place, text in pages().items():
        file = SHARE / place
        if not file.is_file() or file.read_text("utf-8") != text:
            stale += 1
            typer.echo(f"share/{place}: {'out of date; run `make docs`' if check else 'written'}")
            if not check:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv))
