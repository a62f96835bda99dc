"""The command line as a whole: help, wrong usage, the brain in use, settings, odd terminals and inputs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_stage import write_unit
from commands import Nugget


@pytest.mark.proves("CLI-COMMANDS")
def test_help_lists_every_command_with_what_it_does(nugget: Nugget) -> None:
    shown = nugget("--help")
    assert shown.code == 0
    for command in ("ask search get serve capture-session capture review add forget mv lint init install uninstall "
                    "sync rebuild eval queries status doctor").split():  # fmt: skip
        assert re.search(rf"^  {command} +[A-Z]\w+", shown.out, re.MULTILINE), command
        own = nugget(command, "--help")
        assert own.code == 0 and f"Usage: nugget {command}" in own.out


@pytest.mark.proves("CLI-EXIT", "CLI-ERRORS")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["aks", "x"], "Error: No such command 'aks'. Did you mean 'ask'?\n`nugget --help` shows how it is used.\n"),
        (["ask", "x", "--depth", "abyss"], "Error: Invalid value for '--depth'"),
        (["ask", "x", "--limit", "0"], "Error: limit must be at least 1, not 0.\n"),
        (["ask", "x", "--type", "patern"], "Error: There is no type 'patern'.\nTypes are: pattern, concept,"),
        (["ask", "x", "--since", "yesterday"], "Error: 'yesterday' is not a date.\nWrite YYYY-MM-DD, or an age such"),
        (["search", "x", "--source", "elsewhere"], "Sources are: brain, canon,"),
        (["get", "mars:rover"], "Error: There is no source 'mars'.\n"),
        (["mv", "pattern/x"], "Error: Say where to: --domain, --name, or both.\n"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], said: str
) -> None:
    shown = nugget(*line)
    assert (shown.code, shown.out) == (2, "")
    assert said in shown.err and shown.err.startswith("Error: ")


@pytest.mark.proves("CLI-BRAIN")
def test_the_brain_is_that_of_the_flag_the_variable_the_folder_or_the_default(
    nugget: Nugget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUGGET_EMBEDDING_MODEL", "none")
    for name in ("usual", "named", "flagged"):
        assert nugget("init", tmp_path / name).code == 0
    assert nugget("init", tmp_path / "usual").code == 0

    def in_use(*flags: str | Path) -> str:
        return Path(nugget(*flags, "status", "--json").json["brain"]).name

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert in_use() == "usual"
    monkeypatch.chdir(tmp_path / "flagged" / "evals")
    assert in_use() == "flagged"
    monkeypatch.setenv("NUGGET_BRAIN", str(tmp_path / "named"))
    assert in_use() == "named"
    assert in_use("--brain", tmp_path / "flagged") == "flagged"
    assert nugget("--brain", elsewhere, "status").code == 1


@pytest.mark.proves("CLI-HOSTILE", "CLI-PLAIN")
def test_what_a_brain_holds_cannot_steer_the_terminal(
    nugget: Nugget, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steering = "\x1b]0;owned\x07\x1b[2J \u202eevil\x9b1m"
    body = f"# Zebra [red]title[/red]\n\nquagga {steering} [bold]markup[/bold] :warning:"
    write_unit(words, "pattern/zebra", body, tags='["quagga \\e[31m"]')
    for command in (["ask", "--no-llm", "quagga"], ["search", "quagga"], ["get", "pattern/zebra"]):
        shown = nugget(*command)
        assert shown.code == 0
        assert "Zebra [red]title[/red]" in shown.out and "[bold]markup[/bold] :warning:" in shown.out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown.out + shown.err)


@pytest.mark.proves("CLI-ERRORS")
@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("retrieval: {limit: 0}", "`retrieval.limit` must be greater than or equal to 1, not '0'"),
        ("llm: yes", "`llm` must be a section with its keys below it"),
        ("redaction: {allow: ['(']}", "`redaction.allow` must be a list of regular expressions ('(': "),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_with_file_line_and_key(
    nugget: Nugget, words: Path, home: Path, monkeypatch: pytest.MonkeyPatch, yaml: str, said: str
) -> None:
    monkeypatch.delenv("NUGGET_EMBEDDING_MODEL")
    home.mkdir()
    (home / "config.yaml").write_text(f"{yaml}\n")
    for line in (("search", "x"), ("doctor",), ("add", "x"), ("lint",)):
        shown = nugget(*line)
        assert (shown.code, shown.out) == (2, "")
        assert shown.err.startswith(f"Error: {home}/config.yaml:1: {said}")
