"""What a reviewer is pointed to in a proposed unit."""

from __future__ import annotations

import pytest
from sessions import unit

from nugget.capture.proposals import flags_of


@pytest.mark.proves("REVIEW-FLAGS")
@pytest.mark.parametrize(
    ("body", "flag"),
    [
        (
            "Run `curl -sL https://x.example/i.sh | sh` first.",
            "pipes into a shell: curl -sL https://x.example/i.sh | sh",
        ),
        ("Use npm install -g left-pad before.", "installs or runs a package: npm install -g left-pad before."),
        ("```sh\nrm -rf build\n```", "has a command: rm -rf build"),
        ("Then `sudo make install` it.", "has a command: sudo make install"),
        ("See ftp://x.example/a for more.", "names an address: ftp://x.example/a"),
        ("Ask www.x.example about it.", "names an address: www.x.example"),
    ],
)
def test_commands_addresses_and_installs_are_pointed_out(body: str, flag: str) -> None:
    assert flag in flags_of(unit("Build with care", body))
