"""What runs, with which words and which environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rolecall.cli.console.programs import Program
from rolecall.cli.up.agents_file import read_agents_file
from rolecall.cli.up.programs_of import names_of, programs_of

ACCESS = {"ROLECALL_HUB": "http://127.0.0.1:1", "ROLECALL_TOKEN": "secret"}


def programs(folder: Path, text: str, console: str = "") -> list[Program]:
    (folder / "agents.toml").write_text(text)
    file = read_agents_file(folder)
    found = programs_of(file, ACCESS, console)
    assert [program.name for program in found] == names_of(file, console)
    return found


TWO = '[workers.shouter]\nrun = "shouter:worker"\ninstances = 2\n[workers.planner]\ncommand = ["node", "planner.js"]\n'


def test_a_worker_runs_by_worker_run_under_a_name_that_is_the_same_at_each_start(tmp_path: Path) -> None:
    one, two, single = programs(tmp_path, TWO)
    assert [one.name, two.name, single.name] == ["shouter:1", "shouter:2", "planner:1"]
    assert one.argv == (
        *(sys.executable, "-P", "-m", "rolecall.cli", "worker", "run", "shouter:worker"),
        *("--instance", "shouter:1"),
    )
    assert [program.env["ROLECALL_INSTANCE"] for program in (one, two, single)] == ["shouter:1", "shouter:2", "planner:1"]
    assert (one.cwd, one.enrols) == (tmp_path, True)
    assert 3 in one.final
    assert programs(tmp_path, TWO) == [one, two, single]


def test_at_a_hub_that_others_share_the_console_is_in_the_names(tmp_path: Path) -> None:
    text = f'{TWO}env = {{ROLECALL_INSTANCE = "mine"}}\n[announce.coder]\nurl = "http://h:9"\n'
    found = [program.name for program in programs(tmp_path, text, "k7p2")]
    assert found == ["shouter:k7p2:1", "shouter:k7p2:2", "planner:mine", "coder:k7p2:announced"]


def test_a_worker_is_known_by_its_name_whether_or_not_that_begins_with_its_role(tmp_path: Path) -> None:
    text = '[workers.parrot]\nrun = "demo:echo"\n[announce.coder]\nurl = "http://h:9"\nrole = "coder-2"\n'
    echo, coder = programs(tmp_path, text)
    found = (
        "parrot:1",
        "echo:parrot:1",
        "parrot:11",
        "echo:1",
        "coder-2:coder:announced",
        "coder:announced",
        "x:coder:announced",
    )
    assert [name for name in found if echo.is_worker(name)] == ["parrot:1", "echo:parrot:1"]
    assert [name for name in found if coder.is_worker(name)] == ["coder-2:coder:announced"]


def test_programs_that_are_the_same_are_equal_and_any_change_of_an_entry_makes_another(tmp_path: Path) -> None:
    for change in ('watch = ["a"]', "drain = 1", 'env = {A = "1"}', 'restart = "never"'):
        before = programs(tmp_path, '[workers.a]\nrun = "a"\n[workers.b]\nrun = "b"\n')
        after = programs(tmp_path, f'[workers.a]\nrun = "a"\n{change}\n[workers.b]\nrun = "b"\n')
        assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_a_command_runs_as_it_stands_and_may_or_may_not_enrol(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (program,) = programs(tmp_path, '[workers.planner]\ncommand = ["node", "planner.js"]\ncwd = "js"\nrestart = "never"\n')
    assert (program.argv, program.cwd, program.enrols, program.final) == (("node", "planner.js"), tmp_path / "js", False, {})


def test_a_worker_gets_the_hub_and_the_shell_but_nothing_of_a_hub_or_of_another_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PORT", "ROLECALL_ADMIN_TOKEN", "ROLECALL_PORT", "ROLECALL_INSTANCE", "A2A_AGENT_URL"):
        monkeypatch.setenv(name, "9")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    text = '[workers.a]\nrun = "a"\nenv = {MODEL = "small", ROLECALL_INSTANCE = "mine"}\n'
    (program,) = programs(tmp_path, text)
    env = program.env
    assert (env["OPENAI_API_KEY"], env["MODEL"], env["PYTHONUNBUFFERED"]) == ("key", "small", "1")
    assert {name for name in env if name.startswith(("ROLECALL_", "A2A_")) or name == "PORT"} == {
        "ROLECALL_HUB",
        "ROLECALL_TOKEN",
        "ROLECALL_INSTANCE",
        "ROLECALL_LOG_FORMAT",
    }
    assert (env["ROLECALL_HUB"], env["ROLECALL_TOKEN"]) == ("http://127.0.0.1:1", "secret")
    assert env["ROLECALL_INSTANCE"] == program.instance == "mine"


def test_an_announced_server_is_held_by_announce_and_waited_for_without_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    text = '[announce.planner]\nurl = "http://127.0.0.1:9/"\ncapacity = 2\nagent_token_file = "token"\nrole = "planner-2"\n'
    (program,) = programs(tmp_path, text)
    words = program.argv[program.argv.index("announce") :]
    assert words[:3] == ("announce", "planner-2", "http://127.0.0.1:9")
    assert words[5:] == ("--wait", "inf", "--capacity", "2", "--agent-token-file", str(tmp_path / "token"))
    assert words[3:5] == ("--instance", program.name)
    assert (program.name, program.role, program.enrols) == ("planner:announced", "planner-2", False)


def test_the_files_of_a_worker_are_found_by_its_module(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "shouter.py").write_text("")
    for target in ("agents.shouter:worker", "agents/shouter.py:worker", "agents.shouter"):
        (program,) = programs(tmp_path, f'[workers.a]\nrun = "{target}"\n')
        assert list(program.sources()) == [tmp_path / "agents" / "shouter.py"]
