"""The documentation cannot rot: console blocks run, reference parts are what the code says, links lead somewhere."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Nugget, Result
from paths import REPOSITORY
from typer.main import get_command

import nugget
from nugget import config, errors
from nugget.cli import app
from nugget.models import KnowledgeType, RelationType
from nugget.retrieval.candidates import PROFILES

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")
ANYTHING = "…"


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def examples(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command of a page's console blocks with the lines that it is said to print."""
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *printed = example.rstrip("\n").split("\n")
            yield command, printed


def is_said(printed: list[str], output: list[str]) -> bool:
    """Whether the output is what the page shows; a line or an end of a line `…` stands for anything."""
    pattern = "\n".join(re.escape(line).replace(ANYTHING, ".*") for line in printed)
    pattern = re.sub(r"^\.\*$", r"(?s:.*)", pattern, flags=re.MULTILINE)
    return re.fullmatch(pattern, "\n".join(output)) is not None


@pytest.fixture
def shell(command: Path) -> dict[str, str]:
    """An environment in which `nugget` is the code under test."""
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}


@pytest.mark.proves("HOUSE-DOCS-RUN")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if CONSOLE.search(page.read_text("utf-8"))], ids=lambda page: page.name
)
def test_every_console_block_does_what_it_says(page, shell, nugget, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    for command, printed in examples(page):
        code, shown, complaint = done(command, shell, nugget)
        assert code == 0, f"$ {command}\n{shown}{complaint}"
        assert not printed or is_said(printed, shown.rstrip("\n").split("\n")), f"$ {command}\n{shown}"


def done(command: str, shell: dict[str, str], nugget: Nugget) -> Result:
    """What a command prints: one of ours alone is run here, which spares a start; all else is bash's."""
    if not (found := re.fullmatch(r"(?:cd (\S+) && )?(?:(NUGGET_\w+)=(\S+) )?nugget ([^|&;<>`()]*)", command)):
        ran = subprocess.run(["bash", "-c", command], env=shell, capture_output=True, text=True)
        return Result(ran.returncode, ran.stdout, ran.stderr)
    with pytest.MonkeyPatch.context() as patch:
        if found[1]:
            patch.chdir(Path(found[1]).expanduser())
        if found[2]:
            patch.setenv(found[2], found[3])
        words = map(os.path.expandvars, shlex.split(found[4]))
        return nugget(*(Path(word).expanduser() if word.startswith("~") else word for word in words))


@pytest.mark.proves("HOUSE-DOCS-COMMANDS")
def test_every_command_that_a_page_names_exists_with_the_options_that_it_shows():
    root = get_command(app)
    named = [(page, command) for page in PAGES for command in commands_named(page.read_text("utf-8"))]
    wrong = [(page.name, command, reason) for page, command in named if (reason := what_is_wrong(root, command))]
    assert len(named) > 100 and wrong == []


def commands_named(text: str) -> Iterator[str]:
    """The `nugget …` command lines in code spans and in shell blocks."""
    blocks = re.findall(r"^```(?:sh|bash|console|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").split("\n")]
    spans = re.findall(r"`(nugget [a-z][^`\n]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    found = (re.match(r"(?:\$ |docker compose run --rm nugget )?(nugget [a-z].*)", one) for one in [*lines, *spans])
    yield from (one[1] for one in found if one)


def what_is_wrong(root: Any, command: str) -> str | None:
    """Why a command line is not one of ours; None where its command and its options exist."""
    line = re.split(r"\s(?:#|\||>|&&|;|<)(?=\s|$)|\s(?=\|)|\[", command.replace("…", ""))[0]
    here, words = root, shlex.split(line, comments=True)[1:]
    while words and words[0] in (inner := dict(commands_of(here))):
        here = inner[words.pop(0)]
    if here is root or (words and words[0].isalpha() and [*commands_of(here)]):
        return "no such command"
    known = {name for entry in [*root.params, *here.params] for name in (*entry.opts, *entry.secondary_opts)}
    options = {word.split("=")[0] for word in words if word.startswith("-") and len(word) > 1}
    return f"no option {unknown[0]}" if (unknown := sorted(options - known - {"--help"})) else None


@pytest.mark.proves("TEAM-DEPLOY")
def test_the_files_for_deploying_name_commands_paths_settings_and_ports_that_exist():
    image, unit = text_of("docs/deploy/Dockerfile"), text_of("docs/deploy/nugget.service")
    service = yaml.safe_load(text_of("docs/deploy/compose.yaml"))["services"]["nugget"]
    started = " ".join(json.loads(image.rpartition("CMD ")[2])), unit.partition("/bin/")[2].split("\n")[0]
    assert [what_is_wrong(get_command(app), command) for command in started] == [None, None]
    ports = re.findall(r"(?:EXPOSE |:)(\d{4,})", " ".join([image, *started, *service["ports"]]))
    assert set(ports) == {"5033"} and "/healthz" in image
    assert (REPOSITORY / "docs/deploy" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    documented = {"NUGGET_" + key.replace(".", "_").upper() for key in config.documented_keys()} | {"PGPASSWORD"}
    documented |= set(re.findall(r"`([A-Z_]+)`", text_of("docs/configuration.md")))
    assert {*service["environment"], *re.findall(r"^(?:ENV |Environment=)(\w+)", image + unit, re.M)} <= documented
    built = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert re.findall(r"^!(.*)$", text_of(".dockerignore"), re.M) == [*built, "pyproject.toml"]


@pytest.mark.proves("API-LINES")
def test_the_lines_of_the_python_page_run(brain, monkeypatch):
    monkeypatch.setenv("NUGGET_BRAIN", str(brain))
    (block,) = re.findall(r"^```python\n(.*?)^```$", text_of("docs/api.md"), re.MULTILINE | re.DOTALL)
    told: dict[str, Any] = {}
    exec(block, told)
    assert [name for name in nugget.__all__ if not hasattr(nugget, name)] == []
    assert told["bundle"].hits[0].ref == told["whole"].ref and told["found"].hits and told["related"].hits
    assert told["written"].answer is None and told["result"].unchanged
    assert {hit.unit.type for hit in told["strict"].hits} <= {"pattern", "bug"}


@pytest.mark.proves("HOUSE-DOCS-GENERATED", "HOUSE-MANUAL")
@pytest.mark.parametrize("script", ["reference", "manual"])
def test_the_reference_parts_are_what_the_code_says(script, monkeypatch, capsys):
    monkeypatch.syspath_prepend(REPOSITORY / "scripts")
    assert import_module(script).main(check=True) == 0, capsys.readouterr().out


@pytest.mark.proves("HOUSE-DOCS-COMPLETE")
def test_every_command_option_key_error_and_profile_is_documented():
    cli, configuration = text_of("docs/cli.md"), text_of("docs/configuration.md")
    missing = [path for path in command_paths(get_command(app), "nugget") if f"## `{path}`" not in cli]
    missing += [option for option in options_of(get_command(app)) if not re.search(rf"{option}\b", cli)]
    missing += [key for key in config.documented_keys() if f"`{key}`" not in configuration]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.NuggetError)]
    missing += [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in cli]
    missing += [name for name in PROFILES if f"| `{name}` |" not in configuration]
    files = text_of("docs/knowledge-files.md")
    missing += [name for name in [*KnowledgeType, *RelationType] if f"`{name}`" not in files]
    assert missing == []


def command_paths(command: object, path: str) -> Iterator[str]:
    yield path
    for name, inner in commands_of(command):
        if not inner.hidden:
            yield from command_paths(inner, f"{path} {name}")


def options_of(command: object) -> Iterator[str]:
    for entry in (one for one in getattr(command, "params", []) if not getattr(one, "hidden", False)):
        yield from (name for name in (*entry.opts, *entry.secondary_opts) if name.startswith("--"))
    for _, inner in commands_of(command):
        yield from options_of(inner)


def commands_of(group: Any) -> Iterator[tuple[str, Any]]:
    """The commands of a group, which are loaded when they are looked up."""
    for name in getattr(group, "commands", {}):
        yield name, group.get_command(None, name)


@pytest.mark.proves("HOUSE-DOCS-COMPLETE")
def test_every_environment_variable_that_is_read_is_documented():
    source = text_of("nugget/config.py") + text_of("nugget/infra/embedding/other_models.py")
    read = set(re.findall(r'"((?:NUGGET|ANTHROPIC|OPENAI|VOYAGE|CLAUDE|GITHUB|AISH)_[A-Z_]*[A-Z])"', source))
    assert {"NUGGET_HOME", "NUGGET_BRAIN"} <= read
    documented = text_of("docs/configuration.md")
    assert {name for name in read - {"ANTHROPIC_AUTH_TOKEN"} if f"`{name}`" not in documented} == set()


@pytest.mark.proves("HOUSE-DOCS-COMPLETE")
def test_links_between_pages_lead_somewhere():
    dead = [
        f"{page.relative_to(REPOSITORY)}: {target}{anchor}"
        for page in PAGES
        for target, anchor in LINK.findall(page.read_text("utf-8"))
        if not (there := page.parent / target if target else page).exists()
        or (anchor and anchor[1:] not in anchors(there))
    ]
    assert dead == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs write them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.proves("HOUSE-RELEASE")
def test_the_changelog_begins_with_this_version_and_stays_short():
    _, *versions = re.split(r"^## \[", text_of("CHANGELOG.md"), flags=re.MULTILINE)
    assert versions[0].startswith(f"{nugget.__version__}]")
    assert f'"version": "{nugget.__version__}"' in text_of("plugin/.claude-plugin/plugin.json")
    assert [len([line for line in one.split("\n") if line.strip()]) <= 40 for one in versions] == [True] * len(versions)


@pytest.mark.proves("HOUSE-SITE")
def test_the_site_holds_every_page_and_each_link_stays_in_it():
    pages, settings = [page for page in PAGES if "docs" in page.parts], text_of("mkdocs.yml")
    inside = REPOSITORY / "docs"
    missing = [name for page in pages if (name := page.relative_to(inside).as_posix()) not in settings]
    assert [name for name in missing if not name.startswith("decisions/0")] == []
    links = ((page, target) for page in pages for target, _ in LINK.findall(page.read_text("utf-8")) if target)
    assert [link for link in links if not (link[0].parent / link[1]).resolve().is_relative_to(inside)] == []
    assert "strict" in text_of("Makefile")
