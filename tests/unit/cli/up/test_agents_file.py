"""agents.toml: what it can say, and what people read when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolecall.cli.console.restart_policy import Restart
from rolecall.cli.output import CommandError
from rolecall.cli.up.agents_file import AgentsFile, read_agents_file, tables
from rolecall.errors import ConfigError
from tests.helpers.pages import blocks_of


def read(folder: Path, text: str) -> AgentsFile:
    path = folder / "agents.toml"
    path.write_text(text)
    return read_agents_file(path)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read(folder, text)
    return [problem.removeprefix(f"{folder}/") for problem in refused.value.problems]


def test_the_shortest_file_has_one_worker_and_no_hub(tmp_path: Path) -> None:
    file = read(tmp_path, '[workers.shouter]\nrun = "shouter:worker"\n')
    worker = file.workers["shouter"]
    assert (worker.run, worker.instances, worker.restart, worker.drain) == ("shouter:worker", 1, Restart.ALWAYS, 45.0)
    assert (file.hub, file.logs, file.announced, file.folder) == (None, True, {}, tmp_path)


def test_the_entries_of_the_page_are_read(tmp_path: Path) -> None:
    page = blocks_of("docs/howto/ten-agents-on-a-laptop.md")
    file = read(tmp_path, page["announced"] + page["quiet"] + page["other-hub"])
    assert (file.workers["planner"].command, file.announced["planner"].url) == (("node", "planner.js"), "http://127.0.0.1:9000")
    assert (file.logs, file.hub) == (False, "https://hub.example.com")


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "token").write_text("secret")
    file = read(
        tmp_path,
        """
        [hub]
        url = "https://hub.example.com"

        [console]
        logs = false

        [workers.planner]
        command = ["node", "planner.js"]
        instances = 3
        env = {MODEL = "small", LIMIT = 5}
        cwd = "js"
        restart = "on-failure"
        watch = ["prompts/*.md"]
        drain = "2m"

        [announce.coder]
        url = "http://127.0.0.1:9000"
        role = "coder-2"
        capacity = 4
        agent_token_file = "token"
        """,
    )
    planner, coder = file.workers["planner"], file.announced["coder"]
    assert (file.hub, file.logs) == ("https://hub.example.com", False)
    assert (planner.command, planner.instances, planner.cwd) == (("node", "planner.js"), 3, "js")
    assert (planner.env, planner.restart) == ({"MODEL": "small", "LIMIT": "5"}, Restart.ON_FAILURE)
    assert (planner.watch, planner.drain) == (("prompts/*.md",), 120.0)
    assert (coder.url, coder.role, coder.capacity) == ("http://127.0.0.1:9000", "coder-2", 4)


def test_a_folder_stands_for_the_file_in_it(tmp_path: Path) -> None:
    read(tmp_path, '[workers.a]\nrun = "a"\n')
    assert read_agents_file(tmp_path).path == tmp_path / "agents.toml"


def test_without_a_file_it_is_said_how_to_get_one(tmp_path: Path) -> None:
    for missing in (tmp_path, tmp_path / "other.toml"):
        with pytest.raises(CommandError, match=r"there is no .*toml") as refused:
            read_agents_file(missing)
        assert (refused.value.code, "rolecall init" in refused.value.hint) == (2, True)


RUN = 'run = "a:worker"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[worker.a]\n" + RUN, 'agents.toml:1: unknown key "worker". Did you mean "workers"?'),
        ("x = 1\n", 'agents.toml:1: unknown key "x". Its tables are [hub], [console], [workers.NAME] and [announce.NAME].'),
        (
            '[[agents]]\nrole = "a"\n',
            'agents.toml:1: unknown key "agents". [[agents]] belongs into rolecall.toml, where the hub reads it. '
            "Here it is [announce.NAME].",
        ),
        (
            "[hub]\nport = 1\n[workers.a]\n" + RUN,
            'agents.toml:2: unknown key "port" of [hub]. Its keys are url. The hub\'s settings stand in rolecall.toml.',
        ),
        (
            "\n[workers.a]\n" + RUN + "instnaces = 2\n",
            'agents.toml:4: unknown key "instnaces" of [workers.a]. Did you mean "instances"?',
        ),
        (
            "[workers.a]\n" + RUN + "[workers.b]\n" + RUN + "restart = 'sometimes'\n",
            "agents.toml:5: restart: must be always, on-failure or never, not 'sometimes'",
        ),
        ("[console]\nlogs = 'some'\n[workers.a]\n" + RUN, "agents.toml:2: logs: must be true or false, not 'some'"),
        ("[workers.a]\n", "agents.toml:1: it needs run or command."),
        ("[workers.a]\n" + RUN + 'command = ["x"]\n', "agents.toml:1: it has both run and command: keep one."),
        (
            '[workers.a]\ncommand = "node agent.js"\n',
            'agents.toml:2: command: must be a list of words, such as ["node", "agent.js"]',
        ),
        (
            "[workers.a]\ncommand = []\n",
            'agents.toml:2: command: must be a list of words, such as ["node", "agent.js"], not []',
        ),
        (
            '[workers.a]\nrun = "a worker"\n',
            "agents.toml:2: run: must be module:worker, such as shouter:worker, not 'a worker'",
        ),
        ("[workers.a]\n" + RUN + "instances = 0\n", "agents.toml:3: instances: must be a whole number from 1 to 100, not 0"),
        (
            "[workers.a]\n" + RUN + "instances = true\n",
            "agents.toml:3: instances: must be a whole number from 1 to 100, not True",
        ),
        (
            "[workers.a]\n" + RUN + 'env = {A = [1], KEY = "secret"}\n',
            'agents.toml:3: env: must be a table of texts or numbers, such as {MODEL = "small"}',
        ),
        (
            "[workers.a]\n" + RUN + 'instances = 2\nenv = {PORT = "9000"}\n',
            "agents.toml:1: env: PORT would be the same for 2 instances.",
        ),
        (
            "[workers.a]\n" + RUN + "drain = 'soon'\n",
            "agents.toml:3: drain: must be 0 to 86400 seconds (also 90s, 5m), not 'soon'",
        ),
        ("workers = 3\n", "agents.toml:1: workers must be written as [workers.NAME], once for each."),
        ("[workers]\n" + RUN, "agents.toml:1: workers must be written as [workers.NAME], once for each."),
        (
            '[workers."a b"]\n' + RUN,
            'agents.toml:1: "a b" is not a name: at most 32 letters, digits, dots, dashes.',
        ),
        ("[announce.a]\n", "agents.toml:1: url: is missing."),
        (
            '[announce.a]\nurl = "localhost:9"\n',
            "agents.toml:2: url: must be an http or https URL such as https://hub.example.com, not 'localhost:9'",
        ),
        (
            '[announce.Coder]\nurl = "http://h:9"\n',
            "agents.toml:1: Coder is not a role (lowercase letters, digits, . _ -; not a reserved word). Add the key role.",
        ),
        ("", "agents.toml: it names no worker. Add [workers.NAME] or [announce.NAME]."),
        ("[workers.a\n", "agents.toml:1: not valid TOML: expected ']' at the end of a table declaration, in column 11."),
        (
            "[workers.a]\n" + RUN + "env = {\n",
            "agents.toml:3: not valid TOML: invalid initial character for a key part, in column 8.",
        ),
        ('[workers.a]\nrun = "a', "agents.toml:2: not valid TOML: unterminated string, at the end of the file."),
        (
            '[announce.a]\nurl = "http://h:9"\n[workers.b]\n' + RUN + "url = 2\n",
            'agents.toml:5: unknown key "url" of [workers.b]. Its keys are run, command, instances, env, cwd, restart, watch, '
            "drain.",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text) == [expected]


def test_paths_that_are_not_there_are_named(tmp_path: Path) -> None:
    found = problems(
        tmp_path, '[workers.a]\nrun = "a"\ncwd = "gone"\n[announce.b]\nurl = "http://h:9"\nagent_token_file = "none"\n'
    )
    assert found == [
        f"agents.toml:1: cwd: {tmp_path}/gone is not a folder.",
        f"agents.toml:4: agent_token_file: there is no {tmp_path}/none.",
    ]


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    text = "[worker.x]\n[hub]\nport = 1\n[workers.a]\n[announce.b]\n"
    assert len(problems(tmp_path, text)) == 4


def test_every_key_has_a_text_for_the_reference() -> None:
    for _, keys in tables():
        assert all(key.about and key.expected for key in keys)
