"""What `rolecall up` and `rolecall dev` make of their options."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolecall.cli import run
from rolecall.cli.console import session
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.session import Options, Programs
from tests.helpers.processes import free_port


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    monkeypatch.setenv("ROLECALL_PORT", str(free_port()))
    seen: list[Options] = []

    def run_session(hub: ChosenHub, programs: Programs, options: Options) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(session, "run_session", run_session)
    monkeypatch.setattr("rolecall.cli.server.dev.run_session", run_session)
    return seen


@pytest.mark.parametrize(
    ("entry", "words", "logs"),
    [
        ("", [], True),
        ("", ["--no-logs"], False),
        ("[console]\nlogs = false\n", [], False),
        ("[console]\nlogs = false\n", ["--logs"], True),
    ],
)
def test_an_option_comes_before_the_file_and_without_both_the_hub_is_watched(
    tmp_path: Path, started: list[Options], entry: str, words: list[str], logs: bool
) -> None:
    (tmp_path / "agents.toml").write_text(f'{entry}[workers.a]\nrun = "a:worker"\n')
    assert run(["up", *words]) == 0
    assert [options.logs for options in started] == [logs]


@pytest.mark.parametrize(("words", "logs"), [([], True), (["--no-logs"], False)])
def test_dev_takes_the_same_option(started: list[Options], words: list[str], logs: bool) -> None:
    assert run(["dev", *words]) == 0
    assert [options.logs for options in started] == [logs]
