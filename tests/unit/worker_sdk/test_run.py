"""A worker that runs in this process: the address that it offers, its port, and the command line."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

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
