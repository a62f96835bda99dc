"""Commands that are imported when they are run: `nugget --help` and every single command start without the others."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from nugget.cli.values import convert_only_what_needs_it


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
            convert_only_what_needs_it(one)
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
        convert_only_what_needs_it(self)
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
