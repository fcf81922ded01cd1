"""kill -9 the hub under the streams of agents that cannot replay: official SDKs behind `rolecall announce`.

What such an agent said while nobody listened comes as one piece, and is marked as such; no chunk is lost, none comes twice.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.client import Reader, call, get_task, send, text_message, texts
from tests.helpers.processes import HubProcess, Process, free_port, start_announce, start_hub, wait_for
from tests.helpers.tools import sdk_python

AGENT = Path(__file__).parent / "agents_that_count.py"
AGENTS = {"on-0.3": ("0.3",), "on-1.x": ("1.x", "1.0", "0.3")}
"""Role, the SDK that its agent is built on, and the versions that the card of the newer one lists."""
STREAMS = 16
_COMES_BACK_WITHIN = 15.0


def numbers(count: int) -> list[str]:
    return [f"{n} " for n in range(count)]


class HubWithAgents:
    """A hub that can be killed and comes back at its address, and an agent of each SDK that outlives it."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.hub = self._start(folder / "hub", free_port())

    def kill_hub(self) -> None:
        self.hub.kill9()

    def restart_hub(self) -> None:
        self.hub = self._start(self.hub.data_dir, self.hub.port)

    def noted(self, what: str) -> list[str]:
        """The messages whose execution began, or ended."""
        lines = self.runs.read_text().splitlines() if self.runs.exists() else []
        return [message for word, message in map(str.split, lines) if word == what]

    def _start(self, folder: Path, port: int) -> HubProcess:
        return start_hub(folder, port=port, lease_ttl=6, heartbeat=0.5, worker_silence=3)


@pytest.fixture(scope="module")
def hub_with_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubWithAgents]:
    folder = tmp_path_factory.mktemp("stock")
    hub_with_agents = HubWithAgents(folder)
    with ExitStack() as agents:
        agents.callback(lambda: hub_with_agents.hub.end())
        ports = {role: free_port() for role in AGENTS}
        for role, (sdk, *versions) in AGENTS.items():
            argv: list[str | Path] = [sdk_python(sdk), AGENT, str(ports[role]), *versions]
            agents.enter_context(Process(argv, log=folder / f"{role}.log", name=role, env={"RUNS": str(hub_with_agents.runs)}))
        for role, port in ports.items():
            log = folder / f"announce-{role}.log"
            agents.enter_context(start_announce(role, f"http://127.0.0.1:{port}", hub_with_agents.hub.url, log=log))
        yield hub_with_agents


def test_the_newer_sdk_says_on_its_card_that_it_speaks_0_3_too(hub_with_agents: HubWithAgents) -> None:
    versions_by_role = {}
    for role in AGENTS:
        url = httpx.get(f"{hub_with_agents.hub.url}/registry/agents/{role}:announced", trust_env=False).json()["url"]
        card = httpx.get(f"{url}/.well-known/agent-card.json", trust_env=False).json()
        entries = [one["protocolVersion"] for one in card.get("supportedInterfaces", [])]
        versions_by_role[role] = entries, (card.get("protocolVersion") or "")[:3]
        assert texts(send(hub_with_agents.hub.url, role, "numbers 3 0")) == numbers(3)
    assert versions_by_role == {"on-0.3": ([], "0.3"), "on-1.x": (["1.0", "0.3"], "0.3")}


def test_streams_of_stock_agents_survive_two_deaths_of_the_hub(hub_with_agents: HubWithAgents) -> None:
    _kill_hub_under_streams(hub_with_agents, restarts=2, chunks=200, longest=0.8)


@pytest.mark.soak
def test_streams_of_stock_agents_survive_ten_deaths_of_the_hub(hub_with_agents: HubWithAgents) -> None:
    _kill_hub_under_streams(hub_with_agents, restarts=10, chunks=1500, longest=1.5)


def test_a_call_that_nobody_had_answered_yet_is_not_run_again(hub_with_agents: HubWithAgents) -> None:
    """It may have run, so it fails and says so; who asks again with the same message learns it."""
    calls = {role: text_message("numbers 3 0.01 2") for role in AGENTS}
    waiting = [threading.Thread(target=_be_cut_off, args=(hub_with_agents.hub.url, *one), daemon=True) for one in calls.items()]
    for thread in waiting:
        thread.start()
    messages = {params["message"]["messageId"] for params in calls.values()}
    wait_for(lambda: messages <= set(hub_with_agents.noted("began")))
    hub_with_agents.kill_hub()
    for thread in waiting:
        thread.join(5)
    hub_with_agents.restart_hub()
    for _ in range(2):
        for role, params in calls.items():
            task = call(f"{hub_with_agents.hub.url}/agents/{role}/", "message/send", params)["result"]
            assert task["status"]["state"] == "failed"
            assert task["metadata"]["rolecall"]["reason"] == "HUB_RESTARTED"
            assert "may have" in task["status"]["message"]["parts"][0]["text"]
        # The agents end their work unheard; then the same question is asked once more.
        wait_for(lambda: messages <= set(hub_with_agents.noted("ended")))
    assert [message for message in hub_with_agents.noted("began") if message in messages] == hub_with_agents.noted("began")[
        -len(messages) :
    ]


def _be_cut_off(url: str, role: str, params: dict[str, Any]) -> None:
    with pytest.raises(httpx.HTTPError):
        call(f"{url}/agents/{role}/", "message/send", params)


def _kill_hub_under_streams(hub_with_agents: HubWithAgents, *, restarts: int, chunks: int, longest: float) -> None:
    rng = random.Random(326)
    kinds = [(role, kind) for role in AGENTS for kind in ("numbers", "ha")] * (STREAMS // 4)
    readers = [Reader(hub_with_agents.hub.url, role, f"{kind} {chunks} 0.02") for role, kind in kinds]
    before = len(hub_with_agents.noted("began"))
    threads = [reader.start() for reader in readers]
    wait_for(lambda: all(reader.chunks for reader in readers))
    seen: list[int] = []
    for _ in range(restarts):
        time.sleep(rng.uniform(0.2, longest))
        hub_with_agents.kill_hub()
        for thread in threads:
            thread.join(5)
        assert not all(reader.done for reader in readers), "every stream had ended before the hub was killed"
        seen = seen or [reader.cursor for reader in readers]
        hub_with_agents.restart_hub()
        threads = [reader.start_again() for reader in readers]
    for thread in threads:
        thread.join(chunks * 0.02 + _COMES_BACK_WITHIN)
    for reader, cursor in zip(readers, seen, strict=True):
        _check(reader, ["ha"] * chunks if "ha" in reader.text else numbers(chunks))
        _check_gap(reader, cursor)
    runs = hub_with_agents.noted("began")[before:]
    assert len(runs) == len(set(runs)) == STREAMS


def _check(reader: Reader, expected: list[str]) -> None:
    assert reader.errors == []
    assert reader.state == "completed"
    assert [cursor for cursor, _ in reader.frames] == list(range(1, len(reader.frames) + 1))
    task = get_task(reader.hub, reader.task)
    assert task["status"]["state"] == "completed"
    assert "".join(texts(task)) == "".join(expected)
    assert _own_view(reader) == "".join(expected)


def _check_gap(reader: Reader, seen: int) -> None:
    """Before the gap every chunk is an event of its own, as it was streamed; behind it come marked pieces."""
    updates = [(cursor, event) for cursor, event in reader.frames if event["kind"] == "artifact-update"]
    marked = [cursor for cursor, event in reader.frames if (event.get("metadata") or {}).get("rolecall", {}).get("gap")]
    assert marked and marked[0] > seen
    for cursor, event in updates:
        assert cursor in marked or len(event["artifact"]["parts"]) == 1
        assert (cursor in marked) is (cursor >= marked[0])


def _own_view(reader: Reader) -> str:
    """The text of the artifact as this reader alone can tell: by adding and replacing, as each event says."""
    texts: dict[str, str] = {}
    for event in reader.events:
        if event["kind"] == "task":
            assert not event.get("artifacts")
        elif event["kind"] == "artifact-update":
            artifact = event["artifact"]
            before = texts.get(artifact["artifactId"], "") if event.get("append") else ""
            texts[artifact["artifactId"]] = before + "".join(part["text"] for part in artifact["parts"])
    assert list(texts) == ["said"]
    return texts["said"]
