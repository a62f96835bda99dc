"""Put what was said, in order, together to passages of bounded size: about one side of an exchange each."""

from __future__ import annotations

from collections.abc import Callable

from nugget.history.values import PASSAGE_CHARS, Passage, Place, Role, Span, cut_text
from nugget.sources.channels import Message

Clean = Callable[[str], str]
"""Takes the secrets out of a text."""


class Assembly:
    """What has been put together so far, in `passages`; `exchanges` counts the prompts of the session."""

    def __init__(self, clean: Clean, *, exchanges: int = 0) -> None:
        self.passages: list[Passage] = []
        self.exchanges = exchanges
        self._clean = clean
        self._role = Role.YOU
        self._texts: list[str] = []
        self._chars = 0
        self._spans: list[Span] = []
        self._at = 0

    def add(self, role: Role, text: str, spans: tuple[Span, ...], at: int, *, is_known: bool = False) -> None:
        """Take what was said next. `is_known`: the same stands in another file already, so it is only counted."""
        if role is Role.YOU:
            self.flush()
            self.exchanges += 1
        if is_known:
            self.flush()
            return
        text = self._clean(text)
        if role is not self._role or self._chars + len(text) > PASSAGE_CHARS:
            self.flush()
        if len(text) > PASSAGE_CHARS:
            for start, stop in cut_text(text):
                self._put(role, text[start:stop], Place(spans=spans, start=start, stop=stop), at)
            return
        self._role = role
        self._at = self._at or at
        self._texts.append(text)
        self._chars += len(text)
        self._spans += spans

    def add_line(self, role: Role, line: str, span: Span, at: int) -> None:
        """Take a line of a shell's log: a command is a passage, of output as many lines as fit."""
        if role is Role.COMMAND or self._chars + len(line) > PASSAGE_CHARS:
            self.flush_lines(role, at)
        self._texts.append(line)
        self._chars += len(line)
        self._spans.append(span)

    def flush_lines(self, role: Role, at: int) -> None:
        """End the passage of lines that is being put together."""
        if self._texts:
            self.exchanges += 1
            self._put(role, self._clean("\n".join(self._texts)), Place(spans=tuple(self._spans)), at)
        self._texts, self._spans, self._chars = [], [], 0

    def add_message(self, message: Message, span: Span, at: int, channel: str, *, order: int) -> None:
        """Take a message of a channel; `order` is its place among the messages of the same line."""
        text = self._clean(message.shown)
        place = Place(spans=(span,), start=order)
        self.passages.append(Passage(role=Role.MESSAGE, number=0, at=at, text=text, place=place, channel=channel))

    def flush(self) -> None:
        """End the passage that is being put together."""
        if self._texts:
            self._put(self._role, "\n\n".join(self._texts), Place(spans=tuple(self._spans)), self._at)
        self._texts, self._spans, self._chars, self._at = [], [], 0, 0

    def _put(self, role: Role, text: str, place: Place, at: int) -> None:
        if text.strip():
            self.passages.append(Passage(role=role, number=max(1, self.exchanges), at=at, text=text, place=place))
