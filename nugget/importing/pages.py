"""Notes of markdown files: ADRs, rules for agents, Obsidian and plain notes, notes of basic-memory.

One note for one idea: an ADR is one decision, rules are cut at their sections, a page of prose is one note until it
is long. What is no knowledge by its form (journals, task lists, lists of links, templates) is left out with a reason.
Formats: adr.github.io/madr, github.com/npryce/adr-tools (Nygard), docs.cursor.com (rules),
docs.basicmemory.com/concepts/knowledge-format, help.obsidian.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nugget.importing.notes import LeftOut, Note, Page, day_of, kind_of, listed, named_kind
from nugget.markdown import body_below_title, headings_of, title_of
from nugget.models import KnowledgeType

MAX_WHOLE_CHARS = 6_000
"""A longer page is cut at its sections."""
MIN_CHARS = 60
"""Less than this says too little to stand alone."""

RULE_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENT.md", "GEMINI.md", ".cursorrules")

MAX_RULES_CHARS = 2_500
"""A longer section of rules is cut at those below it."""
_STANDINGS = {"superseded": 0.3, "deprecated": 0.3, "rejected": 0.4, "proposed": 0.4, "draft": 0.4}
"""What may stand against a decision, with the confidence that is left."""
_NO_SUBJECTS = frozenset((*(file.lower() for file in RULE_FILES), "claude", "agents", "cursor rules"))
_ABOUT_THE_FILE = re.compile(r"This (?:file|document) (?:provides|contains|gives) (?:guidance|instructions|rules)")

_LEADING_NUMBER = re.compile(
    r"^(?:ADR[-\s]?)?(?:\d+(?:\.\d+)*[.:)]|0\d{1,3})\s+(?:[-–—]\s+)?|^ADR[-\s]?\d+\s*[.:-]?\s+", re.IGNORECASE
)
"""`2. `, `0002 `, `ADR-2: ` before a title."""
_STATUS_LINE = re.compile(
    r"^[*\- \t]{0,8}status\*{0,2} {0,2}:\*{0,2}[ \t]{0,8}(.{1,200})", re.IGNORECASE | re.MULTILINE
)
_DATE_LINE = re.compile(
    r"^[*\- \t]{0,8}date(?: of decision)?\*{0,2} {0,2}:\*{0,2}[ \t]{0,8}(.{1,60})", re.IGNORECASE | re.MULTILINE
)
_PLACEHOLDER = re.compile(
    r"\{(?:short |brief )?title\b|\[(?:short|brief) title|\{describe |\[describe |<%|\{\{title\}\}", re.IGNORECASE
)
_TEMPLATE = re.compile(r"(?:^|[-_ ])template(?:[-_]|$)", re.IGNORECASE)
_CHOSEN = re.compile(
    r"chosen option:?\*{0,2}\s{0,4}[\"“”'`*]{0,4}(.{1,300}?)[\"“”'`*]{0,4}(?:,| because|$)",
    re.IGNORECASE | re.MULTILINE,
)
_ENTRY = re.compile(r"^[ \t]{0,3}(?:[*+-]|\d{1,3}[.)])[ \t]{1,8}(\S.{0,300})", re.MULTILINE)
_OBSERVATION = re.compile(r"^[ \t]{0,12}- \[([A-Za-z][\w -]{1,30})\] \S", re.MULTILINE)
_TASK = re.compile(r"^\s*[-*] \[[ xX/-]\] ")
_LINK_ONLY = re.compile(
    r"^[ \t]{0,12}(?:[-*+]|\d{1,3}\.)?[ \t]{0,8}(?:\[\[[^\[\]]{1,200}\]\]|!?\[[^\[\]]{0,200}\]\([^()]{0,500}\)|<?https?://\S+>?)[\s.,;|]*$"
)
_WIKI_LINK = re.compile(r"(!?)\[\[([^\[\]|\n]{1,200})(?:\|([^\[\]\n]{1,200}))?\]\]")
_INLINE_TAG = re.compile(r"(?<![\w&/#])#([A-Za-z][\w/-]{1,40})\b")
_JOURNAL = re.compile(r"\d{4}[-_.]?\d{2}[-_.]?\d{2}(?:\b.*)?|\d{4}-W\d{2}")
_IMPORT_LINE = re.compile(r"^[ \t]{0,8}@[\w./~-]{1,200}[ \t]{0,8}$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """A run of lines under one heading (none for what stands before the first), `line` from 0 in the body."""

    level: int
    heading: str
    line: int
    text: str


def notes_of(page: Page) -> Iterator[Note | LeftOut]:
    """Return the notes in a markdown file."""
    page = replace(page, body=page.body.replace("\x00", ""))
    name = page.path.rpartition("/")[2]
    is_rules = name in RULE_FILES or name.endswith(".mdc") or "/.cursor/rules/" in f"/{page.path}"
    headings = [text for _, text, _ in headings_of(page.body)]
    if _PLACEHOLDER.search(page.body) or _TEMPLATE.search(page.stem):
        yield LeftOut(path=page.path, reason="is a template")
    elif is_rules:
        yield from _rules(page, name)
    elif form := _adr_form(headings):
        yield from _adr(page, form)
    elif len(_OBSERVATION.findall(page.body)) >= 2 or (page.first("permalink") and _OBSERVATION.search(page.body)):
        yield from _observations(page)
    elif why := _no_knowledge(page):
        yield LeftOut(path=page.path, reason=why)
    else:
        yield from _prose(page, headings)


def _adr_form(headings: list[str]) -> str | None:
    names = set(map(_name_of, headings))
    if "decision outcome" in names or "considered options" in names:
        return "MADR"
    return "Nygard" if "decision" in names and names & {"context", "status", "consequences"} else None


def _name_of(heading: str) -> str:
    """Return the name of a section without the number before it."""
    return _LEADING_NUMBER.sub("", heading).lower().strip(" :*")


def _adr(page: Page, form: str) -> Iterator[Note | LeftOut]:
    sections = {_name_of(section.heading): section for section in _sections(page.body)}
    standing = _standing(page, sections.get("status"))
    date_line = _DATE_LINE.search(page.body)
    # The number is the folder's, and says nothing in the brain.
    title = _LEADING_NUMBER.sub("", title_of(page.body) or page.first("title") or page.stem.replace("-", " ")).strip()
    decided = sections.get("decision outcome") or sections.get("decision")
    if len(_words_only(" ".join(section.text for section in sections.values()))) < MIN_CHARS:
        yield LeftOut(path=page.path, reason="is a template: nothing is filled in")
        return
    yield Note(
        path=page.path, line=_first_line(page), title=title, kind=KnowledgeType.DECISION,
        body=f"# {title}\n\n{_readable(body_below_title(page.body))}",
        reason=f"an architecture decision record ({form}){f', {standing}' if standing else ''}",
        confidence=_STANDINGS.get(standing, 0.8), quote=decided.text if decided else "",
        tags=(*listed(page.front.get("tags", ())), *([standing] if standing else [])),
        alternatives=_alternatives(sections, page.body),
        created=day_of(page.first("date", "created") or (date_line[1] if date_line else "")),
        warning=f"its status is {standing!r}: is it still worth keeping?" if standing else None,
    )  # fmt: skip


def _standing(page: Page, section: _Section | None) -> str:
    """Return what an ADR's status says against it; empty for one that holds."""
    line = _STATUS_LINE.search(page.body)
    status = page.first("status") or (line[1] if line else section.text if section else "")
    return next((word for word in _STANDINGS if word in status.lower()), "")


def _alternatives(sections: dict[str, _Section], body: str) -> tuple[str, ...]:
    """Return what was considered and not chosen."""
    considered = sections.get("considered options") or sections.get("alternatives") or sections.get("options")
    chosen = _CHOSEN.search(body)
    taken = _plain(chosen[1]).lower() if chosen else ""
    entries = [_plain(entry) for entry in _ENTRY.findall(considered.text)] if considered else []

    def is_chosen(entry: str) -> bool:
        return bool(taken) and (entry.lower() in taken or taken in entry.lower())

    return tuple(entry[:200] for entry in entries if entry and not is_chosen(entry))[:8]


def _plain(text: str) -> str:
    return re.sub(r"\[([^\[\]]{0,200})\]\([^()]{0,300}\)", r"\1", text).strip(" *_`\"'“”.")


def _rules(page: Page, name: str) -> Iterator[Note | LeftOut]:
    """Rules by their sections: each is what somebody laid down about one matter."""
    body = _IMPORT_LINE.sub("", page.body)
    subject = title_of(body) or ""
    if not subject or subject.lower() in _NO_SUBJECTS:
        outside = [part for part in page.path.split("/")[:-1] if part not in (".cursor", "rules")]
        of_project = f"Rules of {outside[-1] if outside else 'the project'}"
        subject = page.stem.replace("-", " ") if name.endswith(".mdc") else of_project
    globs = page.first("globs")
    applies = f"\n\nApplies to files that match `{globs}`." if globs else ""
    for section in _ideas(body, max_chars=MAX_RULES_CHARS):
        text, line = section.text.strip(), page.body_line + section.line
        if len(_words_only(text)) < MIN_CHARS:
            yield LeftOut(path=page.path, line=line, reason="says too little to stand alone")
            continue
        if _ABOUT_THE_FILE.match(text) and len(text) < 4 * MIN_CHARS:
            yield LeftOut(path=page.path, line=line, reason="only says what the file is for")
            continue
        heading = "" if section.heading == subject or section.heading.lower() in _NO_SUBJECTS else section.heading
        yield Note(
            path=page.path, line=line, body=_readable(text) + applies, quote=text, kind=KnowledgeType.PATTERN,
            title=f"{subject}: {heading}" if heading else page.first("description") or subject,
            reason=f"a section of the rules in {name}", confidence=0.7, tags=listed(page.front.get("tags", ())),
        )  # fmt: skip


def _observations(page: Page) -> Iterator[Note | LeftOut]:
    """Yield a note of basic-memory; its most frequent category that is a type says what it is."""
    categories = [category.lower() for category in _OBSERVATION.findall(page.body)]
    kinds = [(kind, category) for category in categories if (kind := named_kind(category)) is not None]
    named = named_kind(page.first("type"))
    if named:
        kind, reason = named, f"its `type` says {page.first('type')}"
    elif kinds:
        kind, category = max(kinds, key=lambda pair: sum(one[0] is pair[0] for one in kinds))
        reason = f"its observations are of [{category}]"
    else:
        kind, reason = KnowledgeType.CONCEPT, "its observations say nothing else"
    yield _whole(page, kind=kind, reason=f"a note with observations: {reason}", confidence=0.6)


def _prose(page: Page, headings: list[str]) -> Iterator[Note | LeftOut]:
    title = _title(page)
    kind, reason = kind_of(page, title=title, headings=headings)
    if len(page.body) <= MAX_WHOLE_CHARS or not headings:
        yield _whole(page, kind=kind, reason=f"a note: {reason}", confidence=0.6)
        return
    for section in _ideas(page.body, max_chars=MAX_WHOLE_CHARS):
        text = section.text.strip()
        line = page.body_line + section.line
        if len(_words_only(text)) < MIN_CHARS:
            yield LeftOut(path=page.path, line=line, reason="says too little to stand alone")
            continue
        heading = _LEADING_NUMBER.sub("", section.heading) if section.heading != title else ""
        named = f"{title}: {heading}" if heading else title
        of_section = kind_of(page, title=heading or title, headings=[text for _, text, _ in headings_of(text)])
        yield Note(
            path=page.path, line=line, title=named, body=_readable(text), kind=of_section[0],
            reason=f"a section of a long note: {of_section[1]}", confidence=0.55, tags=_tags(page),
            created=day_of(page.first("created", "date")),
        )  # fmt: skip


def _whole(page: Page, *, kind: KnowledgeType, reason: str, confidence: float) -> Note:
    return Note(
        path=page.path, line=_first_line(page), title=_title(page), body=_readable(page.body), kind=kind,
        reason=reason, confidence=confidence, tags=_tags(page), created=day_of(page.first("created", "date")),
    )  # fmt: skip


def _no_knowledge(page: Page) -> str | None:
    """Return the reason why a page is not proposed, by its form alone."""
    if len(_words_only(body_below_title(page.body))) < MIN_CHARS:
        return "says too little to stand alone"
    if _JOURNAL.fullmatch(page.stem):
        return "is a page of a journal, by its name"
    lines = [line for line in page.body.split("\n") if line.strip() and not line.startswith("#")]
    if sum(bool(_TASK.match(line)) for line in lines) > len(lines) / 2:
        return "is a list of tasks"
    if sum(bool(_LINK_ONLY.match(line)) for line in lines) > len(lines) * 0.8:
        return "is a list of links"
    return None


def _ideas(body: str, *, max_chars: int) -> Iterator[_Section]:
    """Runs of sections that belong together: a section with those below it, unless that is too long."""
    sections = _sections(body)
    position = 0
    while position < len(sections):
        first, end = sections[position], position + 1
        if first.level > 1:
            while end < len(sections) and sections[end].level > first.level:
                end += 1
            whole = "\n".join(
                [_with_heading(one) if place else one.text for place, one in enumerate(sections[position:end])]
            )
            if len(whole) <= max_chars:
                yield replace(first, text=whole)
                position = end
                continue
        if first.text.strip():
            yield first
        position += 1


def _with_heading(section: _Section) -> str:
    return f"{'#' * section.level} {section.heading}\n{section.text}"


def _sections(body: str) -> list[_Section]:
    lines = body.split("\n")
    found = headings_of(body)
    starts = [(0, "", 0, 0)] if not found or found[0][2] > 0 else []
    for level, text, line in found:
        is_underlined = not lines[line].lstrip().startswith("#")
        starts.append((level, text, line, line + (2 if is_underlined else 1)))
    ends = [line for _, _, line, _ in starts[1:]] + [len(lines)]
    return [
        _Section(level=level, heading=text, line=line, text="\n".join(lines[content:end]))
        for (level, text, line, content), end in zip(starts, ends, strict=True)
    ]


def _title(page: Page) -> str:
    title = page.first("title") or title_of(page.body) or page.stem.replace("_", " ")
    return _LEADING_NUMBER.sub("", title) or title


def _tags(page: Page) -> tuple[str, ...]:
    named = listed((*page.front.get("tags", ()), *page.front.get("tag", ())))
    return tuple(dict.fromkeys((*named, *_INLINE_TAG.findall(re.sub(r"`[^`\n]{0,200}`", "", page.body)))))[:8]


def _readable(text: str) -> str:
    """Return the text with Obsidian's links as plain words: their targets are not in the brain."""
    return _WIKI_LINK.sub(lambda found: f"({found[2]})" if found[1] else found[3] or found[2], text).strip()


def _words_only(text: str) -> str:
    """Return a text without links, tags and markup."""
    plain = re.sub(r"!?\[\[[^\[\]]{0,200}\]\]|<!--.{0,500}?-->|https?://\S+|[#*_>`|-]+", " ", text, flags=re.DOTALL)
    return " ".join(plain.split())


def _first_line(page: Page) -> int:
    return page.body_line + len(page.body) - len(page.body.lstrip("\n"))
