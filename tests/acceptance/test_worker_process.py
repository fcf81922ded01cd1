"""A worker as a process: loaded by name, drained by a signal, stopped when another process takes its name."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.processes import HubProcess, Process, is_live, start_hub, wait_for
from worker_sdk import HubClient

SLEEP_SCRIPT = """
    import asyncio
    from worker_sdk import Worker
    worker = Worker("sleeper", drain_timeout={drain})
    @worker.on_message
    async def sleep(text: str) -> str:
        await asyncio.sleep(float(text))
        return "slept"
    if __name__ == "__main__":
        worker.run()
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), heartbeat=1, lease_ttl=10) as hub:
        yield hub


def sleep_worker(folder: Path, hub: HubProcess, instance: str, *, drain: float = 30) -> Process:
    script = folder / "sleeper.py"
    script.write_text(textwrap.dedent(SLEEP_SCRIPT).format(drain=drain))
    env = {"ROLECALL_HUB": hub.url, "ROLECALL_INSTANCE": instance}
    worker = Process((sys.executable, script), log=folder / f"{instance}.log", env=env, name=instance)
    worker.wait_until(lambda: is_live(hub.url, f"sleeper:{instance}"))
    return worker


def begin(hub: HubProcess, instance: str, seconds: float) -> str:
    message = {"messageId": f"{instance}-{seconds}", "parts": [{"kind": "text", "text": str(seconds)}]}
    params = {"message": message, "metadata": {"role": f"sleeper:{instance}"}, "configuration": {"blocking": False}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    return str(httpx.post(f"{hub.url}/", json=body, trust_env=False).json()["result"]["id"])


def state_of(hub: HubProcess, task: str) -> tuple[str, str]:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}}
    status = httpx.post(f"{hub.url}/", json=body, trust_env=False).json()["result"]["status"]
    parts = status.get("message", {}).get("parts", [{"text": ""}])
    return status["state"], parts[0]["text"]


def test_a_signal_drains_the_worker_finishes_its_tasks_and_exits_with_0(tmp_path: Path, hub: HubProcess) -> None:
    with sleep_worker(tmp_path, hub, "polite") as worker:
        task = begin(hub, "polite", 1)
        worker.signal(signal.SIGTERM)
        wait_for(lambda: "finishes 1 running task, for" in worker.output)
        assert worker.wait() == 0
    wait_for(lambda: state_of(hub, task)[0] == "completed")
    assert not is_live(hub.url, "sleeper:polite")
    steps = ("is enrolled at", "finishes 1", "is no longer enrolled")
    assert len(worker.output.splitlines()) == len(steps)
    assert all(step in line for step, line in zip(steps, worker.output.splitlines(), strict=True))


def test_a_worker_whose_hub_was_killed_stops_at_once(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub") as own, sleep_worker(tmp_path, own, "alone") as worker:
        own.kill9()
        began = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began < 2
    assert "Traceback" not in worker.output


def test_a_task_that_does_not_end_in_time_fails_with_a_reason(tmp_path: Path, hub: HubProcess) -> None:
    with sleep_worker(tmp_path, hub, "hasty", drain=0.1) as worker:
        task = begin(hub, "hasty", 60)
        assert worker.stop() == 0
    wait_for(lambda: state_of(hub, task) == ("failed", "The worker was stopped before the task had ended."))


def test_a_second_signal_stops_the_worker_at_once(tmp_path: Path, hub: HubProcess) -> None:
    with sleep_worker(tmp_path, hub, "stuck") as worker:
        begin(hub, "stuck", 60)
        worker.signal(signal.SIGINT)
        wait_for(lambda: "finishes 1 running task, for" in worker.output)
        threading.Event().wait(0.6)  # an earlier signal counts as the same one
        worker.signal(signal.SIGINT)
        assert worker.wait(3) == 130


async def test_a_worker_whose_name_was_taken_exits_with_3(tmp_path: Path, hub: HubProcess) -> None:
    with sleep_worker(tmp_path, hub, "taken") as worker:
        async with HubClient(hub.url) as client:
            url = (await client.agent("sleeper:taken")).url
        async with httpx.AsyncClient(base_url=hub.url, trust_env=False) as http:
            taken = await http.put("/registry/agents/sleeper/taken", json={"url": url, "boot": "another"})
        assert taken.json()["epoch"] == 2
        assert worker.wait(10) == 3
    assert "ends: Another process now holds that name" in worker.output
    assert is_live(hub.url, "sleeper:taken")


def test_the_module_runs_a_named_worker_and_an_echo_without_one(tmp_path: Path, hub: HubProcess) -> None:
    (tmp_path / "mine.py").write_text(textwrap.dedent(SLEEP_SCRIPT).format(drain=1))
    argv = (sys.executable, "-m", "worker_sdk", "--server", hub.url, "--agent-description", "D")
    with (
        Process((*argv, "--agent-name", "renamed:x", "mine:worker"), log=tmp_path / "1", cwd=tmp_path) as named,
        Process((*argv, "--agent-name", "parrot:x"), log=tmp_path / "2", cwd=tmp_path) as echo,
        Process((*argv, "mine:nothing"), log=tmp_path / "3", cwd=tmp_path) as wrong,
    ):
        assert wrong.wait() == 2
        assert "It has: mine:worker" in wrong.output
        named.wait_until(lambda: is_live(hub.url, "renamed:x"))
        echo.wait_until(lambda: is_live(hub.url, "parrot:x"))
        agent = httpx.get(f"{hub.url}/registry/agents/parrot:x", trust_env=False).json()
    assert agent["description"] == agent["card"]["description"] == "D"


def test_importing_the_package_loads_neither_an_http_client_nor_a_server(tmp_path: Path) -> None:
    script = "import sys, worker_sdk; print([m for m in ('httpx', 'hypercorn', 'h2', 'quart', 'pydantic') if m in sys.modules])"
    with Process((sys.executable, "-c", script), log=tmp_path / "log") as process:
        assert process.wait() == 0
    assert process.output.strip() == "[]"


COUNTER = """
    import asyncio
    from worker_sdk import Worker
    worker = Worker("counter")
    @worker.on_message
    async def count(text: str):
        for number in range(int(text)):
            yield f"{number} "
            await asyncio.sleep(0.03)
    worker.run()
"""


async def test_a_stream_of_the_client_survives_a_killed_hub(tmp_path: Path) -> None:
    (tmp_path / "counter.py").write_text(textwrap.dedent(COUNTER))
    hub = start_hub(tmp_path / "data")
    env = {"ROLECALL_HUB": hub.url, "ROLECALL_INSTANCE": "a"}
    try:
        with Process((sys.executable, tmp_path / "counter.py"), log=tmp_path / "log", env=env) as worker:
            worker.wait_until(lambda: is_live(hub.url, "counter:a"))
            text, cursors = "", []
            async with HubClient(hub.url) as client, client.stream_to_agent("counter", "60") as stream:
                async for event in stream:
                    text += event.text if event.kind == "text" else ""
                    cursors.append(int(event.cursor or 0))
                    if len(cursors) == 20:
                        hub.kill9()
                        hub = start_hub(hub.data_dir, port=hub.port)
            assert text == "".join(f"{number} " for number in range(60))
            assert cursors == list(range(1, len(cursors) + 1))
    finally:
        hub.end()
