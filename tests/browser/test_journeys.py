"""What a person does on the page, in a real Chromium: keys, typing, conflicts, undo, and no JavaScript at all."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import START
from sessions import write_transcript
from web_stage import PLACES, harbour_notes
from worker_stage import LESSONS

from nugget.app import open
from nugget.infra import git

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (group `browser`)")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="There is no Chromium on this machine."),
]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
UNITS = len(PLACES)
SESSION = "0709deff-e687-4553-a694-e6cc15aa54d1"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture
def address(words: Path, tmp_path: Path, isolated_home: Path) -> Iterator[str]:
    """Of the page of a brain with a proposal of 23 units."""
    transcript = isolated_home / f".claude/projects/-srv-shop/{SESSION}.jsonl"
    write_transcript(transcript, LESSONS, session=SESSION)
    notes = harbour_notes(tmp_path / "notes")
    with open(words) as brain:
        brain.import_notes(notes, domain="harbour")
    process = subprocess.Popen(
        [*START, "web", "--no-open", "--port", "0"], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stderr
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture
def tab(chromium: Any, address: str) -> Iterator[Any]:
    """A tab on the page, which fails the test for anything in the console and any foreign request."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    opened, wrong = context.new_page(), list[str]()
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "request", lambda one: wrong.append(one.url) if not one.url.startswith(("http://127.0.0.1", "data:")) else None
    )
    opened.goto(address)
    yield opened
    context.close()
    assert not [text for text in wrong if "409" not in text]  # a conflict is a reply of its own


def accept_one_while_another_is_rejected_elsewhere(tab: Any, words: Path) -> None:
    tab.goto(tab.url + "review")
    tab.keyboard.press("j")
    tab.keyboard.press("a")
    with open(words) as brain:
        (shown,) = brain.proposals()
        brain.reject(shown.branch, units=[shown.files[-1].id])


def waiting(brain: Path) -> int:
    with open(brain) as opened:
        return sum(len(one.files) for one in opened.proposals())


@pytest.mark.proves("WEB-BROWSER")
def test_a_proposal_is_decided_by_keys_and_taken_back(tab: Any, words: Path) -> None:
    tab.goto(tab.url + "review")
    before = git.head(words)
    tab.keyboard.press("j")
    for number in range(20):
        tab.keyboard.press("r" if number == 3 else "a")
    assert tab.inner_text("#tally") == "19 accepted, 1 rejected, 0 later"
    tab.click("text=Apply")
    assert "19 accepted, 1 rejected" in tab.inner_text(".done") and waiting(words) == 3
    assert git.word(words, "rev-list", "--count", f"{before}..HEAD") in ("1", "2")
    tab.click("text=Undo")
    assert "taken back" in tab.inner_text(".done")
    assert not list((words / "domains/harbour").rglob("*.md"))


@pytest.mark.proves("WEB-BROWSER")
def test_a_unit_is_edited_before_it_is_accepted(tab: Any, words: Path) -> None:
    tab.goto(tab.url + "review")
    tab.keyboard.press("j")
    tab.keyboard.press("e")
    text = tab.locator("textarea:focus")
    text.fill(text.input_value() + "\nA line by the reviewer.\n")
    tab.keyboard.press("Escape")
    tab.keyboard.press("a")
    tab.click("text=Apply")
    assert "1 accepted" in tab.inner_text(".done")
    (file,) = (words / "domains/harbour").rglob("*.md")
    assert "A line by the reviewer." in file.read_text()


@pytest.mark.proves("WEB-BROWSER")
def test_a_proposal_that_moved_meanwhile_keeps_the_marks(tab: Any, words: Path) -> None:
    accept_one_while_another_is_rejected_elsewhere(tab, words)
    tab.click("text=Apply")
    assert "moved since you looked" in tab.inner_text("[role=alert]")
    assert tab.locator("input[value=accept]:checked").count() == 1
    tab.click("text=Apply")
    assert "1 accepted" in tab.inner_text(".done") and waiting(words) == UNITS - 2


@pytest.mark.proves("WEB-BROWSER")
def test_search_answers_as_one_types_and_loses_no_key(tab: Any) -> None:
    tab.keyboard.press("/")
    tab.keyboard.type("idempotency")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#results article")
    field = tab.locator("#q")
    field.focus()
    field.press("End")
    tab.keyboard.type(" keys for retries", delay=15)
    tab.wait_for_url("**keys+for+retries**")
    assert field.input_value() == "idempotency keys for retries"
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("e")
    assert "meaning" in tab.inner_text("#results") or "its words" in tab.inner_text("#results details[open]")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/unit/**")
    assert "Idempotency" in tab.inner_text("h1")


@pytest.mark.proves("WEB-BROWSER")
def test_the_graph_is_walked_by_keyboard(tab: Any) -> None:
    root = tab.url
    tab.goto(f"{root}graph?focus=brain:pattern/retry-with-idempotency")
    first = tab.inner_text("h1")
    tab.locator("svg.graph a").nth(1).focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url(lambda url: "retry-with-idempotency" not in url)
    assert tab.inner_text("h1") != first


@pytest.mark.proves("WEB-BROWSER")
def test_what_changed_elsewhere_is_said_and_moves_nothing(tab: Any, words: Path) -> None:
    accept_one_while_another_is_rejected_elsewhere(tab, words)
    tab.wait_for_selector("#banner:not([hidden])", timeout=60_000)
    assert tab.inner_text("#tally").startswith("1 accepted")


@pytest.mark.proves("WEB-BROWSER")
def test_everything_works_without_javascript(chromium: Any, address: str, words: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address)
    root = tab.url
    tab.goto(root + "review")
    tab.locator("label:has(input[value=accept])").first.click()
    tab.click("text=Apply")
    assert "1 accepted" in tab.inner_text(".done")
    tab.goto(f"{root}search?q=signs")
    assert "Sign for" in tab.inner_text("#results")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 640, 390])  # 640 is what 200 % leaves of 1280
@pytest.mark.proves("WEB-BROWSER")
def test_axe_finds_nothing_and_nothing_scrolls_sideways(chromium: Any, address: str, scheme: str, width: int) -> None:
    source = Path(pytest.importorskip("axe_playwright_python").__file__).parent / "axe.min.js"
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    tab = context.new_page()
    tab.goto(address)
    root, found = tab.url, {}
    unit = "brain:pattern/retry-with-idempotency"
    for path in (
        "",
        "review",
        "search?q=cache",
        f"unit/{unit}",
        "graph",
        f"graph?focus={unit}",
        "activity",
        f"session/{SESSION}",
        "why",
        "nothing",
    ):
        tab.goto(root + path)
        tab.add_script_tag(path=source)
        result = tab.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        found[path] = [(one["id"], one["nodes"][0]["html"][:200]) for one in result["violations"]]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        shifts = "new Promise(done => new PerformanceObserver(list => done(list.getEntries().length)).observe("
        shifts += "{type: 'layout-shift', buffered: true}) || setTimeout(() => done(0), 100))"
        assert tab.evaluate(shifts) == 0, path
    context.close()
    assert not {path: problems for path, problems in found.items() if problems}
