"""The installed distribution: what pip has to install to get it again, or one of its extras."""

from __future__ import annotations

import json
import re
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from nugget.config import read_environment
from nugget.errors import NuggetError


def requirement(extra: str = "") -> str:
    """Return what `pip install` takes for this Nugget: NUGGET_PACKAGE, or where it was installed from.

    A bare name is never returned: whoever publishes something under it would be installed.
    """
    (command,) = entry_points(group="console_scripts", name="nugget")
    installed = command.dist
    assert installed is not None  # entry points that metadata lists have one
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    address, version_control = origin.get("url", ""), origin.get("vcs_info")
    if version_control:
        address = f"{version_control['vcs']}+{address}@{version_control['commit_id']}"
    found = f"{installed.name} @ {address}" if address else f"{installed.name}=={installed.version}"
    pinned = read_environment().variables.get("NUGGET_PACKAGE") or found
    return re.sub(r"^[\w.-]+", rf"\g<0>[{extra}]", pinned) if extra else pinned


def import_extra(module: str, extra: str, purpose: str, failure: type[NuggetError]) -> ModuleType:
    """Import a module of an extra; raise `failure` with the command that installs the extra if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise
        message = f"{purpose} needs the extra `{extra}`."
        raise failure(message, hint=f"Install it: pip install '{requirement(extra)}'") from None
