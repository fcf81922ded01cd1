"""A worker that runs in this process: the address that it offers, its port, and the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tests.helpers.processes import Process, environment
from tests.unit.worker_sdk.registry import Registry, listening
from worker_sdk import Worker
from worker_sdk.__main__ import main
from worker_sdk.run import serve

pytestmark = pytest.mark.virtual_time

GIVEN, CONFIGURED = "http://10.0.0.7:9/", "http://10.0.0.8:9/"


def echo_worker() -> Worker:
    worker = Worker("echo:a")

    @worker.on_message
    async def echo(text: str) -> str:
        return text

    return worker


@pytest.mark.parametrize(
    ("given", "configured", "host"),
    [
        (GIVEN, CONFIGURED, "10.0.0.7"),
        (GIVEN, None, "10.0.0.7"),
        (None, CONFIGURED, "10.0.0.8"),
        (None, None, "127.0.0.1"),
    ],
)
async def test_the_offered_address_is_the_given_one_then_the_configured_one_then_its_own(
    given: str | None,
    configured: str | None,
    host: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An address that nobody can reach is reported."""
    if configured is not None:
        monkeypatch.setenv("ROLECALL_ADVERTISE_URL", configured)
    registry, stop = Registry(), asyncio.Event()
    stop.set()
    async with listening(registry) as server:
        running = asyncio.create_task(serve(echo_worker(), hub=server.url, url=given, stop=stop))
        assert await running == 0
    assert urlsplit(registry.requests[0][2]["url"]).hostname == host
    assert ("listens on 127.0.0.1 only" in caplog.text) is (host != "127.0.0.1")


async def test_a_worker_listens_again_on_the_port_that_it_had_before_a_restart() -> None:
    """The server closes first, so the kernel still has the old connection."""
    registry, port = Registry(), 0
    async with listening(registry) as server:
        for _ in range(2):
            stop = asyncio.Event()
            running = asyncio.create_task(serve(echo_worker(), port=port, hub=server.url, stop=stop))
            await registry.until(lambda requests: requests[-1:] != [] and requests[-1][0] == "POST")
            port = urlsplit(registry.requests[-2][2].get("url", "")).port or port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /.well-known/agent.json HTTP/1.1\r\nHost: w\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 \r\n"
            stop.set()
            assert await running == 0
            await reader.read()
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(("argv", "name"), [([], "echo"), (["--agent-name", "parrot"], "parrot")])
def test_the_module_runs_an_echo_under_the_name_that_it_gets(
    argv: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(Worker, "run", lambda self, **options: started.append(self.role))
    result = CliRunner().invoke(main, argv)
    assert (result.exit_code, started) == (0, [name]), result.output


NO_HANDLER = "from worker_sdk import Worker\nworker = Worker('empty')\nworker.run()\n"
OWN_LOG = "import logging\nlogging.basicConfig(format='OWN %(message)s', level=logging.INFO)\n"


@pytest.mark.parametrize("command", [("-m", "rolecall.cli", "worker", "run", "empty:worker"), ("empty.py",)])
def test_a_worker_without_a_handler_ends_with_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "empty.py").write_text(NO_HANDLER)
    done = subprocess.run(
        [sys.executable, *command], env=environment({}), cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "empty has no handler" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("script", [False, True])
def test_logs_follow_one_rule_whoever_runs_the_worker(tmp_path: Path, own: bool, script: bool) -> None:
    handler = "@worker.on_message\nasync def repeat(text: str) -> str:\n    return text\n"
    (tmp_path / "logs.py").write_text(
        (OWN_LOG if own else "") + f"from worker_sdk import Worker\nworker = Worker('logs')\n{handler}worker.run()\n"
    )
    command = ("logs.py",) if script else ("-m", "rolecall.cli", "worker", "run", "logs:worker")
    log, env = tmp_path / "log", {"ROLECALL_HUB": "http://127.0.0.1:9"}
    with Process((sys.executable, *command), log=log, env=env, cwd=tmp_path) as worker:
        worker.wait_until(lambda: " serves at " in worker.output)
        first = worker.output.splitlines()[0]
        assert first.startswith("OWN logs:") if own else json.loads(first)["logger"] == "worker_sdk"
        worker.stop(10)
