"""The page of `nugget web` for tests: the real application behind its gate, asked as a browser asks."""

from __future__ import annotations

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
PLACES = (
    "pier nine|the dry dock|the lighthouse|the customs house|the slipway|the crane yard|the fuel berth|the ice store|"
    "the net loft|the ferry ramp|the sail room|the chart office|the breakwater|the tug base|the grain silo|the cold "
    "quay|the coal wharf|the pilot station|the rope walk|the anchor field|the weighbridge|the lock gate|the mole"
).split("|")
THINGS = (
    "the winch|acetylene|the fog horn|the sealing wax|the cradle|the long sling|kerosene|the brine pump|the tarred "
    "twine|the bow thruster|the canvas press|the tide table|the blasting mat|the towing hook|the auger|the forklift|"
    "the coal chute|the launch|the spinning jenny|the mooring buoy|the calibrated weight|the sluice|the dredger"
).split("|")
HARMS = (
    "a crushed hand|a fire|a stranding|a fine|a capsized hull|a snapped cable|an explosion|spoiled fish|a tangled "
    "screw|a flooded deck|a torn mainsail|a missed ebb|a broken window|a sunk barge|a choked belt|a pierced crate|a "
    "black lung|a lost pilot|a frayed hawser|a drifting yacht|a wrong bill|a burst gate|a silted channel"
).split("|")


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
def page(brain: Path | None, *, cwd: Path | None = None) -> Iterator[Page]:
    """The pages of a brain, to a browser that was let in."""
    environment = read_environment()
    session = AgentSession(flag=brain, environment=environment, cwd=cwd or brain or Path.cwd(), face="web")
    app = make_app(session)
    app.add_middleware(Gate, home=environment.home, port=PORT)
    try:
        with TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client:
            shown = Page(client, environment.home)
            shown.enter()
            yield shown
    finally:
        session.close()


def harbour_notes(folder: Path) -> Path:
    """Write 23 notes that become as many units."""
    folder.mkdir()
    for number, (place, thing, harm) in enumerate(zip(PLACES, THINGS, reversed(HARMS), strict=True)):
        text = f"Before {thing} is used at {place}, somebody signs for it, because {harm} followed when nobody did. "
        (folder / f"{number:02}.md").write_text(
            f"# Sign for {thing} at {place}\n\n{text}{harm.capitalize()} is dear.\n"
        )
    return folder


def form(text: str) -> tuple[str, dict[str, str]]:
    """Return where the form of a review is sent, and its fields, the first unit accepted."""
    address = re.search(r'id="review" action="([^"]+)"', text)
    assert address
    return address[1], dict(re.findall(r'name="(path-\d+|sha)" value="([^"]+)"', text)) | {"mark-0": "accept"}
