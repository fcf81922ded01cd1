"""A worker that runs in this process: the address that it offers, its port, and the command line."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

from tests.helpers.certificates import new_authority
from tests.helpers.processes import Process, environment, free_port
from tests.unit.worker_sdk.registry import Registry, listening
from worker_sdk import Worker
from worker_sdk.__main__ import main
from worker_sdk.config import ServerTls, server_tls
from worker_sdk.errors import ConfigError
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


CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send"} | {
    "params": {"message": {"messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}}
}


@asynccontextmanager
async def running(worker: Worker, verify: Any = True, **how: Any) -> AsyncIterator[tuple[httpx.AsyncClient, dict[str, Any]]]:
    """The worker as a server of this process: a client for its port, and what it has enrolled with."""
    registry, stop = Registry(), asyncio.Event()
    async with listening(registry) as hub:
        server = asyncio.create_task(serve(worker, hub=hub.url, stop=stop, **how))
        await registry.until(lambda requests: requests != [])
        offer = registry.requests[0][2]
        url = urlsplit(offer["url"])
        async with httpx.AsyncClient(base_url=f"{url.scheme}://127.0.0.1:{url.port}", verify=verify, trust_env=False) as http:
            yield http, offer
        stop.set()
        assert await server == 0


@pytest.mark.parametrize(
    ("host", "url", "closed"),
    [("127.0.0.1", None, False), ("0.0.0.0", None, True), ("127.0.0.1", "http://10.0.0.7:{port}/", True)],
    ids=["loopback", "every address", "offered elsewhere"],
)
@pytest.mark.parametrize("open", [False, True], ids=["", "open"])
async def test_a_worker_that_others_can_reach_takes_calls_from_its_hub_alone(
    host: str, url: str | None, closed: bool, open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    worker, port = echo_worker(), free_port()
    worker.open = open
    own_url = url.format(port=port) if url else None
    async with running(worker, host=host, port=port, url=own_url) as (http, offer):
        given = {"authorization": offer.get("authorization", "")}
        statuses = [
            (await http.post("/", json=CALL, headers=headers)).status_code
            for headers in ({}, {"authorization": "Bearer wrong"}, given)
        ]
        refused = await http.post("/a2a", json=CALL)
        assert (await http.get("/.well-known/agent-card.json")).status_code == 200
    if closed and not open:
        assert given["authorization"].startswith("Bearer ") and len(given["authorization"]) > 40
        assert (statuses, refused.headers["www-authenticate"]) == ([401, 401, 200], "Bearer")
        assert len(list(worker.tasks)) == 1
    else:
        assert (statuses, "authorization" in offer) == ([200, 200, 200], False)
    assert ("is open" in caplog.text) is (closed and open)


async def test_each_process_makes_a_secret_of_its_own() -> None:
    secrets = set()
    for _ in range(2):
        async with running(echo_worker(), host="0.0.0.0") as (_, offer):
            secrets.add(offer["authorization"])
    assert len(secrets) == 2


async def test_under_another_server_the_address_that_it_is_offered_at_decides() -> None:
    for url, closed in (("http://127.0.0.1:9/", False), ("http://10.0.0.7:9/", True)):
        worker = echo_worker()
        worker.lease(url)
        transport = httpx.ASGITransport(app=worker)
        async with httpx.AsyncClient(transport=transport, base_url="http://w") as http:
            assert (await http.post("/", json=CALL)).status_code == (401 if closed else 200)


async def test_a_worker_with_a_certificate_serves_https_and_is_offered_so(tmp_path: Path) -> None:
    authority = new_authority(tmp_path)
    certificate = authority.certificate()
    context = ssl.create_default_context(cafile=authority.file)
    async with running(echo_worker(), context, tls=ServerTls(certificate.cert, certificate.key)) as (http, offer):
        assert offer["url"].startswith("https://127.0.0.1:")
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["url"] == offer["url"]
        assert (await http.post("/", json=CALL)).json()["result"]["status"]["state"] == "completed"


async def test_files_that_are_no_certificate_end_the_worker_with_a_sentence(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no certificate")
    for cert, why in (
        (tmp_path / "none.pem", "cannot be read: No such file"),
        (other, "are no certificate and its key in PEM"),
    ):
        with pytest.raises(SystemExit, match=why):
            await serve(echo_worker(), tls=ServerTls(cert, other))


def test_a_certificate_and_its_key_come_from_arguments_or_the_environment() -> None:
    env = {"ROLECALL_WORKER_TLS_CERT": "c.pem", "ROLECALL_WORKER_TLS_KEY": "k.pem"}
    assert server_tls(environment={}) is None
    assert server_tls(environment=env) == ServerTls(Path("c.pem"), Path("k.pem"))
    assert server_tls("other.pem", environment=env) == ServerTls(Path("other.pem"), Path("k.pem"))
    with pytest.raises(ConfigError, match="ROLECALL_WORKER_TLS_KEY"):
        server_tls("c.pem", environment={})


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
        worker.wait_until(lambda: " is trying to enrol at " in worker.output)
        first = worker.output.splitlines()[0]
        if own:
            assert first.startswith("OWN logs:")
        else:
            line = json.loads(first)
            assert (line["logger"], line["event"], line["role"]) == ("worker_sdk", "lease_enrolling", "logs")
            assert line["message"].startswith(f"logs:{line['instance']} is trying to enrol at ")
        worker.stop(10)
