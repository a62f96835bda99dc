"""The graph of a vault: links between notes, by file name, title or alias, become relations between their units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import unquote

from nugget.capture.compare import unit_id_of
from nugget.extraction.proposals import Proposal
from nugget.models import Relation, RelationType
from nugget.text import slugify

_LINK = re.compile(
    r"(?P<embed>!?)\[\[(?P<wiki>[^\[\]|\n]{1,200})(?:\|(?P<label>[^\[\]\n]{1,200}))?\]\]"
    r"|\]\(<?(?P<file>(?![a-z]+:)[^()<>\n#]{1,200}\.md)(?:#[^()\n]{0,100})?>?\)"
)


def readable(text: str) -> str:
    """Return the text with Obsidian's links as plain words, and attachments by name."""

    def plain(found: re.Match[str]) -> str:
        if found["file"]:
            return found[0]
        return f"({found['wiki']})" if found["embed"] else found["label"] or found["wiki"]

    return _LINK.sub(plain, text).strip()


def with_links(note: Proposal, names: Sequence[str]) -> Proposal:
    """Return a note in plain words, with the names that lead to it and those that it links to."""
    links = dict.fromkeys(_key(found["wiki"] or found["file"]) for found in _LINK.finditer(note.unit.body))
    known = dict.fromkeys(filter(None, map(_key, names)))
    return replace(note, unit=replace(note.unit, body=readable(note.unit.body)), names=tuple(known), links=tuple(links))


def with_relations(notes: Sequence[Proposal], known: Iterable[str]) -> list[Proposal]:
    """Return notes with relations to the notes that they link to, and to the units of the brain's files."""
    ids = {unit_id_of(path).rpartition("/")[2]: unit_id_of(path) for path in known}
    for note in reversed(notes):
        ids |= dict.fromkeys(note.names, note.unit.id)
    linked = []
    for note in notes:
        targets = dict.fromkeys(ids[link] for link in note.links if link in ids and ids[link] != note.unit.id)
        related = tuple(Relation(id=target, relation=RelationType.INFORMED_BY) for target in targets)
        linked.append(replace(note, unit=replace(note.unit, related=related)))
    return linked


def _key(target: str) -> str:
    """Return the form in which links and names are compared: of a path its last part, without a heading."""
    name = unquote(target).partition("#")[0].strip().removesuffix(".md").rpartition("/")[2]
    return slugify(name) if name else ""
