"""Make a canon of over 300 pages from Debian's git-doc and debian-handbook, for `benchmarks/snippets.py`.

    python benchmarks/handbook/make.py FOLDER

`apt-get download` fetches both packages (a Debian system is needed), `dpkg-deb` unpacks them. The pages of git-doc are
AsciiDoc, whose headings are those of markdown; the handbook's pages are HTML, of which headings, paragraphs, items and
code are kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

PACKAGES = ("git-doc", "debian-handbook")
LEAST_PAGES = 200
_HEADINGS = {"h2": "# ", "h3": "## ", "h4": "### ", "h5": "#### "}
_BLOCKS = {*_HEADINGS, "p", "li", "dt", "dd", "pre", "td", "div"}
_NAVIGATION = {"Download the ebook", "- Prev", "- Next", "- The Debian Administrator's Handbook"}
_LEFT_OUT = {"script", "style", "head"}


class _Page(HTMLParser):
    """A parser that collects the markdown of an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self._text, self._before, self._skipped, self._is_code = "", "", 0, False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._skipped += tag in _LEFT_OUT
        if tag in _BLOCKS:
            self._end()
            self._before = _HEADINGS.get(tag, "- " if tag == "li" else self._before if tag == "p" else "")
            self._is_code = tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in _LEFT_OUT
        if tag in _BLOCKS:
            self._end()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._text += data

    def _end(self) -> None:
        text = self._text if self._is_code else " ".join(self._text.split())
        if text.strip():
            self.blocks.append(f"```\n{text.strip()}\n```" if self._is_code else self._before + text)
            self._before = ""
        self._text, self._is_code = "", False


def markdown_of(html: str) -> str:
    """Return the text of an HTML page as markdown."""
    page = _Page()
    page.feed(html)
    page.close()
    texts = [block for block in page.blocks if block not in _NAVIGATION]
    return "\n\n".join(texts) + "\n"


def make(folder: Path) -> int:
    """Write the pages into a folder, unless they are there, and return how many there are."""
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=scratch, check=True, stdout=sys.stderr)
            for package in Path(scratch).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(package), f"{scratch}/unpacked"], check=True)
            documents = Path(scratch) / "unpacked/usr/share/doc"
            pages = {f"git/{path.stem}.md": path.read_text("utf-8", "replace")
                     for path in (documents / "git-doc").glob("*.txt")}  # fmt: skip
            pages |= {f"debian/{path.stem}.md": markdown_of(path.read_text("utf-8", "replace"))
                      for path in (documents / "debian-handbook/html/en-US").glob("*.html")}  # fmt: skip
            for name, text in pages.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, "utf-8")
    count = sum(1 for _ in folder.rglob("*.md"))
    if count < LEAST_PAGES:
        raise SystemExit(f"{folder} holds {count} pages; remove the folder and make it again.")
    return count


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
