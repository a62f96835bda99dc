"""The stage of the fault laboratory, made once for each file of tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from forking import Commands
from laboratory import Stage


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    running = Commands()
    yield running
    running.close()


@pytest.fixture(scope="module")
def built(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    stage = Stage(folder=tmp_path_factory.mktemp("faults") / "stage", commands=commands)
    stage.folder.mkdir()
    stage.build()
    stage.keep()
    stage.template.rename(stage.template.with_name("original"))
    return stage


@pytest.fixture
def stage(built: Stage) -> Stage:
    shutil.rmtree(built.template, ignore_errors=True)
    shutil.copytree(built.template.with_name("original"), built.template, symlinks=True)
    built.reset()
    return built
