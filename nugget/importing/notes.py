"""Notes of markdown files: ADRs, rules for agents, Obsidian and plain notes, notes of basic-memory.

A note is one idea: an ADR is one decision, a file of rules is split at its sections, a page of prose is one note
unless it is long. Journals, task lists, lists of links and templates are left out with a reason.
Formats: adr.github.io/madr, github.com/npryce/adr-tools (Nygard), docs.cursor.com (rules),
docs.basicmemory.com/concepts/knowledge-format, help.obsidian.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any
from urllib.parse import unquote

from nugget.brain.frontmatter import nodes, split
from nugget.extraction.proposals import Proposal
from nugget.markdown import body_below_title, headings_of, title_of
from nugget.models import Evidence, KnowledgeType, Problem, SourceName, Unit
from nugget.settings import Node, YAMLRefused
from nugget.text import content_hash, plain_line_ends, shorten, slugify

JOURNAL = "is a page of a journal, by its name"
TOO_LITTLE = "says too little to stand alone"

_RULE_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENT.md", "GEMINI.md", ".cursorrules")
_QUOTE_CHARS, _MIN_CHARS = 200, 60
"""A note with fewer characters says too little to stand alone."""
_MAX_PAGE_CHARS, _MAX_RULES_CHARS = 6_000, 2_500  # longer sections are split at their subsections
_STANDINGS = {"superseded": 0.3, "deprecated": 0.3, "rejected": 0.4, "proposed": 0.4, "draft": 0.4}
"""Statuses that weaken a decision, with the remaining confidence."""
_NO_DOMAINS = frozenset(
    "notes docs doc documentation adr adrs decisions rules cursor memories memory src vault inbox archive".split()
)
"""Names of folders that are not subjects."""
_NO_SUBJECTS = frozenset((*(file.lower() for file in _RULE_FILES), "claude", "agents", "cursor rules"))

_KINDS: Mapping[KnowledgeType, tuple[str, str]] = {
    KnowledgeType.DECISION: (
        "decision adr choice rfc",
        "decision|alternatives|considered options|trade-offs|tradeoffs",
    ),
    KnowledgeType.BUG: (
        "bug gotcha pitfall incident postmortem troubleshooting problem issue fix bugfix workaround debugging error "
        "root-cause",
        "symptom|symptoms|root cause|workaround",
    ),
    KnowledgeType.PATTERN: (
        "pattern howto how-to recipe snippet practice best-practice technique method tip rule guideline convention "
        "playbook runbook workflow procedure",
        "steps|usage|when to use|how to use|procedure",
    ),
    KnowledgeType.BELIEF: ("belief principle opinion value preference hypothesis assumption", ""),
    KnowledgeType.CONCEPT: ("concept definition glossary term idea fact insight", ""),
}
"""Words for a type as a folder, tag or category, in the singular; and headings that only such a note has."""
_WORDS = {word: kind for kind, (words, _) in _KINDS.items() for word in words.split()}
_HEADINGS = {heading: kind for kind, (_, headings) in _KINDS.items() for heading in headings.split("|")}
_TITLES = re.compile(
    r"(?P<decision>\b(?:we (?:chose|choose|decided|picked|use)|why we|decision|instead of|rather than|chosen)\b"
    r"|\bvs\.? |\w+ over \w+$)|(?P<bug>\b(?:fails?|failing|failed|error|crash(?:es)?|leaks?|deadlocks?|hangs?|broken"
    r"|does(?:n't| not) work|exception|race condition|bug|gotcha|pitfall|root cause)\b)|(?P<pattern>^(?:how to|use"
    r"|always|never|prefer|avoid|don't|do not|keep|write|run|set up|make)\b|\b(?:pattern|recipe|checklist"
    r"|best practices?|guidelines?|conventions?|steps)\b)|(?P<belief>\b(?:i (?:believe|think|prefer)|should|prefers?"
    r"|principle|matters?)\b)",
    re.IGNORECASE,
)
"""Wording of titles by type; the first type that matches counts."""

_LINK = re.compile(
    r"(?P<embed>!?)\[\[(?P<wiki>[^\[\]|\n]{1,200})(?:\|(?P<label>[^\[\]\n]{1,200}))?\]\]"
    r"|\]\(<?(?P<file>(?![a-z]+:)[^()<>\n#]{1,200}\.md)(?:#[^()\n]{0,100})?>?\)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """A markdown file: its frontmatter as texts, and its body with the line on which that starts."""

    path: str
    front: Mapping[str, tuple[str, ...]]
    body: str
    line: int

    def first(self, *keys: str) -> str:
        """Return the first text of the first key that has one, or an empty text."""
        return next((self.front[key][0] for key in keys if self.front.get(key)), "")

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags, given as a list or as one text with commas, without `#`."""
        given = (*self.front.get("tags", ()), *self.front.get("tag", ()))
        parts = given if len(given) != 1 else given[0].split(",")
        return tuple(dict.fromkeys(tag for part in parts if (tag := part.strip().lstrip("#"))))

    @property
    def stem(self) -> str:
        """The name of the file without its extension."""
        name = self.path.rpartition("/")[2]
        return name.rpartition(".")[0] or name


_Section = tuple[int, str, int, str]
"""The level, heading, line (from 0 in the body) and text of a section; level 0 for the text above the first."""


def notes_of_page(text: str, *, path: str) -> Iterator[Proposal | Problem]:
    """Yield the notes in a markdown file, with the names that lead to each and those that it links to."""
    page = _page(plain_line_ends(text.replace("\0", "")), path)
    given = (page.stem, title_of(page.body) or "", *page.front.get("aliases", ()), *page.front.get("alias", ()))
    names = tuple(dict.fromkeys(filter(None, map(_link_key, given))))
    for note in _notes(page, path):
        if isinstance(note, Proposal):
            body = note.unit.body
            links = dict.fromkeys(_link_key(found["wiki"] or found["file"]) for found in _LINK.finditer(body))
            note = replace(note, unit=replace(note.unit, body=_readable(body)), names=names, links=tuple(links))
        yield note


def _readable(text: str) -> str:
    """Return the text with Obsidian's links as plain words, and attachments by name."""

    def plain(found: re.Match[str]) -> str:
        if found["file"]:
            return found[0]
        return f"({found['wiki']})" if found["embed"] else found["label"] or found["wiki"]

    return _LINK.sub(plain, text).strip()


def _link_key(target: str) -> str:
    """Return the form in which links and names are compared: the last part of a path, without a heading."""
    name = unquote(target).partition("#")[0].strip().removesuffix(".md").rpartition("/")[2]
    return slugify(name) if name else ""


def _notes(page: _Page, path: str) -> Iterator[Proposal | Problem]:
    name, sections = path.rpartition("/")[2], _sections(page.body)
    texts = {_unnumbered(heading).lower().strip(" :*"): own for _, heading, _, own in sections}
    placeholder = r"[{\[](?:(?:short|brief) title\b|describe )|\{title\b|<%"
    if re.search(placeholder, page.body, re.IGNORECASE) or "template" in re.split(r"[-_ ]", page.stem.lower()):
        yield Problem(path=path, reason="is a template")
    elif name in _RULE_FILES or name.endswith(".mdc") or "/.cursor/rules/" in f"/{path}":
        yield from _rules(page, name)
    elif texts.keys() & {"decision outcome", "considered options"}:
        yield _adr(page, "MADR", texts)
    elif "decision" in texts and texts.keys() & {"context", "status", "consequences"}:
        yield _adr(page, "Nygard", texts)
    elif why := _no_knowledge(page):
        yield Problem(path=path, reason=why)
    else:
        yield from _prose(page, sections)


def _page(text: str, path: str) -> _Page:
    """Split a file. Frontmatter that is not YAML (Cursor's `globs: *.ts`) is read line by line."""
    front: dict[str, tuple[str, ...]] = {}
    body, line = text, 1
    if text.startswith("---\n"):
        try:
            parts = split(text)
            body, line = parts.body, parts.body_line
            pairs = [one.partition(":") for one in parts.frontmatter.split("\n") if re.match(r"[A-Za-z_][\w-]*:", one)]
            front = {key: (said,) for key, _, value in pairs if (said := value.strip("\"' \t"))}
            front = {key: _texts(node) for key, (_, node) in nodes(parts).items()}
        except YAMLRefused:
            pass
    kept = body.lstrip("\n")
    return _Page(path=path, front=front, body=kept, line=line + len(body) - len(kept))


def _texts(node: Node) -> tuple[str, ...]:
    """Return a scalar or a list of scalars as texts; empty for anything deeper."""
    entries = node.value if node.id == "sequence" else [node]
    scalars = [one for one in entries if one.id == "scalar" and one.tag != "tag:yaml.org,2002:null"]
    return tuple(str(one.value) for one in scalars if str(one.value).strip())


def _sections(body: str) -> list[_Section]:
    lines, found = body.split("\n"), headings_of(body)
    if not found or found[0][2]:
        found = [(0, "", -1), *found]
    ends = [*(line for _, _, line in found[1:]), len(lines)]
    sections = []
    for (level, heading, line), end in zip(found, ends, strict=True):
        is_underlined = level and not lines[line].lstrip().startswith("#")
        sections.append((level, heading, max(line, 0), "\n".join(lines[line + (2 if is_underlined else 1) : end])))
    return sections


def _by_section(
    page: _Page, sections: Sequence[_Section], shared: str, *, max_chars: int
) -> Iterator[tuple[int, str, str] | Problem]:
    """Yield the line, title and text of each section with those below it, unless that is too long."""
    position = 0
    while position < len(sections):
        level, heading, line, text = sections[position]
        position += 1
        end = next((n for n, one in enumerate(sections) if n >= position and one[0] <= level), len(sections))
        joined = "\n".join([text, *(f"{'#' * one[0]} {one[1]}\n{one[3]}" for one in sections[position:end])])
        if level >= 2 and len(joined) <= max_chars:
            position, text = end, joined
        if text.strip() and len(_words_only(text)) < _MIN_CHARS:
            yield Problem(path=page.path, line=page.line + line, reason=TOO_LITTLE)
        elif text.strip():
            is_named = heading and heading != shared and heading.lower() not in _NO_SUBJECTS
            yield page.line + line, f"{shared}: {_unnumbered(heading)}" if is_named else shared, text.strip()


def propose(
    path: str, line: int, *, title: str, body: str, reason: str, quote: str = "", warning: str | None = None,
    **values: Any,
) -> Proposal:  # fmt: skip
    """Return one idea from notes as a proposal; `line` counts from 1, `values` are fields of its unit.

    The evidence is the beginning of `quote`, or else of the body, without headings; its record is a digest of the
    body, which identifies the note even if its file is moved or renamed.
    """
    plain = _readable(body)
    lines = [one.strip() for one in (_readable(quote) or plain).split("\n")]
    said = " ".join(one for one in lines if one and not one.startswith(("#", "```"))) or title
    digest = content_hash(" ".join(plain.split()))[:16]
    evidence = Evidence(session=f"{path}:{line}", quote=shorten(said, _QUOTE_CHARS), records=(f"note:{digest}",))
    values = {"domain": _domain(path)} | values
    unit = Unit(
        id=f"{values['type']}/{slugify(title)}", source=SourceName.BRAIN, title=title, body=body, evidence=(evidence,),
        **values,
    )  # fmt: skip
    return Proposal(unit=unit, reason=reason, note=warning)


def _domain(path: str) -> str:
    """Return the domain from the folders of a note: at most two, without those that name a type."""
    folders = [slugify(name) for name in path.split("/")[1:-1] if not name.startswith(".")]
    named = [name for name in folders if name not in _NO_DOMAINS and named_kind(name) is None]
    return "/".join(named[:2]) or "general"


def _adr(page: _Page, form: str, texts: Mapping[str, str]) -> Proposal | Problem:
    if len(_words_only(" ".join(texts.values()))) < _MIN_CHARS:
        return Problem(path=page.path, reason="is a template: nothing is filled in")
    line = r"^[*\- \t]{0,8}(status|date)(?: of decision)?\*{0,2} {0,2}:\*{0,2}[ \t]{0,8}(.{1,200})"
    found = re.findall(line, page.body, re.IGNORECASE | re.MULTILINE)
    lines = {name.lower(): value for name, value in reversed(found)}
    status = page.first("status") or lines.get("status") or texts.get("status", "")
    standing = next((word for word in _STANDINGS if word in status.lower()), "")
    # The number belongs to the folder, and means nothing in the brain.
    title = _unnumbered(title_of(page.body) or page.first("title") or page.stem.replace("-", " "))
    considered = next((texts[name] for name in ("considered options", "alternatives", "options") if name in texts), "")
    option = r"chosen option:?\*{0,2}\s{0,4}[\"“”'`*]{0,4}(.{1,300}?)[\"“”'`*]{0,4}(?:,| because|$)"
    chosen = re.search(option, page.body, re.IGNORECASE | re.MULTILINE)
    taken = _plain(chosen[1]).lower() if chosen else ""
    listed = re.findall(r"^[ \t]{0,3}(?:[*+-]|\d{1,3}[.)])[ \t]{1,8}(\S.{0,300})", considered, re.MULTILINE)
    entries = [entry for entry in map(_plain, listed) if entry]
    others = [one[:200] for one in entries if not (taken and (one.lower() in taken or taken in one.lower()))]
    return propose(
        page.path, page.line, title=title, type=KnowledgeType.DECISION,
        body=f"# {title}\n\n{body_below_title(page.body).strip()}",
        reason=f"an architecture decision record ({form}){f', {standing}' if standing else ''}",
        confidence=_STANDINGS.get(standing, 0.8), quote=texts.get("decision outcome") or texts.get("decision", ""),
        tags=(*page.tags, standing) if standing else page.tags, alternatives=tuple(others[:8]),
        created=day_of(page.first("date", "created") or lines.get("date", "")),
        warning=f"its status is {standing!r}: is it still worth keeping?" if standing else None,
    )  # fmt: skip


def _rules(page: _Page, name: str) -> Iterator[Proposal | Problem]:
    """Yield the sections of a file of rules."""
    lines = page.body.split("\n")  # a line such as `@docs/style.md` imports another file
    body = "\n".join("" if line.strip().startswith("@") and " " not in line.strip() else line for line in lines)
    subject = title_of(body) or ""
    if not subject or subject.lower() in _NO_SUBJECTS:
        outside = [part for part in page.path.split("/")[:-1] if part not in (".cursor", "rules")]
        of_project = f"Rules of {outside[-1] if outside else 'the project'}"
        subject = page.stem.replace("-", " ") if name.endswith(".mdc") else of_project
    globs, about = page.first("globs"), page.first("description")
    applies = f"\n\nApplies to files that match `{globs}`." if globs else ""
    for found in _by_section(page, _sections(body), subject, max_chars=_MAX_RULES_CHARS):
        if isinstance(found, Problem):
            yield found
            continue
        line, title, text = found
        if text.startswith(("This file ", "This document ")) and len(text) < 4 * _MIN_CHARS:
            yield Problem(path=page.path, line=line, reason="only says what the file is for")
            continue
        yield propose(
            page.path, line, title=about if about and title == subject else title, body=text + applies, quote=text,
            reason=f"a section of the rules in {name}", type=KnowledgeType.PATTERN, confidence=0.7, tags=page.tags,
        )  # fmt: skip


def _prose(page: _Page, sections: Sequence[_Section]) -> Iterator[Proposal | Problem]:
    title = _unnumbered(page.first("title") or title_of(page.body) or page.stem.replace("_", " "))
    headings = [heading for _, heading, _, _ in sections if heading]
    status = page.first("status").lower()
    inline = re.findall(r"`[^`\n]{0,200}`|(?<![\w&/#])#([A-Za-z][\w/-]{1,40})\b", page.body)
    tags = tuple(dict.fromkeys(filter(None, (*page.tags, status, *inline))))[:8]
    is_whole = len(page.body) <= _MAX_PAGE_CHARS or not headings
    parts = [(page.line, title, page.body.strip())]
    for found in parts if is_whole else _by_section(page, sections, title, max_chars=_MAX_PAGE_CHARS):
        if isinstance(found, Problem):
            yield found
            continue
        line, named, text = found
        below = headings if is_whole else [heading for _, heading, _ in headings_of(text)]
        kind, reason = _kind_of(page, named if is_whole else named.removeprefix(f"{title}: "), below)
        yield propose(
            page.path, line, title=named, body=text, type=kind, confidence=0.6 if is_whole else 0.55, tags=tags,
            reason=f"{'a note' if is_whole else 'a section of a long note'}: {reason}",
            created=day_of(page.first("created", "date")),
        )  # fmt: skip


def _no_knowledge(page: _Page) -> str | None:
    """Return the reason why the form of a page keeps it from being proposed."""
    if len(_words_only(body_below_title(page.body))) < _MIN_CHARS:
        return TOO_LITTLE
    if re.fullmatch(r"\d{4}[-_.]?\d{2}[-_.]?\d{2}(?:\b.*)?|\d{4}-W\d{2}", page.stem):
        return JOURNAL
    lines = [line for line in page.body.split("\n") if line.strip() and not line.startswith("#")]
    if sum(line.lstrip()[:3] in ("- [", "* [") and line.lstrip()[4:6] == "] " for line in lines) > len(lines) / 2:
        return "is a list of tasks"
    link = r"\[\[[^\[\]]{1,200}\]\]|!?\[[^\[\]]{0,200}\]\([^()]{0,500}\)|<?https?://\S+>?"
    link_only = rf"[ \t]{{0,12}}(?:[-*+]|\d{{1,3}}\.)?[ \t]{{0,8}}(?:{link})[\s.,;|]*$"
    if sum(bool(re.match(link_only, line)) for line in lines) > len(lines) * 0.8:
        return "is a list of links"
    return None


def _unnumbered(title: str) -> str:
    """Return a title without the number before it: `2. `, `0002 `, `ADR-2: `."""
    number = r"^(?:ADR[-\s]?)?(?:\d+(?:\.\d+)*[.:)]|0\d{1,3})\s+(?:[-–—]\s+)?|^ADR[-\s]?\d+\s*[.:-]?\s+"
    return re.sub(number, "", title, flags=re.IGNORECASE).strip() or title


def _plain(text: str) -> str:
    return re.sub(r"\[([^\[\]]{0,200})\]\([^()]{0,300}\)", r"\1", text).strip(" *_`\"'“”.")


def _words_only(text: str) -> str:
    """Return a text without links, tags and markup."""
    markup = r"!?\[\[[^\[\]]{0,200}\]\]|<!--.{0,500}?-->|https?://\S+|[#*_>`|-]+"
    return " ".join(re.sub(markup, " ", text, flags=re.DOTALL).split())


def day_of(text: str) -> date | None:
    """Return the date that a text begins with: `2026-03-01`, or `01/03/2026` with the day first."""
    for form in ("%Y-%m-%d", "%d/%m/%Y"):
        with suppress(ValueError):
            return datetime.strptime(text.strip()[:10], form).date()
    return None


def _kind_of(page: _Page, title: str, headings: Sequence[str]) -> tuple[KnowledgeType, str]:
    """Return the type of a note and the reason for it; defaults to `concept`."""
    said = ((page.first(key), f"its `{key}` says {page.first(key)}") for key in ("type", "category", "kind"))
    tagged = ((tag.rpartition("/")[2], f"tagged #{tag}") for tag in page.tags)
    categories = re.findall(r"^[ \t]{0,12}- \[([A-Za-z][\w -]{1,30})\] \S", page.body.lower(), re.MULTILINE)
    about = ((category, f"its observations are of [{category}]") for category, _ in Counter(categories).most_common())
    filed = ((folder, f"filed under {folder}/") for folder in reversed(page.path.split("/")[:-1]))
    for word, reason in (*said, *about, *tagged, *filed):
        if named := named_kind(word):
            return named, reason
    for heading in (heading.lower().strip(" :") for heading in headings):
        if kind := _HEADINGS.get(heading):
            return kind, f"it has a section {heading!r}"
    return kind_of_sentence(title)


def kind_of_sentence(sentence: str) -> tuple[KnowledgeType, str]:
    """Return the type that the wording of a title or sentence suggests, and the reason."""
    found = {one.lastgroup: one[0] for one in _TITLES.finditer(sentence[:300])}
    kind = next((kind for kind in _TITLES.groupindex if kind in found), None)
    if kind is None:
        return KnowledgeType.CONCEPT, "no other type fits"
    return KnowledgeType(kind), f"it reads like a {kind} ({found[kind].strip()!r})"


def named_kind(word: str) -> KnowledgeType | None:
    """Return the type that a folder, tag or category names; None for any other word."""
    plain = re.sub(r"[\s_]+", "-", word.strip().lower().lstrip("0123456789.-_ "))
    return _WORDS.get(plain) or _WORDS.get(plain.removesuffix("s")) or _WORDS.get(plain.removesuffix("es"))
