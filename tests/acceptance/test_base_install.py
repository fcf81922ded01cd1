"""`pip install rolecall`, without an extra: workers, clients and commands run from the wheel and what it requires alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.helpers.environments import Environment, build_wheel
from tests.helpers.processes import HubProcess, Process, is_live, start_hub

OF_A_HUB = ("aiosqlite", "cryptography", "httptools", "prometheus_client", "pydantic_settings", "quart", "uvloop")
WORKER = """
from rolecall import Worker

worker = Worker("shouter", instance="a")


@worker.on_message
async def shout(text: str):
    for word in text.split():
        yield word.upper() + " "
"""
TYPED = """
import asyncio, sys
from rolecall import Worker

worker = Worker("counter")
before = "pydantic" in sys.modules

from pydantic import BaseModel


class Words(BaseModel):
    words: list[str]


@worker.on_message
async def count(words: Words) -> str:
    return str(len(words.words))


async def main():
    async with worker.test() as bench:
        print(before, (await bench.call(Words(words=["a", "b", "c"]))).text)


asyncio.run(main())
"""


class BaseInstall(Environment):
    """The wheel of this tree and its requirements, and processes that run from it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.install(str(build_wheel(folder)))
        self.rolecall = self.python.with_name("rolecall")

    def call(self, hub: HubProcess, *words: str) -> str:
        """The output of a command of a client, which must succeed."""
        return self.finish(self.rolecall, *words, env={"ROLECALL_HUB": hub.url})

    def start(self, *words: str | Path, name: str, hub: HubProcess) -> Process:
        """A process that enrols `name`, once the hub lists it."""
        env = {**self.variables, "ROLECALL_HUB": hub.url}
        log = self.folder / f"{name.replace(':', '-')}.log"
        process = Process(words, log=log, env=env, cwd=self.folder, name=name)
        process.wait_until(lambda: is_live(hub.url, name))
        return process


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseInstall:
    base = BaseInstall(tmp_path_factory.mktemp("base"))
    (base.folder / "shouting.py").write_text(WORKER)
    return base


@pytest.fixture(scope="module")
def hub(base: BaseInstall) -> Iterator[HubProcess]:
    """A hub of the full installation, with a worker in each way that the base install offers."""
    with ExitStack() as stack:
        hub = stack.enter_context(start_hub(base.folder / "data"))
        run_worker = (base.rolecall, "worker", "run", "shouting:worker")
        stack.enter_context(base.start(*run_worker, name="shouter:a", hub=hub))
        url = httpx.get(f"{hub.url}/registry/agents/shouter:a", trust_env=False).json()["url"]
        announce = (base.rolecall, "announce", "announced", url, "--instance", "b")
        stack.enter_context(base.start(*announce, name="announced:b", hub=hub))
        seed_form = f"-m worker_sdk --agent-name echo:c --agent-description repeats --server {hub.url}".split()
        stack.enter_context(base.start(base.python, *seed_form, name="echo:c", hub=hub))
        yield hub


def test_it_is_the_wheel_without_the_packages_of_a_hub(base: BaseInstall) -> None:
    names = ("rolecall", "worker_sdk", "hub", "pydantic", *OF_A_HUB)
    code = f"from importlib.util import find_spec\nfor name in {names}: spec = find_spec(name); print(spec and spec.origin)"
    found = base.finish(base.python, "-c", code).splitlines()
    assert all(Path(origin).is_relative_to(base.folder / "env") for origin in found[:4])
    assert found[4:] == ["None"] * len(OF_A_HUB)


def test_a_handler_takes_a_model(base: BaseInstall) -> None:
    """That no other worker imports pydantic is in tests/unit/test_public_package.py."""
    (base.folder / "typed.py").write_text(TYPED)
    assert base.finish(base.python, "typed.py") == "False 3\n"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["send", "shouter", "once upon"], "ONCE UPON"),
        (["send", "announced", "once upon", "--no-stream"], "ONCE UPON"),
        (["send", "echo:c", "once upon"], "once upon"),
        (["agents", "ls"], "shouter"),
        (["agents", "show", "echo:c"], "repeats"),
        (["roles", "ls"], "announced"),
        (["tasks", "ls"], "TASK"),
        (["ping"], "ok"),
        (["version"], "quart      not installed"),
        (["--version"], "rolecall"),
        (["--help"], "serve"),
    ],
)
def test_commands_of_clients_run(base: BaseInstall, hub: HubProcess, words: Sequence[str], printed: str) -> None:
    assert printed in base.call(hub, *words)


def test_init_and_up_run_workers_at_a_hub_that_runs(base: BaseInstall, hub: HubProcess) -> None:
    folder = base.folder / "up"
    assert "up" in base.finish(base.rolecall, "init", folder)
    env = {**base.variables, "ROLECALL_HUB": hub.url, "ROLECALL_DATA_DIR": str(base.folder / "data")}
    with Process((base.rolecall, "up", folder), log=base.folder / "up.log", env=env, cwd=base.folder, name="up") as up:
        up.wait_until(lambda: re.search(r"\+ shouter:\w{4}:1 ready", up.output) is not None)
        assert "ONCE UPON" in base.call(hub, "send", "shouter", "once upon")
        assert up.stop() == 0


def test_a_task_is_shown_and_followed(base: BaseInstall, hub: HubProcess) -> None:
    task = json.loads(base.call(hub, "send", "--json", "shouter", "once"))["id"]
    for command in ("show", "follow"):
        assert "ONCE" in base.call(hub, "tasks", command, task)


def test_the_doctor_skips_the_settings_and_checks_the_rest(base: BaseInstall, hub: HubProcess) -> None:
    lines = base.call(hub, "doctor", "--role", "echo").splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "skip  settings",
        *(f"ok    {name}" for name in ("hub", "token", "worker echo:c", "card of echo:c", "round trip", "stream")),
    ]


@pytest.mark.parametrize(
    "words", [["serve"], ["serve", "--help"], ["dev"], ["config", "show"], ["config", "validate"], ["tokens", "ls"]]
)
def test_commands_of_a_hub_name_what_to_install(base: BaseInstall, words: Sequence[str]) -> None:
    done = base.run(base.rolecall, *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: rolecall {words[0]} needs the hub: pip install 'rolecall[hub]' (missing: aiosqlite, ")
