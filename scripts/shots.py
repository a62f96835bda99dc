"""Take the pictures of the page that README shows, from a real brain in a temporary HOME. Needs Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
SHOWN = {
    "review": "review",
    "search": "search?q=retry a payment after a timeout",
    "graph": "graph?focus=brain:pattern/retry-with-idempotency",
}


def main() -> None:
    """Write docs/pictures/*.png."""
    nugget = [sys.executable, "-m", "nugget"]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / ".gitconfig").write_text("[user]\n\tname = A. Person\n\temail = a@example.invalid\n")
        environment = {**os.environ, "HOME": folder, "NUGGET_HOME": f"{folder}/.nugget"}
        brain = shutil.copytree(ROOT / "tests" / "brain", home / "brain")
        capture = ["capture-session", "--transcript", str(ROOT / "examples/demo/session.jsonl")]
        for command in (["init", str(brain), "--no-install"], capture, ["sync"]):
            subprocess.run([*nugget, *command], env=environment, check=True, stdout=subprocess.DEVNULL)
        page = subprocess.Popen([*nugget, "web", "--no-open", "--port", "0"], env=environment, stderr=subprocess.PIPE)
        try:
            assert page.stderr
            address = re.search(r"http://\S+", page.stderr.readline().decode())
            assert address
            _take(address[0])
        finally:
            page.terminate()
            page.wait()


def _take(address: str) -> None:
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as started:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=chromium, args=sandbox)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(address)
        root = tab.url
        for name, path in SHOWN.items():
            tab.goto(root + path)
            tab.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
