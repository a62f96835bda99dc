"""Record real runs of `nugget` in a terminal as docs/pictures/terminal-{light,dark}.svg, which README shows.

`python scripts/recording.py` (or `make recording`) plays the demo's session in a temporary HOME, offline. Lines appear
as they were typed and printed; where movement is not wanted (`prefers-reduced-motion`) the last picture stands.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "examples/demo"))

from code_acts import make_repository  # noqa: E402
from flywheel import place_transcript, set_up  # noqa: E402
from stage import Stage  # noqa: E402

COLUMNS = 96
TYPED_S, READ_S = 0.9, 1.6
LIGHT = TerminalTheme(
    (255, 255, 255), (36, 41, 47),
    [(36, 41, 47), (207, 34, 46), (17, 99, 41), (77, 45, 0), (9, 105, 218), (130, 80, 223), (27, 124, 131),
     (110, 119, 129)],
)  # fmt: skip
DARK = TerminalTheme(
    (13, 17, 23), (230, 237, 243),
    [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207),
     (177, 186, 196)],
)  # fmt: skip
FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
@keyframes appear {{ from {{ visibility: hidden }} to {{ visibility: visible }} }}
@media (prefers-reduced-motion: reduce) {{ * {{ animation: none !important }} }}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's form without the fonts that it loads from elsewhere."""


def main() -> None:
    """Play the commands, record them, and write both pictures."""
    home = Path(mkdtemp(prefix="nugget-recording-")).resolve()
    screen = Console(file=io.StringIO())
    try:
        stage = set_up(home, screen)
        shown = list(play(stage, place_transcript(stage)))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        file = REPOSITORY / f"docs/pictures/terminal-{name}.svg"
        file.write_text(picture(shown, theme), "utf-8")
        print(f"{file.relative_to(REPOSITORY)}: {file.stat().st_size:,} bytes")


def play(stage: Stage, transcript: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command with the lines that it printed."""
    repository = make_repository(stage, transcript)
    in_terminal(stage, stage.home, "init", "brain", "--no-install")
    for folder, most, arguments in (
        (transcript.parent, 9, ("capture-session", "--transcript", transcript.name)),
        (stage.home, 3, ("review", "accept")),
        (stage.home, 9, ("ask", "Some webhooks fail the signature check although the secret is right", "--limit", "1")),
        (repository, 10, ("why", "payments/capture.py")),
    ):
        if arguments[0] == "why":
            in_terminal(stage, repository, "extract")
        lines = in_terminal(stage, folder, *arguments)
        more = ["\x1b[2m…\x1b[0m"] if len(lines) > most else []
        typed = " ".join(f'"{argument}"' if " " in argument else argument for argument in arguments)
        yield f"nugget {typed}", lines[:most] + more


def in_terminal(stage: Stage, folder: Path, *arguments: str) -> list[str]:
    """Run a command in a terminal and return the lines that it printed, with their colours."""
    ours, theirs = pty.openpty()
    variables = stage.variables | {"COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color"}
    command = [stage.command, *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b""
    while part := _read(ours):
        printed += part
    if process.wait() != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{printed.decode()}")
    lines = printed.decode().replace("\r\n", "\n").split("\n")
    kept = [re.sub(r".*\r|\x1b\[\??[0-9;]*[A-LN-Za-ln-z]", "", line) for line in lines]
    return [line.replace(str(stage.home), "~") for line in kept if line.strip()]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux ends so when the other side is closed
        return b""


def picture(shown: list[tuple[str, list[str]]], theme: TerminalTheme) -> str:
    """Return the picture of a terminal in which each line appears at its time."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    times: list[float] = []
    now = 0.0
    for command, lines in shown:
        typed = Text.assemble(("$ ", "bold green"), (command, "bold"))
        printed = ((Text.from_ansi(line), 0.02) for line in lines)
        for text, wait in ((typed, TYPED_S), *printed, (Text(), READ_S)):
            for line in text.wrap(console, COLUMNS) or [Text()]:
                console.print(line, highlight=False)
                times.append(now)
            now += wait
    drawn = console.export_svg(title="nugget", theme=theme, code_format=FORM, unique_id="nugget")
    delayed = lambda found: f'{found[0]} style="animation: appear .01s {times[int(found[1])]:.2f}s both"'  # noqa: E731
    return re.sub(r'clip-path="url\(#nugget-line-(\d+)\)"', delayed, drawn)


if __name__ == "__main__":
    main()
