"""`rolecall doctor` against real hubs: open, with tokens, with a dead worker, and behind a proxy that buffers streams."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.access_world import make_tokens
from tests.helpers.processes import ROLECALL, ROOT, HubProcess, environment, start_hub, start_worker
from tests.helpers.tcp_relay import TcpRelay

DEMO = "rolecall.cli.demo:echo"


def doctor(hub: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [*ROLECALL, "doctor", "--hub", hub, *words]
    return subprocess.run(argv, capture_output=True, text=True, env=environment(env), cwd=ROOT, timeout=60, check=False)


def states(hub: str, *words: str, **env: str) -> tuple[int, dict[str, str]]:
    """The exit code, and each check's state."""
    done = doctor(hub, "--json", *words, **env)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["ok"] == (done.returncode == 0)
    return done.returncode, {check["check"]: check["state"] for check in document["checks"]}


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    data = tmp_path_factory.mktemp("open")
    with start_hub(data) as hub, start_worker(DEMO, "echo:a", hub.url, log=data / "w.log"):
        yield hub


def test_every_check_passes_for_a_hub_without_tokens(open_hub: HubProcess) -> None:
    done = doctor(open_hub.url)
    assert done.returncode == 0, done.stdout
    lines = [line.split(": ")[0] for line in done.stdout.splitlines()]
    names = ("settings", "hub", "token", "worker echo:a", "card of echo:a", "round trip", "stream")
    assert lines == [f"ok    {name}" for name in names]
    assert "the hub requires none" in done.stdout
    assert "A2A 1.0, 0.3" in done.stdout


def test_it_leaves_nothing_behind_also_if_nobody_reads_to_its_end(open_hub: HubProcess) -> None:
    command = f"{shlex.join(ROLECALL)} doctor --hub {open_hub.url} | head -n 5"
    argv = ["bash", "-o", "pipefail", "-c", command]
    cut = subprocess.run(argv, capture_output=True, text=True, env=environment({}), cwd=ROOT, timeout=60, check=False)
    assert (cut.returncode, len(cut.stdout.splitlines()), cut.stderr) == (0, 5, "")
    assert states(open_hub.url, "--role", "echo")[0] == 0

    def read(path: str) -> httpx.Response:
        return httpx.get(open_hub.url + path, trust_env=False)

    assert [agent["name"] for agent in read("/registry/agents").json()["agents"]] == ["echo:a"]
    assert (read("/registry/tasks").json()["total"], read("/registry/summaries").json()["summaries"]) == (0, [])
    assert "doctor" not in read("/metrics").text


def test_a_role_without_workers_fails_its_check(open_hub: HubProcess) -> None:
    code, found = states(open_hub.url, "--role", "nobody")
    assert (code, found["workers"], found["stream"]) == (5, "fail", "ok")


def test_a_proxy_that_buffers_streams_is_detected(open_hub: HubProcess) -> None:
    with TcpRelay(("127.0.0.1", open_hub.port)) as relay:
        relay.collect(0.4)
        done = doctor(relay.url)
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 1
    assert failed[0].startswith("FAIL  stream: 6 events")
    assert "proxy_buffering off" in done.stdout


def test_only_the_check_of_a_dead_worker_fails(tmp_path: Path) -> None:
    with start_hub(tmp_path) as hub:
        worker = start_worker(DEMO, "echo:dead", hub.url, log=tmp_path / "w.log")
        worker.kill9()
        done = doctor(hub.url)
        assert done.returncode == 1
        failed = [line for line in done.stdout.splitlines() if not line.startswith(("ok    ", "        "))]
        assert len(failed) == 1
        assert failed[0].startswith("FAIL  worker echo:dead: the hub cannot connect to http://127.0.0.1:")


def test_with_tokens_checks_that_a_token_may_not_run_are_skipped(tmp_path: Path) -> None:
    """On a hub that other machines can reach."""
    tokens = make_tokens(tmp_path)
    with (
        start_hub(tmp_path, host="0.0.0.0", worker_networks="127.0.0.0/8") as hub,
        start_worker(
            "tests.acceptance.workers:asker",
            "asker:a",
            hub.url,
            log=tmp_path / "w.log",
            env={"ROLECALL_TOKEN": tokens["worker"]},
        ),
    ):
        code, admin = states(hub.url, ROLECALL_TOKEN=tokens["admin"])
        assert (code, set(admin.values())) == (0, {"ok"})
        code, client = states(hub.url, ROLECALL_TOKEN=tokens["owner"])
        assert code == 0
        skipped = [name for name, state in client.items() if state == "skipped"]
        assert skipped == ["worker asker:a", "round trip", "stream"]
        code, wrong = states(hub.url, ROLECALL_TOKEN="rc_wrong")
        assert (code, wrong) == (4, {"settings": "ok", "hub": "ok", "token": "fail"})
        none = doctor(hub.url)
        assert none.returncode == 4
        assert "rolecall tokens new" in none.stdout
