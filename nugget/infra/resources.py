"""Files that travel with Nugget: found in an installed wheel and in a checkout alike."""

from __future__ import annotations

from pathlib import Path

from nugget.errors import NuggetError

_PACKAGE = Path(__file__).parent.parent


def resource(name: str) -> Path:
    """The folder or file `brain-template`, `hooks` or `demo/session.jsonl`, wherever Nugget is installed."""
    for candidate in (_PACKAGE / "_bundled" / name, _PACKAGE / name, _PACKAGE.parent / name):
        if candidate.exists():
            return candidate
    raise NuggetError(f"Nugget's own file {name} is missing.", hint="Install Nugget again.")
