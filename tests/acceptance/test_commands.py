"""Commands as real processes: the demo, a taken port, and an announced server."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.helpers.certificates import new_authority
from tests.helpers.processes import (
    ROLECALL,
    ROOT,
    Process,
    free_port,
    is_live,
    start_announce,
    start_hub,
    start_worker,
    wait_for,
)
from tests.unit.cli.scripted_hub import Response, scripted_hub


def test_demo_prints_commands_that_work_when_pasted_and_leaves_no_process(tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "dev.log"
    foreign_variables = {"PORT": str(port), "A2A_AGENT_URL": f"http://localhost:{port}"}
    argv = [*ROLECALL, "dev", "--port", str(port), "--data-dir", tmp_path / "data"]
    with Process(argv, log=log, env=foreign_variables, name="dev") as dev:
        dev.wait_until(lambda: "Next, in another terminal:" in dev.output and "agent-card.json" in dev.output)
        assert dev.output.count("ready (demo worker)") == 3
        assert "· A2A 0.1, 0.3, 1.0 ·" in dev.output
        commands = dev.output.split("Next, in another terminal:")[1].strip().splitlines()
        assert len(commands) == 3
        results = [_run_line(line) for line in commands]
        assert results[0] == "hello\n"
        assert results[1].startswith("Once there was hello")
        assert results[1].endswith("The end.\n")
        assert '"name"' in results[2]
        workers = [agent["url"] for agent in httpx.get(f"http://127.0.0.1:{port}/agents").json()["agents"]]
        dev.signal(signal.SIGINT)
        assert dev.wait() == 0
    assert "Traceback" not in dev.output
    assert len(workers) == 3
    assert not any(_is_open(url) for url in workers)


def _run_line(line: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ROLECALL_", "A2A_"))}
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, cwd=ROOT, env=environment, timeout=30, check=True)
    return done.stdout


def _is_open(url: str) -> bool:
    address = httpx.URL(url)
    try:
        socket.create_connection((address.host, address.port or 80), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_demo_worker_that_asks_continues_with_the_answer(tmp_path: Path) -> None:
    with (
        start_hub(tmp_path / "hub") as hub,
        start_worker("rolecall.cli.demo:booking", "booking:demo", hub.url, log=tmp_path / "booking.log"),
    ):
        question = _rolecall("send", "--hub", hub.url, "booking", "two at eight")
        assert question.returncode == 7
        assert "Shall I book it?" in question.stdout
        task = question.stderr.split("--task-id ")[1].split()[0]
        answered = _rolecall("send", "--hub", hub.url, "booking", "yes", "--task-id", task)
        assert (answered.returncode, answered.stdout) == (0, "Booked: two at eight.\n")


def _rolecall(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ROLECALL, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_taken_port_is_explained(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = _rolecall(command, "--port", port, "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert f"port {port} of 127.0.0.1 is taken [PORT_TAKEN]" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_announced_server_is_enrolled_with_its_card_and_withdrawn_at_the_end(tmp_path: Path) -> None:
    with (
        start_hub(tmp_path / "hub", lease_ttl=3, heartbeat=0.3) as hub,
        start_worker("rolecall.cli.demo:echo", "echo:own", hub.url, log=tmp_path / "echo.log") as server,
    ):
        url = httpx.get(f"{hub.url}/registry/agents/echo:own").json()["url"]
        with start_announce("parrot", url, hub.url, "--idempotent", instance="p", log=tmp_path / "announce.log") as announce:
            wait_for(lambda: bool(httpx.get(f"{hub.url}/registry/agents/parrot:p").json()["card_read"]["at"]))
            agent = httpx.get(f"{hub.url}/registry/agents/parrot:p").json()
            assert agent["url"] == url
            assert agent["description"] == "Says what you say."
            assert agent["capabilities"]["streaming"] and agent["idempotent"]
            assert "idempotent    yes" in _rolecall("agents", "show", "--hub", hub.url, "parrot:p").stdout
            assert _rolecall("send", "--hub", hub.url, "parrot", "hello").stdout == "hello\n"
            announce.signal(signal.SIGTERM)
            assert announce.wait() == 0
            assert not is_live(hub.url, "parrot:p")
        with start_announce("parrot", url, hub.url, instance="q", log=tmp_path / "again.log"):
            server.kill9()
            wait_for(lambda: not is_live(hub.url, "parrot:q"))


def test_announce_without_a_card_reports_where_it_looked(tmp_path: Path) -> None:
    done = _rolecall("announce", "ghost", f"http://127.0.0.1:{free_port()}/", "--wait", "0")
    assert done.returncode == 5
    assert "/.well-known/agent-card.json" in done.stderr


def test_announce_trusts_the_authority_of_the_hub_and_of_the_announced_server(tmp_path: Path) -> None:
    authority = new_authority(tmp_path)
    with scripted_hub(tls=authority.certificate().server_context()) as hub:
        card = {"name": "parrot", "url": f"{hub.url}/rpc", "skills": []}
        hub.on("GET /.well-known/agent-card.json", Response(card))
        granted = {"epoch": 1, "lease": "s", "ttl_seconds": 60, "heartbeat_seconds": 30}
        hub.on("PUT /registry/agents/parrot/p", Response(granted))
        hub.on("DELETE /registry/agents/parrot%3Ap", Response({"registered": False}))
        argv = [*ROLECALL, "announce", "parrot", hub.url, "--instance", "p", "--hub", hub.url]
        env = {"ROLECALL_CA_FILE": str(authority.file)}
        with Process(argv, log=tmp_path / "announce.log", env=env) as announce:
            announce.wait_until(lambda: "is enrolled at" in announce.output)
            assert announce.stop() == 0
        refused = _rolecall("announce", "parrot", hub.url, "--wait", "0", "--hub", hub.url)
    assert refused.returncode == 5
    assert "is signed by an authority that is not trusted here" in refused.stderr
    assert "DELETE /registry/agents/parrot%3Ap" in hub.calls()


def test_worker_stops_on_sigterm_with_0(tmp_path: Path) -> None:
    with (
        start_hub(tmp_path / "hub") as hub,
        start_worker("rolecall.cli.demo:echo", "echo:s", hub.url, log=tmp_path / "echo.log") as worker,
    ):
        assert worker.stop() == 0
        assert not is_live(hub.url, "echo:s")


def test_the_module_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rolecall.cli", "version", "--json"], capture_output=True, text=True, check=True
    )
    assert '"rolecall"' in done.stdout
