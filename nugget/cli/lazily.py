"""Commands that are imported when they are run: `nugget --help` and every single command start without the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_WORDS = {"str": "TEXT", "int": "N", "float": "NUMBER", "path": "PATH", "file": "FILE", "directory": "FOLDER"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A command as `nugget --help` lists it, and where it is defined.

    `place` is `module:name` below nugget.cli, of a function or, for a group of commands, of a typer app. `help` is the
    first paragraph of what the command itself says.
    """

    name: str
    place: str
    panel: str
    help: str

    def load(self) -> Any:
        """The command itself."""
        module, _, name = self.place.partition(":")
        defined = getattr(import_module(f"nugget.cli.{module}"), name)
        parent = typer.Typer(add_completion=False)
        if isinstance(defined, typer.Typer):
            parent.add_typer(defined, name=self.name, rich_help_panel=self.panel)
        else:
            parent.command(self.name, rich_help_panel=self.panel)(defined)
        parent.callback()(_nothing)
        command = typer.main.get_group(parent).commands[self.name]
        for one in (command, *getattr(command, "commands", {}).values()):
            _name_types_plainly(one)
        return command

    def outline(self) -> Any:
        """As much of the command as a list of commands shows."""
        return TyperCommand(name=self.name, help=self.help, rich_help_panel=self.panel)


class Commands(MutableMapping[str, Any]):
    """Commands by name, each loaded when it is first looked up."""

    def __init__(self, listed: tuple[Listed, ...]) -> None:
        self.listed = {entry.name: entry for entry in listed}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self.listed[name].load()
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.listed, **self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in self.listed or name in self._loaded

    def __len__(self) -> int:
        return len({**self.listed, **self._loaded})


class LazyGroup(TyperGroup):
    """A group whose commands are those of `listed`, which a subclass gives."""

    listed: tuple[Listed, ...] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _name_types_plainly(self)
        self.commands = Commands(self.listed)
        self._is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of the list."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; while commands are only listed, its outline."""
        if self._is_listing and cmd_name in self.commands:
            return self.commands.listed[cmd_name].outline()  # type: ignore[attr-defined]
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group."""
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The names that complete a word."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


def _nothing() -> None:
    """A callback makes typer keep the parent a group, also around a single command."""


def _name_types_plainly(command: Any) -> None:
    """Let the help of a command name the types of its options in words for people: `TEXT`, not `<str>`."""
    listing = command.get_params

    def get_params(ctx: Any) -> Any:
        parameters = listing(ctx)
        for parameter in parameters:
            shown = getattr(parameter, "display_type_rich", None)
            if shown is not None and "display_type_rich" not in vars(parameter):
                is_argument = parameter.param_type_name == "argument"
                parameter.display_type_rich = partial(_plain, shown, is_argument)
        return parameters

    command.get_params = get_params


def _plain(shown: Callable[..., str | None], is_argument: bool, ctx: Any) -> str | None:
    """Return typer's word for a type as ours. Choices get room around the bar, so that a line can end there."""
    name = None if is_argument else shown(ctx=ctx)
    if not (name and name.startswith("<") and name.endswith(">")):
        return name
    kind = name[1:-1].removeprefix("list[").removesuffix("]").removesuffix(" range")
    return None if kind == "bool" else _WORDS.get(kind, kind.replace("|", " | "))
