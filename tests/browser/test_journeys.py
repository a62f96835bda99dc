"""What a person does on the page, in a real browser: keys, typing, conflicts, undo, and no JavaScript at all."""

import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from served import START
from sessions import write_transcript
from web_stage import UNITS, harbour_notes, note_of
from worker_stage import LESSONS

from nugget.app import open

PROGRAMS = {"chromium": ("chromium-headless-shell", "chromium", "google-chrome"), "firefox": ("firefox-esr", "firefox")}
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (group `browser`)")
pytestmark = pytest.mark.browser
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SHIFTS = """new Promise(done => {
  if (!PerformanceObserver.supportedEntryTypes.includes('layout-shift')) return done(0);
  new PerformanceObserver(list => done(list.getEntries().length)).observe({type: 'layout-shift', buffered: true});
  setTimeout(() => done(0), 100);
})"""
SESSION = "0709deff-e687-4553-a694-e6cc15aa54d1"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module", params=list(PROGRAMS))
def browser(request: pytest.FixtureRequest, started: Any) -> Iterator[Any]:
    with launched(started, request.param) as opened:
        yield opened


@contextmanager
def launched(started: Any, name: str, **preferences: int) -> Iterator[Any]:
    """A browser of this machine; Firefox is driven by WebDriver BiDi, and knows colours and motion from preferences."""
    program = next(filter(None, map(shutil.which, PROGRAMS[name])), None)
    if program is None:
        pytest.skip(f"There is no {name.capitalize()} on this machine.")
    if name == "firefox":
        opened = started.firefox.launch(executable_path=program, channel="moz-firefox", firefox_user_prefs=preferences)
    else:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = started.chromium.launch(executable_path=program, args=sandbox)
    yield opened
    opened.close()


@pytest.fixture
def served(words: Path, tmp_path: Path, isolated_home: Path) -> Iterator[tuple[Any, str]]:
    """The page of a brain with a proposal of 23 units: its process and its address."""
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
        yield process, found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture
def address(served: tuple[Any, str]) -> str:
    return served[1]


@contextmanager
def watched(browser: Any, address: str, *, said: tuple[str, ...] = (), **options: Any) -> Iterator[Any]:
    """A tab on the page; whatever else is in the console, and any foreign request, is a failure."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    opened, wrong = context.new_page(), list[str]()
    opened.on("console", lambda message: wrong.append(message.text))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda one: one.url.startswith(("http://127.0.0.1", "data:")) or wrong.append(one.url))
    opened.goto(address)
    yield opened
    context.close()
    assert not [text for text in wrong if not any(one in text for one in said)]


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Any]:
    """A tab on the page, where a conflict is a reply of its own, and nothing else is in the console."""
    with watched(browser, address, said=("409",)) as opened:
        yield opened


def waiting(brain: Path) -> int:
    with open(brain) as opened:
        return sum(len(one.files) for one in opened.proposals())


@pytest.mark.proves("WEB-BROWSER")
def test_a_handbook_is_decided_by_keys_and_answers_questions_and_one_accept_is_undone(tab, words):
    root, pressed = tab.url, list[str]()

    def press(key: str, times: int = 1) -> None:
        for _ in range(times):
            pressed.append(key)
            tab.keyboard.press(key)

    tab.goto(root + "review")
    press("a")
    tab.click("text=Apply")
    assert waiting(words) == UNITS - 1
    tab.click("text=Undo")
    assert "undone" in tab.inner_text(".done") and waiting(words) == UNITS
    assert not list((words / "domains/harbour").rglob("*.md"))
    tab.goto(root + "review")
    press("a", 3)
    press("r")
    press("a", 16)
    assert tab.inner_text("#tally") == "19 accepted, 1 rejected, 0 later"
    tab.get_by_role("button", name="Page 2").press("Enter")
    tab.wait_for_url("**page=2")
    press("A")
    assert tab.inner_text("#tally") == "22 accepted, 1 rejected, 0 later"
    assert len(pressed) <= 3 * UNITS
    tab.click("text=Apply")
    assert "22 accepted, 1 rejected" in tab.inner_text(".done") and waiting(words) == 0
    place, thing, _ = note_of(9)
    tab.goto(f"{root}search?q=who signs for the {thing} at the {place}")
    assert place in tab.locator("#results article").first.inner_text()


@pytest.mark.proves("WEB-BROWSER")
def test_search_answers_as_one_types_and_loses_no_key(tab):
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
def test_everything_works_without_javascript(browser, address, words):
    with watched(browser, address, java_script_enabled=False) as tab:
        root = tab.url
        tab.goto(root + "review")
        tab.locator("label:has(input[value=accept])").first.click()
        tab.click("text=Apply")
        assert "1 accepted" in tab.inner_text(".done")
        tab.goto(f"{root}search?q=signs")
        assert "Sign for" in tab.inner_text("#results")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.proves("WEB-BROWSER")
def test_axe_finds_nothing_and_nothing_scrolls_sideways(started, name, address, scheme):
    source = Path(pytest.importorskip("axe_playwright_python").__file__).parent / "axe.min.js"
    options = {} if name == "firefox" else {"color_scheme": scheme}
    found: dict[str, list[tuple[str, str]]] = {}
    preferences = {"ui.systemUsesDarkTheme": int(scheme == "dark")}
    with launched(started, name, **preferences) as browser, watched(browser, address, said=("404",), **options) as tab:
        assert tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
        look_at_every_page(tab, source.read_text(), found)
    assert not {path: problems for path, problems in found.items() if problems}


def look_at_every_page(tab: Any, axe: str, found: dict[str, list[tuple[str, str]]]) -> None:
    root, unit = tab.url, "brain:pattern/retry-with-idempotency"
    pages = ("", "review", "search?q=cache", f"unit/{unit}", "graph", f"graph?focus={unit}", "activity",
             f"session/{SESSION}", "why", "nothing")  # fmt: skip
    for path, width in itertools.product(pages, (1280, 640, 390)):  # 640 is what 200 % leaves of 1280
        tab.set_viewport_size({"width": width, "height": 800})
        tab.goto(root + path)
        tab.evaluate(axe)
        result = tab.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        found[f"{path} {width}"] = [(one["id"], one["nodes"][0]["html"][:200]) for one in result["violations"]]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert tab.evaluate(SHIFTS) == 0, path
