"""Compare new units with the brain: each becomes a new file or an edit of an existing one, or is dropped.

A unit is compared with the brain's committed files, with units that wait for review, with rejected ones, and with the
nearest units of the index (`similar`). A session that is captured twice adds nothing twice, and rejected units are not
proposed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path

from nugget import brain as brains
from nugget.brain import knowledge_file as knowledge
from nugget.brain.filing import forgotten
from nugget.capture import ledger
from nugget.capture.ledger import text_key
from nugget.config import Settings
from nugget.errors import KnowledgeError, NuggetError
from nugget.extraction.proposals import Proposal
from nugget.infra import git
from nugget.markdown import title_of
from nugget.models import KnowledgeType, Origin, Relation, RelationType, SourceName, Unit
from nugget.text import FILLER, numbered, shorten, slugify, tracked

NEAR_DUPLICATE = 0.85
"""Cosine similarity (0..1) from which two units say the same thing, whatever their words. Different units on one topic
reach 0.72 in the test brain."""
SAME_WORDS = 0.8
"""Jaccard index of the words of titles and of bodies from which two units say the same thing. The same sentence about
another subject stays below."""
LIKELY_DUPLICATE = 0.75
"""Cosine similarity from which a unit repeats another that also holds `HELD_WORDS` of its words."""
HELD_WORDS = 0.5

MAX_BODY_CHARS = 20_000
MAX_TITLE_CHARS = 160

_CHOICES = (KnowledgeType.DECISION, KnowledgeType.BELIEF)
_SAME_CHOICE = 0.6
"""Share of the shorter title's words from which two choices may be about one subject."""
_NO_SUBJECT = "not no only we use used using uses now never always must should instead rather than over keep".split()
_FILLER = FILLER.union(_NO_SUBJECT, "wir nehmen statt für der die das".split())

BRANCH_PREFIX = "nugget/"
"""The prefix of the names of all proposals."""

Similar = Callable[[Unit], Sequence[tuple[Unit, float]]]
"""The brain's units nearest to a unit, with their cosine similarity (0..1), best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalTarget:
    """The context of a proposal: the brain, its settings and the time."""

    brain: Path
    home: Path
    settings: Settings
    similar: Similar
    now: datetime
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedChange:
    """One file of a proposal; `before` is None for a new file, `note` is a hint for the reviewer."""

    path: str
    unit: Unit
    text: str
    reason: str
    before: str | None = None
    note: str | None = None

    @property
    def is_new(self) -> bool:
        """True if the brain has no such file yet."""
        return self.before is None


@dataclass(slots=True, kw_only=True)
class KnownBrain:
    """The brain as seen by a capture, with the changes proposed so far.

    `files` has the paths of a commit as keys, `read` returns their text. `waiting` has the units on branches that
    nobody has reviewed yet, with the branch; `paths` the files by id, `renamed` the ids that were taken already.
    """

    files: Mapping[str, str]
    read: Callable[[str], str | None]
    similar: Similar
    today: date
    waiting: Sequence[tuple[Unit, str]] = ()
    rejected: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    changes: dict[str, ProposedChange] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.paths |= {unit_id_of(path): path for path in self.files}

    def unit_at(self, path: str, *, proposed: bool = False) -> tuple[Unit | None, str]:
        """Return the unit and text of a file, as committed in the brain or as `proposed` so far."""
        change = self.changes.get(path) if proposed else None
        text = change.text if change else self.read(path) if path in self.files else None
        return (knowledge.parse(text, path=path).unit if text is not None else None), text or ""

    def edit(self, unit: Unit, path: str, text: str, *, reason: str, note: str) -> None:
        """Propose a new text for a file of the brain."""
        before = self.read(path)
        self.changes[path] = ProposedChange(path=path, unit=unit, text=text, reason=reason, before=before, note=note)

    def drop(self, unit: Unit, why: str) -> None:
        """Record why a unit is not proposed."""
        self.dropped.append(f"{shorten(unit.title, 80) or 'a unit without a title'}: {why}")


def known_brain(target: ProposalTarget, key: str | None = None) -> KnownBrain:
    """Return the brain as a capture sees it; `key` is its name in the ledgers, if already known."""
    brain, base = target.brain, base_commit(target.brain)

    def read(path: str) -> str | None:
        content = git.read_blob(brain, base, path) if base else None
        return None if content is None else content.decode("utf-8", "replace")

    unmerged = [found for found in git.unmerged_files(brain, BRANCH_PREFIX) if found[1].endswith(".md")]
    waiting = [(knowledge.parse_bytes(content, path=path).unit, branch) for branch, path, content in unmerged]
    return KnownBrain(
        files=git.files_at(brain, base, under=["domains"]) if base else {}, read=read, similar=target.similar,
        today=target.now.date(),
        waiting=[(unit, branch) for unit, branch in waiting if unit is not None],
        rejected=ledger.rejections(target.home, brain=key or ledger.brain_key(brain, target.home)),
        forgotten=forgotten(brain),
    )  # fmt: skip


def base_commit(brain: Path) -> str | None:
    """Return the commit that proposals start from: the checked-out one, but never another proposal's."""
    if not (git.current_branch(brain) or "").startswith(BRANCH_PREFIX):
        return git.head(brain)
    return git.resolve(brain, "refs/heads/main") or git.resolve(brain, "refs/heads/master") or git.head(brain)


def compare(
    proposals: Iterable[Proposal], brain: KnownBrain, *, session: str | None, max_units: int,
    origin: Origin = Origin.AI_SESSION, edits: bool = True, beyond: str = "",
) -> tuple[tuple[ProposedChange, ...], tuple[str, ...]]:  # fmt: skip
    """Return the files to propose, at most `max_units` and the most useful first, and why others are left out.

    Without `edits` no existing file is changed: additions to one are proposed as a new file, and flagged.
    `beyond` is the reason given for units beyond `max_units`.
    """
    beyond = beyond or f"more than {max_units} units (capture.max_units)"
    accepted: list[tuple[Unit, Proposal]] = []
    for proposal in sorted(proposals, key=lambda one: (one.rank, -one.unit.confidence)):
        unit = _tidy(proposal.unit, today=brain.today, session=session, origin=origin)
        if isinstance(unit, str):
            brain.drop(proposal.unit, unit)
        elif why := _unwanted(unit, brain, [known for known, _ in accepted]):
            brain.drop(unit, why)
        elif len(accepted) == max_units:
            brain.drop(unit, beyond)
        else:
            accepted.append((unit, proposal))
    for unit, proposal in tracked(accepted, "Comparing with the brain"):
        _place(brain, unit, proposal, edits=edits)
    _prune_relations(brain)
    return tuple(brain.changes.values()), tuple(brain.dropped)


def _prune_relations(brain: KnownBrain) -> None:
    """Update relations between new units to their final ids, and drop relations to missing units."""
    for path, change in brain.changes.items():
        known = [replace(one, id=brain.renamed.get(one.id, one.id)) for one in change.unit.related]
        related = tuple(one for one in known if one.id in brain.paths and one.id != change.unit.id)
        if change.before is None and related != change.unit.related:
            unit = replace(change.unit, related=related)
            brain.changes[path] = replace(change, unit=unit, text=knowledge.serialise(unit))


def _tidy(unit: Unit, *, today: date, session: str | None, origin: Origin) -> Unit | str:
    """Return the unit ready to be written to a file, or the reason for refusing it.

    Type, domain and slug may come from a model or a transcript, so only their sanitised form is used in the path.
    """
    if unit.type not in set(KnowledgeType):
        return f"unknown type {shorten(unit.type, 40)!r}"
    title, body = " ".join(unit.title.split())[:MAX_TITLE_CHARS], unit.body.strip()
    if not title or not body:
        return "no title or no body"
    if len(body) > MAX_BODY_CHARS:
        return f"the body is longer than {MAX_BODY_CHARS} characters"
    if title_of(body) is None:
        body = f"# {title}\n\n{body}"
    slug = slugify(unit.id.rpartition("/")[2] or title)
    parts = [slugify(part) for part in re.split(r"[/\\]", unit.domain or "") if part.strip(". ")]
    try:
        domain = brains.validate_domain("/".join(parts[:4]) or "general")
    except NuggetError as error:
        return str(error)
    return replace(
        unit, id=f"{unit.type}/{slug}", source=SourceName.BRAIN, title=title, body=body + "\n", domain=domain,
        path=brains.unit_path(unit.type, domain, slug), confidence=min(1.0, max(0.0, unit.confidence)),
        tags=tuple(dict.fromkeys(slugify(tag, max_chars=40) for tag in unit.tags if tag.strip()))[:8],
        origin=origin, session=session, created=unit.created or today, last_modified=today,
    )  # fmt: skip


def unit_id_of(path: str) -> str:
    """Return the id of a path: `domains/coding/patterns/retry.md` is `pattern/retry`."""
    parts = path.removesuffix(".md").rsplit("/", 2)
    return f"{parts[-2].removesuffix('s')}/{parts[-1]}" if len(parts) == 3 else parts[-1]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w{2,}", text.lower()))


def _content_words(text: str) -> frozenset[str]:
    """Return the words of a text without filler words."""
    return _words(text) - _FILLER


def _shared_words(one: str, other: str) -> float:
    """Return the share of the distinct words of two texts that both have (Jaccard index, 0..1)."""
    ours, theirs = _words(one), _words(other)
    return len(ours & theirs) / len(ours | theirs) if ours and theirs else 0.0


def _held_words(one: Unit, other: Unit) -> float:
    """Return the share of one unit's distinct words that the other also has (0..1)."""
    ours, theirs = _words(f"{one.title}\n{one.body}"), _words(f"{other.title}\n{other.body}")
    return len(ours & theirs) / len(ours) if ours else 0.0


def _quotes(unit: Unit) -> set[str]:
    return {text_key(evidence.quote) for evidence in unit.evidence}


def _same_knowledge(one: Unit, other: Unit) -> bool:
    """Return True if two units share session and title, most words, or their quotes and many words."""
    if one.session and one.session == other.session and text_key(one.title) == text_key(other.title):
        return True
    likeness = _shared_words(one.title, other.title)
    if one.evidence and _quotes(one) == _quotes(other) and likeness >= HELD_WORDS:
        return True
    return likeness >= SAME_WORDS and _shared_words(one.body, other.body) >= SAME_WORDS


def _unwanted(unit: Unit, brain: KnownBrain, accepted: Sequence[Unit]) -> str | None:
    quotes, rejected = _quotes(unit), brain.rejected
    if not rejected.isdisjoint((unit.id, text_key(unit.body))) or (quotes and quotes <= rejected):
        return "turned down before"
    if not brain.forgotten.isdisjoint((unit.id, knowledge.body_digest(unit.body))):
        return "forgotten before (forgotten.yaml)"
    for known in accepted:
        if _same_knowledge(unit, known):
            return f"says the same as {known.id}, which is proposed too"
    for waiting, branch in brain.waiting:
        if _same_knowledge(unit, waiting):
            return f"already waits for review on {branch} as {waiting.id}"
    return None


def _place(brain: KnownBrain, unit: Unit, proposal: Proposal, *, edits: bool) -> None:
    near = [(one, score) for one, score in brain.similar(unit) if one.path in brain.files]
    unit = replace(unit, related=(*unit.related, *_superseded(brain, unit, [one for one, _ in near])))
    named = proposal.updates if proposal.updates in brain.paths else None
    twin, score = (brain.unit_at(brain.paths[named])[0], None) if named else _twin(brain, unit, near)
    notes = [proposal.note] if proposal.note else []
    if twin is not None and edits:
        try:
            _add_to(brain, twin, unit, proposal.reason, score)
            return
        except KnowledgeError:  # only a person can edit its frontmatter
            notes.append(f"{twin.id} has to be edited by hand")
    if twin is not None:
        if not _new_blocks(twin.body, unit):
            brain.drop(unit, f"{twin.id} says it already")
            return
        notes.append(f"much like {twin.id}" + (f" (similarity {score:.2f})" if score else ""))
    # The slug must be unused in the brain, in this proposal and in waiting ones.
    new_id = numbered(unit.id, brain.paths.keys() | {waiting.id for waiting, _ in brain.waiting})
    path = brains.unit_path(unit.type, unit.domain or "general", new_id.partition("/")[2])
    # Keep each valid relation once.
    leading = {(one.id, one.relation): one for one in unit.related if one.id != new_id
               and (one.id in brain.paths or one.relation is RelationType.INFORMED_BY)}  # fmt: skip
    brain.renamed[unit.id] = new_id
    unit = replace(unit, id=new_id, path=path, related=tuple(leading.values()))
    conflicts = (RelationType.SUPERSEDES, RelationType.CONTRADICTS)
    notes += [f"{one.relation} {one.id}" for one in unit.related if one.relation in conflicts]
    brain.paths[unit.id] = path
    brain.changes[path] = ProposedChange(
        path=path, unit=unit, text=knowledge.serialise(unit), reason=proposal.reason, note="; ".join(notes) or None
    )
    for relation in unit.related:
        if relation.relation is RelationType.SUPERSEDES:
            _mark_superseded(brain, relation.id, unit)


def _superseded(brain: KnownBrain, unit: Unit, similar: Sequence[Unit]) -> Iterator[Relation]:
    """Yield `supersedes` relations to decisions on the same subject whose choice this unit rejects."""
    if unit.type not in _CHOICES or not unit.alternatives:
        return
    gone = list(map(_content_words, unit.alternatives))
    slugs = {slugify(word) for words in gone for word in words}
    near = {one.id: one for one in similar}
    for unit_id, path in brain.paths.items():  # units named after the rejected choice
        is_named = unit_id not in near and slugs & set(unit_id.partition("/")[2].split("-"))
        if is_named and (found := brain.unit_at(path)[0]) is not None:
            near[unit_id] = found
    subject = _content_words(unit.title).difference(*gone)
    for known in near.values():
        before = _content_words(known.title).difference(*map(_content_words, known.alternatives))
        is_new = known.id != unit.id and known.id not in {relation.id for relation in unit.related}
        if known.type in _CHOICES and is_new and subject & before and any(words and words <= before for words in gone):
            yield Relation(id=known.id, relation=RelationType.SUPERSEDES)


def _twin(brain: KnownBrain, unit: Unit, near: Sequence[tuple[Unit, float]]) -> tuple[Unit | None, float | None]:
    """Return the committed unit that says the same, and its similarity.

    Choices or rules about different things are never twins, however similar their words.
    """
    replaced = {relation.id for relation in unit.related if relation.relation is not RelationType.USES}
    found: tuple[Unit | None, float | None] = (None, None)
    for one, score in near:
        alike = score >= NEAR_DUPLICATE or (score >= LIKELY_DUPLICATE and _held_words(unit, one) >= HELD_WORDS)
        if (alike or _same_knowledge(unit, one)) and one.id not in replaced:
            found = one, score
            break
    else:
        known = brain.unit_at(brain.paths.get(unit.id, ""))[0]
        if known is not None and (held := _held_words(unit, known)) >= HELD_WORDS:
            found = known, held
    if found[0] is not None and unit.type in _CHOICES and found[0].type in _CHOICES:
        ours, theirs = _content_words(unit.title), _content_words(found[0].title)
        if len(ours & theirs) < _SAME_CHOICE * min(len(ours), len(theirs)):
            return None, None
    return found


def _add_to(brain: KnownBrain, twin: Unit, unit: Unit, reason: str, score: float | None) -> None:
    """Propose to add the unit's new parts to its twin's file. Raises KnowledgeError if that cannot be edited."""
    known, text = brain.unit_at(twin.path or "", proposed=True)
    if known is None:
        brain.drop(unit, f"{twin.id} says the same, and its file cannot be edited")
    elif not (added := _new_blocks(known.body, unit)):
        brain.drop(unit, f"{twin.id} says it already")
    else:
        heading = unit.title if unit.title != known.title else f"Seen again on {brain.today.isoformat()}"
        changed: dict[str, object] = {"last_modified": brain.today}
        if unit.confidence > known.confidence:
            changed["confidence"] = round(unit.confidence, 2)
        changed["evidence"] = tuple(dict.fromkeys((*known.evidence, *unit.evidence)))
        edited = knowledge.edit(text, changes=changed, body=f"{known.body.rstrip()}\n\n## {heading}\n\n{added}\n")
        merged = replace(known, evidence=unit.evidence, confidence=max(known.confidence, unit.confidence))
        alike = f", which says much the same (similarity {score:.2f})" if score else ""
        brain.edit(merged, known.path or "", edited, reason=reason, note=f"adds to {known.id}{alike}")


def _mark_superseded(brain: KnownBrain, unit_id: str, by: Unit) -> None:
    known, text = brain.unit_at(brain.paths[unit_id], proposed=True)
    if known is not None and known.path in brain.files:
        with suppress(KnowledgeError):  # only a person can edit it; the new unit says `supersedes` anyway
            marked = knowledge.edit(text, changes={"superseded_by": by.id, "last_modified": brain.today})
            reason = f"superseded by {by.id}"
            brain.edit(known, known.path or "", marked, reason=reason, note=f"marked as {reason}")


def _new_blocks(known_body: str, unit: Unit) -> str:
    """Return the blocks of a unit's body that the known body does not already say."""
    known, known_words = re.split(r"\n\s*\n", known_body), _words(known_body)
    fresh: list[str] = []
    for block in re.split(r"\n\s*\n", unit.body.strip()):
        words = _words(block)
        is_said = block.startswith("# ") or any(_shared_words(block, other) >= SAME_WORDS for other in known)
        if words and not is_said and len(words - known_words) > len(words) // 5:
            fresh.append(block)
    return "\n\n".join(fresh)
