"""What people see of settings that are wrong or right: golden/*.txt, each a list of cases as in a terminal.

A case is the lines of its files (`rolecall.toml: port = 1`, in Latin-1), a command with its environment, and what it prints.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from hub.settings.model import SPECS
from rolecall.cli import run

GOLDEN = Path(__file__).with_name("golden")


class Case(NamedTuple):
    name: str
    files: dict[str, str]
    words: list[str]
    output: str


def cases(name: str) -> list[Case]:
    return [_case(*text.split("\n$ ", 1)) for text in (GOLDEN / name).read_text("utf-8").split("== ")[1:]]


def _case(setup: str, terminal: str) -> Case:
    name, *lines = setup.splitlines()
    files: dict[str, str] = {}
    for line in lines:
        file, _, content = line.partition(":")
        files[file] = files.get(file, "") + content.removeprefix(" ") + "\n"
    command, _, output = terminal.partition("\n")
    return Case(name, files, shlex.split(command), _narrow(output.strip()))


def _narrow(table: str) -> str:
    """Two spaces between columns: how wide they are depends on the longest name of all settings."""
    return re.sub(" {2,}", "  ", table)


def case_id(case: Case) -> str:
    return case.name


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder and an environment without settings."""
    for name in [name for name in os.environ if name.startswith(("ROLECALL_", "A2A_", "PUSH_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.chdir(tmp_path)


def terminal(case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what is printed, except for settings at their default."""
    for file, content in case.files.items():
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_bytes(content.encode("latin-1"))
    start = case.words.index("rolecall")
    for word in case.words[:start]:
        monkeypatch.setenv(*word.split("=", 1))
    code = run(case.words[start + 1 :])
    lines = [line.rstrip() for line in "".join(capsys.readouterr()).splitlines()]
    shown = "\n".join(line for line in lines if not line.endswith("  default"))
    return code, _narrow(shown).replace(f"of {len(SPECS)} settings", "of all settings")


@pytest.mark.parametrize("case", cases("wrong.txt"), ids=case_id)
def test_wrong_settings_are_explained(case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = terminal(case, monkeypatch, capsys)
    assert shown == case.output
    assert code == 2
    assert "SECRET" not in shown.replace("ROLECALL_SECRET_KEY", "").replace("ROLECALL_WEBHOOK_SECRET", "")


@pytest.mark.parametrize("case", cases("right.txt"), ids=case_id)
def test_right_settings_are_shown(case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert terminal(case, monkeypatch, capsys) == (0, case.output)
