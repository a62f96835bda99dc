"""Write the user's own configuration, with every other line and comment of it kept."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nugget.config import Environment, is_known, read_user_file, taken
from nugget.errors import UsageError
from nugget.infra import files

_NO_FOLD = 100_000


def set_default_brain(environment: Environment, brain: Path) -> None:
    """Make `brain` the default one. Raises OSError if the configuration cannot be written."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    _write(environment, {"brain": DoubleQuotedScalarString(str(brain))})


def set_values(environment: Environment, values: Mapping[str, Any]) -> None:
    """Set keys such as `embedding.model`; None removes one. Raises UsageError for an unknown key or a bad value."""
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if not is_known(key):
            raise UsageError(f"There is no setting {key!r}.", hint="`nugget config` lists them all.")
        try:
            result = None if value is None else taken(key, value)
        except ValueError as error:
            raise UsageError(f"`{key}` must be {error}.") from None
        checked[key] = list(result) if isinstance(result, tuple) else result
    _write(environment, checked)


def _write(environment: Environment, values: Mapping[str, Any]) -> None:
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap

    read_user_file(environment)  # raises the sentence for a file that cannot be read
    file = environment.home / "config.yaml"
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, _NO_FOLD
    document = (yaml.load(file.read_text("utf-8-sig")) if file.is_file() else None) or CommentedMap()
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        if section and not isinstance(document.get(section), dict):
            document[section] = CommentedMap()
        place = document[section] if section else document
        if value is None:
            place.pop(name, None)
            if section and not place:
                del document[section]
        else:
            place[name] = value
    text = io.StringIO()
    yaml.dump(document, text)
    files.replace(file, text.getvalue().encode())
