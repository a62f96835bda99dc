"""Small pure functions on text that several layers share."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import chain, count
from operator import itemgetter
from typing import Any, TypeVar

Item = TypeVar("Item")
on_progress: ContextVar[Callable[[str, int, int], None]] = ContextVar("on_progress", default=lambda *_: None)
"""Progress callback of long work: called with a label, the number done and the total."""
MAX_HASHED_CHARS = 8_000_000
"""Maximum length of a file that is hashed, since a transcript may repeat it for every edit."""
CHARS_PER_TOKEN = 4
"""Estimated characters per token, without a tokenizer (openqed's rule)."""

# Control characters, line ends, bytes that are not UTF-8, and characters that change the direction of text.
_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
_ESCAPES = (
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(_ESCAPES + "|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_EMOJI = (
    "#*0-9\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINED = f"\u0600-\u061b\u061d-\u115e\u1161-\u17b3\u17b6-\u180a\u1810-\u1cff{_EMOJI[4:]}"
# Characters that models read and people do not see. Joiners stay in scripts that need them, and in emoji.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d"
    "\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    f"|[\u200c\u200d](?![{_JOINED}])|(?<![{_JOINED}])(?<![{_EMOJI}]\ufe0f)[\u200c\u200d]|(?<![{_EMOJI}])[\ufe0e\ufe0f]"
)
_CLIENT_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:antml:\w|(?:nugget-memory|system[-_]reminder|system|assistant|human|thinking|command-\w+"
    r"|local-command-\w+|bash-(?:input|stdout|stderr)|(?:user-prompt-submit|session-start|stop|pre-tool-use)-hook|hook_\w+"
    r"|user-memory-\w+|task-notification|teammate-message|cross-session-message|persisted-output|ide_\w+|new-diagnostics"
    r"|total_tokens|tools-used-before-summary|function_calls|function_results?|functions?|invoke|parameter\s+name|tool_\w+"
    r"|environment_context|environment_details|user_instructions|permissions|INSTRUCTIONS|turn_aborted"
    r"|subagent_notification|skills?_instructions|collaboration_mode|model_switch|personality_spec|\w+_instructions"
    r"|codex_internal_context|user_shell_command|session_context|state_snapshot|user_query|user_info|attached_files"
    r"|open_and_recently_viewed_files|additional_data|agent_transcripts|git_status|project_layout"
    r"|manually_attached_skills|external_links|image_files|available_skills|claude-mem-context)\b)|\|\w+\|>)",
    re.IGNORECASE,
)
"""The start of tags that clients or models interpret."""
DATE_FORMS = "YYYY-MM-DD, or an age such as 24h, 30d, 6w, 3m, 1y"
"""The accepted forms of dates, for help texts and messages."""

_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}
_ENDINGS = "ations ation ings ing ions ion edly ied ies ed es e s y ly".split()

_DECODER = json.JSONDecoder(parse_constant=int)  # NaN and Infinity, which are not JSON, become a ValueError
_SLUG_WORDS = 6
FILLER = frozenset("the a an is are was be to of for in on at by with and or it its that this from as".split())


def clean(text: str) -> str:
    """Return a text that is safe to show to people and agents.

    Escape sequences of terminals are removed, invisible characters are spelled out (`\\u200b`), and tags that
    clients interpret are escaped. Line ends become `\\n`; tabs are kept.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", text)
    if not text.isascii():
        text = _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return _CLIENT_TAGS.sub("&lt;", text) if "<" in text else text


def plain_line_ends(text: str) -> str:
    """Return the text without its byte order mark and with `\\n` for every line end."""
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def without_escapes(text: str) -> str:
    """Return a text without the escape sequences of terminals."""
    return re.sub(_ESCAPES, "", text) if "\x1b" in text else text


def one_line(text: str) -> str:
    """Return `clean(text)` with every run of white space made one space."""
    return " ".join(clean(text).split())


def clean_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON value with `clean` applied to every text."""
    cleaned: dict[str, Any] = map_texts(values, clean)
    return cleaned


def map_texts(value: Any, change: Callable[[str], str], *, exact: Collection[str] = ()) -> Any:
    """Apply `change` to every text in a JSON value, except under the keys in `exact`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [map_texts(part, change, exact=exact) for part in value]
    if isinstance(value, Mapping):
        return {key: part if key in exact else map_texts(part, change, exact=exact) for key, part in value.items()}
    return value


def json_in(text: str) -> Any:
    """Return the longest JSON value in a text, since models put prose, thoughts and fences around it.

    Raises ValueError if there is none.
    """
    with suppress(ValueError):
        return _DECODER.decode(text)
    found, end = [], 0
    for start in re.finditer(r"[{\[]", text):
        if start.start() >= end:
            with suppress(ValueError):
                value, end = _DECODER.raw_decode(text, start.start())
                found.append((end - start.start(), value))
    if not found:
        raise ValueError("there is no JSON in it")
    return max(found, key=itemgetter(0))[1]


def estimate_tokens(text: str) -> int:
    """Return an estimate of the tokens in a text: four characters each, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def slugify(text: str, *, max_chars: int = 60) -> str:
    """Return a file name of lower-case ASCII words joined by `-`, cut at a word; a hash if nothing is left."""
    folded = unicodedata.normalize("NFKD", text.replace("'", "")).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", folded).strip("-")
    if len(slug) > max_chars:
        slug = slug[: max_chars + 1].rsplit("-", 1)[0][:max_chars].strip("-")
    return slug or f"unit-{content_hash(text)[:10]}"


def title_slug(title: str) -> str:
    """Return the slug of a title: all words of a short title, the first six content words of a long one."""
    words = slugify(title).split("-")
    telling = words if len(words) <= _SLUG_WORDS else [word for word in words if word not in FILLER]
    return "-".join(telling[:_SLUG_WORDS]) or slugify(title)


def is_name(text: str, *, signs: str = "._-", most: int = 128) -> bool:
    """Return whether a text is a plain name: ASCII letters, digits and these signs, not starting with a dot."""
    is_bounded = 0 < len(text) <= most and text.isascii() and text[0] != "."
    return is_bounded and all(char.isalnum() or char in signs for char in text)


def numbered(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken, with a number at its end if necessary."""
    return next(one for one in chain([name], (f"{name}-{number}" for number in count(2))) if one not in taken)


def tracked(items: Iterable[Item], what: str, size: Callable[[Item], float] = lambda item: 1) -> Iterator[Item]:
    """Yield the items and report progress after each; `size` is the relative cost of an item."""
    sized = [(item, size(item)) for item in items]
    done, total = 0.0, math.ceil(sum(cost for _, cost in sized))
    for item, cost in sized:
        yield item
        done += cost
        on_progress.get()(what, round(done), total)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 file`, `2 files`, `1,200 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(lasted: timedelta) -> str:
    """Return a length of time in words: `90 seconds`, `90 minutes`, `3 hours`."""
    seconds = max(0, int(lasted.total_seconds()))
    units = ((120, 1, "second"), (2 * 3600, 60, "minute"), (2 * 86_400, 3600, "hour"), (math.inf, 86_400, "day"))
    return next(counted(seconds // size, noun) for most, size, noun in units if seconds < most)


def plain(title: str) -> str:
    """Return a title on one line, without the backticks around code."""
    return re.sub("`([^`]+)`", r"\1", one_line(title))


def shorten(text: str, max_chars: int) -> str:
    """Return a text on one line; a longer one is cut after a sentence, else a word, and ends with `[…]`."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    room = line[: max(1, max_chars - 4)]
    ends = [match.end() for match in re.finditer(r"[.!?。！？](?=\s|$)|\n", room)]
    if ends and ends[-1] >= len(room) // 2:
        return room[: ends[-1]].rstrip() + " […]"
    return (room.rsplit(" ", 1)[0] if " " in room else room).rstrip() + " […]"


@lru_cache(maxsize=1 << 16)
def word_root(word: str) -> str:
    """Return the stem of an English word in lower case, the same for `expires` and `expired`."""
    word = word.lower()
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            root = word[: -len(ending)]
            return root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" and len(root) > 3 else root
    return word


def folded(name: str) -> str:
    """Return a name in lower case and Unicode form C, so that names compare equal across file systems."""
    return unicodedata.normalize("NFC", name).lower()


def printable(path: str) -> str:
    """Return a path for use in a message: on one line and printable."""
    return re.sub(_UNPRINTABLE, lambda char: char[0].encode("unicode_escape").decode(), path)


def content_hash(content: str | bytes) -> str:
    """Return the SHA-256 (hex) of a content; a text is taken as UTF-8."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()


def line_hash(line: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a stripped line."""
    return content_hash(line.strip())[:16]


def apply_edit(content: str, before: str, after: str, *, everywhere: bool = False) -> str | None:
    """Return the content with `before` replaced by `after`, as Claude Code does; None if `before` is not in it.

    If lines are deleted, so is the line end after them.
    """
    if before not in content or not before:
        return after if not before and not content else None
    if not after and not before.endswith("\n") and before + "\n" in content:
        before += "\n"
    return content.replace(before, after) if everywhere else content.replace(before, after, 1)


def parse_day(text: str, *, today: date, last: bool = False) -> date | None:
    """Parse 2026-01-31, 2026-01, 2026, or 24h, 30d, 6w, 3m, 1y back; return None for anything else.

    A month or a year gives its first day, or its last with `last`. Hours are rounded to days.
    """
    if (hours := _span_hours(text)) is not None:
        most = today.toordinal() - 2  # the day before it must exist too
        return today - timedelta(days=min(most, -(-hours // 24)))
    parts = re.fullmatch(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", text)
    if parts is None:
        return None
    year, month, day = int(parts[1]), int(parts[2] or (12 if last else 1)), int(parts[3] or 1)
    try:
        found = date(year, month, day)
        if last and not parts[3]:
            return date(year + month // 12, month % 12 + 1, 1) - timedelta(1)
    except ValueError:
        return None
    return found


def parse_moment(text: str, *, now: datetime) -> datetime | None:
    """Parse the forms of `parse_day`, to the hour, or a date with a time; return None for anything else.

    The default time zone is that of this machine.
    """
    try:
        if (hours := _span_hours(text)) is not None:
            return now - timedelta(hours=hours)
        if day := parse_day(text, today=now.date()):
            return datetime.combine(day, time.min).astimezone()
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        return None


def _span_hours(text: str) -> int | None:
    span = re.fullmatch(r"(\d{1,5})([hdwmy])", text.lower())
    return int(span[1]) * _HOURS[span[2]] if span else None
