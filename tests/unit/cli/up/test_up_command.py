"""What `rolecall up` and `rolecall dev` make of their options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rolecall.cli import run
from rolecall.cli.console import session
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.session import Options, Programs
from tests.helpers.processes import free_port
from tests.unit.cli.scripted_hub import Response, ScriptedHub


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Options]:
    monkeypatch.setenv("ROLECALL_PORT", str(free_port()))
    monkeypatch.setenv("ROLECALL_DATA_DIR", str(tmp_path / "data"))
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


def test_its_workers_have_no_more_than_a_number_at_a_hub_of_its_own_and_else_the_name_of_the_console(
    tmp_path: Path, started: list[Options], monkeypatch: pytest.MonkeyPatch, hub: ScriptedHub
) -> None:
    (tmp_path / "agents.toml").write_text('[workers.a]\nrun = "a:worker"\n')
    monkeypatch.delenv("ROLECALL_HUB")
    assert run(["up"]) == run(["up", "--name", "blue"]) == 0
    hub.on("GET /health", Response({"uptime_seconds": 1.0, "checks": {}}))
    hub.on("GET /registry/me", Response({"rights": ["enrol"]}))
    for _ in range(2):
        assert run(["up", "--hub", hub.url]) == 0
    own, named, *shared = (options.names for options in started)
    assert (own, named, shared[0] == shared[1]) == (["a:1"], ["a:blue:1"], True)
    assert re.fullmatch(r"a:\w{4}:1", shared[0][0])


def test_a_name_that_no_worker_can_have_is_refused(
    started: list[Options], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agents.toml").write_text('[workers.a]\nrun = "a:worker"\n')
    for name in ("", "a:b", "a b", "-", "x" * 33):
        assert run(["up", "--name", name]) == 2
        assert "at most 32 letters" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(("words", "logs"), [([], True), (["--no-logs"], False)])
def test_dev_takes_the_same_option(started: list[Options], words: list[str], logs: bool) -> None:
    assert run(["dev", *words]) == 0
    assert [options.logs for options in started] == [logs]
