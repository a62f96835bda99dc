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

from nugget.importing.notes import LeftOut, Note, Page, day_of, kind_of, listed, named_kind, page_of
from nugget.markdown import body_below_title, headings_of, title_of
from nugget.models import KnowledgeType

MAX_WHOLE_CHARS = 6_000
"""A longer page is cut at its sections."""
MIN_CHARS = 60
"""Less than this says too little to stand alone."""

RULE_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENT.md", "GEMINI.md", ".cursorrules")

_TOO_LITTLE = "says too little to stand alone"
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
_ADR_LINE = re.compile(
    r"^[*\- \t]{0,8}(status|date)(?: of decision)?\*{0,2} {0,2}:\*{0,2}[ \t]{0,8}(.{1,200})",
    re.IGNORECASE | re.MULTILINE,
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


def notes_of_page(text: str, *, path: str) -> Iterator[Note | LeftOut]:
    """Return the notes in a markdown file."""
    page = page_of(text.replace("\x00", ""), path=path)
    name = path.rpartition("/")[2]
    is_rules = name in RULE_FILES or name.endswith(".mdc") or "/.cursor/rules/" in f"/{path}"
    headings = [heading for _, heading, _ in headings_of(page.body)]
    names = {_name_of(heading) for heading in headings}
    if _PLACEHOLDER.search(page.body) or _TEMPLATE.search(page.stem):
        yield LeftOut(path=path, reason="is a template")
    elif is_rules:
        yield from _rules(page, name)
    elif names & {"decision outcome", "considered options"}:
        yield _adr(page, "MADR")
    elif "decision" in names and names & {"context", "status", "consequences"}:
        yield _adr(page, "Nygard")
    elif len(_OBSERVATION.findall(page.body)) >= 2 or (page.first("permalink") and _OBSERVATION.search(page.body)):
        yield _observations(page)
    elif why := _no_knowledge(page):
        yield LeftOut(path=path, reason=why)
    else:
        yield from _prose(page, headings)


def _name_of(heading: str) -> str:
    """Return the name of a section without the number before it."""
    return _LEADING_NUMBER.sub("", heading).lower().strip(" :*")


def _adr(page: Page, form: str) -> Note | LeftOut:
    texts = {_name_of(section.heading): section.text for section in _sections(page.body)}
    if len(_words_only(" ".join(texts.values()))) < MIN_CHARS:
        return LeftOut(path=page.path, reason="is a template: nothing is filled in")
    lines = {name.lower(): value for name, value in reversed(_ADR_LINE.findall(page.body))}
    status = page.first("status") or lines.get("status") or texts.get("status", "")
    standing = next((word for word in _STANDINGS if word in status.lower()), "")  # what the status says against it
    # The number is the folder's, and says nothing in the brain.
    title = _LEADING_NUMBER.sub("", title_of(page.body) or page.first("title") or page.stem.replace("-", " ")).strip()
    considered = next((texts[name] for name in ("considered options", "alternatives", "options") if name in texts), "")
    chosen = _CHOSEN.search(page.body)
    taken = _plain(chosen[1]).lower() if chosen else ""
    entries = [entry for entry in map(_plain, _ENTRY.findall(considered)) if entry]
    return Note(
        path=page.path, line=_first_line(page), title=title, kind=KnowledgeType.DECISION,
        body=f"# {title}\n\n{_readable(body_below_title(page.body))}",
        reason=f"an architecture decision record ({form}){f', {standing}' if standing else ''}",
        confidence=_STANDINGS.get(standing, 0.8), quote=texts.get("decision outcome") or texts.get("decision", ""),
        tags=(*listed(page.front.get("tags", ())), *([standing] if standing else [])),
        alternatives=tuple(
            entry[:200] for entry in entries if not (taken and (entry.lower() in taken or taken in entry.lower()))
        )[:8],
        created=day_of(page.first("date", "created") or lines.get("date", "")),
        warning=f"its status is {standing!r}: is it still worth keeping?" if standing else None,
    )  # fmt: skip


def _plain(text: str) -> str:
    return re.sub(r"\[([^\[\]]{0,200})\]\([^()]{0,300}\)", r"\1", text).strip(" *_`\"'“”.")


def _rules(page: Page, name: str) -> Iterator[Note | LeftOut]:
    """Yield rules by their sections: each is what somebody laid down about one matter."""
    body = _IMPORT_LINE.sub("", page.body)
    subject = title_of(body) or ""
    if not subject or subject.lower() in _NO_SUBJECTS:
        outside = [part for part in page.path.split("/")[:-1] if part not in (".cursor", "rules")]
        of_project = f"Rules of {outside[-1] if outside else 'the project'}"
        subject = page.stem.replace("-", " ") if name.endswith(".mdc") else of_project
    globs = page.first("globs")
    applies = f"\n\nApplies to files that match `{globs}`." if globs else ""
    for section, left_out in _ideas(page, body, max_chars=MAX_RULES_CHARS):
        text, line = section.text, page.body_line + section.line
        if left_out:
            yield left_out
        elif _ABOUT_THE_FILE.match(text) and len(text) < 4 * MIN_CHARS:
            yield LeftOut(path=page.path, line=line, reason="only says what the file is for")
        else:
            heading = "" if section.heading == subject or section.heading.lower() in _NO_SUBJECTS else section.heading
            yield Note(
                path=page.path, line=line, body=_readable(text) + applies, quote=text, kind=KnowledgeType.PATTERN,
                title=f"{subject}: {heading}" if heading else page.first("description") or subject,
                reason=f"a section of the rules in {name}", confidence=0.7, tags=listed(page.front.get("tags", ())),
            )  # fmt: skip


def _observations(page: Page) -> Note:
    """Return a note of basic-memory; its most frequent category that is a type says what it is."""
    categories = [category.lower() for category in _OBSERVATION.findall(page.body)]
    kinds = [(kind, category) for category in categories if (kind := named_kind(category)) is not None]
    kind, reason = KnowledgeType.CONCEPT, "its observations say nothing else"
    if named := named_kind(page.first("type")):
        kind, reason = named, f"its `type` says {page.first('type')}"
    elif kinds:
        kind, category = max(kinds, key=lambda pair: sum(one[0] is pair[0] for one in kinds))
        reason = f"its observations are of [{category}]"
    return _whole(page, kind=kind, reason=f"a note with observations: {reason}")


def _prose(page: Page, headings: list[str]) -> Iterator[Note | LeftOut]:
    title = _title(page)
    kind, reason = kind_of(page, title=title, headings=headings)
    whole = _whole(page, kind=kind, reason=f"a note: {reason}")
    if len(page.body) <= MAX_WHOLE_CHARS or not headings:
        yield whole
        return
    for section, left_out in _ideas(page, page.body, max_chars=MAX_WHOLE_CHARS):
        heading = _LEADING_NUMBER.sub("", section.heading) if section.heading != title else ""
        below = [name for _, name, _ in headings_of(section.text)]
        kind, reason = kind_of(page, title=heading or title, headings=below)
        yield left_out or replace(
            whole, line=page.body_line + section.line, title=f"{title}: {heading}" if heading else title, kind=kind,
            body=_readable(section.text), reason=f"a section of a long note: {reason}", confidence=0.55,
        )  # fmt: skip


def _whole(page: Page, *, kind: KnowledgeType, reason: str) -> Note:
    named = listed((*page.front.get("tags", ()), *page.front.get("tag", ())))
    inline = _INLINE_TAG.findall(re.sub(r"`[^`\n]{0,200}`", "", page.body))
    return Note(
        path=page.path, line=_first_line(page), title=_title(page), body=_readable(page.body), kind=kind,
        reason=reason, confidence=0.6, tags=tuple(dict.fromkeys((*named, *inline)))[:8],
        created=day_of(page.first("created", "date")),
    )  # fmt: skip


def _no_knowledge(page: Page) -> str | None:
    """Return the reason why a page is not proposed, by its form alone."""
    if len(_words_only(body_below_title(page.body))) < MIN_CHARS:
        return _TOO_LITTLE
    if _JOURNAL.fullmatch(page.stem):
        return "is a page of a journal, by its name"
    lines = [line for line in page.body.split("\n") if line.strip() and not line.startswith("#")]
    if sum(bool(_TASK.match(line)) for line in lines) > len(lines) / 2:
        return "is a list of tasks"
    if sum(bool(_LINK_ONLY.match(line)) for line in lines) > len(lines) * 0.8:
        return "is a list of links"
    return None


def _ideas(page: Page, body: str, *, max_chars: int) -> Iterator[tuple[_Section, LeftOut | None]]:
    """Yield what belongs together: a section with those below it, unless that is too long; or why it is left out."""
    sections = _sections(body)
    position = 0
    while position < len(sections):
        first = sections[position]
        ends = (n for n, one in enumerate(sections[position + 1 :]) if one.level <= first.level)
        below = sections[position + 1 :][: next(ends, len(sections))]
        whole = "\n".join([first.text, *(f"{'#' * one.level} {one.heading}\n{one.text}" for one in below)])
        if first.level < 2 or len(whole) > max_chars:
            below, whole = [], first.text
        position += 1 + len(below)
        if text := whole.strip():
            little = LeftOut(path=page.path, line=page.body_line + first.line, reason=_TOO_LITTLE)
            yield replace(first, text=text), little if len(_words_only(text)) < MIN_CHARS else None


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


def _readable(text: str) -> str:
    """Return the text with Obsidian's links as plain words: their targets are not in the brain."""
    return _WIKI_LINK.sub(lambda found: f"({found[2]})" if found[1] else found[3] or found[2], text).strip()


def _words_only(text: str) -> str:
    """Return a text without links, tags and markup."""
    plain = re.sub(r"!?\[\[[^\[\]]{0,200}\]\]|<!--.{0,500}?-->|https?://\S+|[#*_>`|-]+", " ", text, flags=re.DOTALL)
    return " ".join(plain.split())


def _first_line(page: Page) -> int:
    return page.body_line + len(page.body) - len(page.body.lstrip("\n"))
