"""`rolecall init`: what it writes works, and nothing is overwritten."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.cli import run
from rolecall.cli.up.agents_file import read_agents_file
from rolecall.cli.up.init import FILES
from tests.helpers.processes import environment


def test_it_writes_a_worker_its_test_and_the_file_of_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my agents" / "first"
    assert run(["init", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["agents.toml", "pytest.ini", "shouter.py", "test_shouter.py"]
    assert read_agents_file(folder).workers["shouter"].run == "shouter:worker"
    out, err = capsys.readouterr()
    up, send = (shlex.split(line) for line in out.splitlines())
    assert up[-2:] == ["up", str(folder)]
    assert send[-3:] == ["send", "shouter", "any agent, any framework"]
    assert "shouter.py, test_shouter.py, pytest.ini and agents.toml" in err


def test_without_a_folder_it_writes_into_this_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init"]) == 0
    assert (Path.cwd() / "agents.toml").is_file()
    assert capsys.readouterr().out.splitlines()[0].endswith(" up")


OUTER = """
[tool.pytest.ini_options]
addopts = ["--strict-config", "--no-such-option"]
of_another_plugin = 5
"""


@pytest.mark.parametrize("plugins", [["-p", "no:asyncio"], ["-p", "asyncio"]])
def test_the_test_that_it_writes_passes_in_any_project_with_and_without_plugins(tmp_path: Path, plugins: list[str]) -> None:
    (tmp_path / "pyproject.toml").write_text(OUTER)
    (tmp_path / "conftest.py").write_text("raise RuntimeError")
    folder = tmp_path / "agents"
    assert run(["init", str(folder)]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins]
    done = subprocess.run(command, cwd=folder, env=environment({}), capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


@pytest.mark.parametrize("name", FILES)
def test_it_overwrites_nothing_and_then_writes_nothing(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("mine")
    assert run(["init", str(tmp_path)]) == 2
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]
    assert f"error: {name} of {tmp_path} would be overwritten [FILE_EXISTS]" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["init", str(tmp_path / "file" / "below")]) == 1
    assert "cannot be written: Not a directory [CANNOT_WRITE]" in capsys.readouterr().err
