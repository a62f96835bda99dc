"""The page of `nugget web` for tests: the real application behind its gate, asked as a browser asks."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from nugget.app import browsing
from nugget.app.agent_session import AgentSession
from nugget.config import read_environment
from nugget.web import Gate
from nugget.web.pages import make_app

PORT = 5034
ORIGIN = f"http://127.0.0.1:{PORT}"
OURS = {"sec-fetch-site": "same-origin", "origin": ORIGIN}
WORDS = (
    "coffee regen harbour wolke tiger orbit velvet copper lantern meadow saffron pebble walnut glacier thunder marble "
    "willow cactus anchor bamboo candle falcon garnet"
).split()
UNITS = len(WORDS)


@dataclass(frozen=True, slots=True)
class Page:
    """A browser that may or may not have been let in."""

    client: TestClient
    home: Path

    def enter(self) -> None:
        """Open the address that `nugget web` prints."""
        reply = self.client.get(f"/enter?key={browsing.new_key(self.home, PORT)}", follow_redirects=False)
        assert reply.status_code == 303

    def get(self, path: str, **headers: str) -> Any:
        """Open an address."""
        return self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, **fields: str) -> Any:
        """Send a form of ours; the reply is that of the page it leads to."""
        return self.client.post(path, data=fields, headers=OURS)


@contextmanager
def page(brain: Path) -> Iterator[Page]:
    """The pages of a brain, to a browser that was let in."""
    environment = read_environment()
    session = AgentSession(flag=brain, environment=environment, cwd=brain, face="web")
    app = make_app(session)
    app.add_middleware(Gate, home=environment.home, port=PORT)
    try:
        with TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client:
            shown = Page(client, environment.home)
            shown.enter()
            yield shown
    finally:
        session.close()


def note_of(number: int) -> tuple[str, str, str]:
    """Return what stands in a note: where something is, what it is, and what happened to it."""
    return WORDS[number], WORDS[(5 * number + 7) % UNITS], WORDS[(7 * number + 3) % UNITS]


def harbour_notes(folder: Path) -> Path:
    """Write 23 notes that become as many units."""
    folder.mkdir()
    for number in range(UNITS):
        place, thing, harm = note_of(number)
        text = f"Before the {thing} is used at the {place}, somebody signs for it, because a lost {harm} followed else."
        (folder / f"{number:02}.md").write_text(f"# Sign for the {thing} at the {place}\n\n{text} {harm} is dear.\n")
    return folder


def form(text: str) -> tuple[str, dict[str, str]]:
    """Return where the form of a review is sent, and its fields, the first unit accepted."""
    address = re.search(r'id="review" action="([^"]+)"', text)
    assert address
    return address[1], dict(re.findall(r'name="(path-\d+|sha)" value="([^"]+)"', text)) | {"mark-0": "accept"}
