"""Agents that call agents: a hub with tokens, and real workers that a test starts by their roles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import httpx

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, Process, start_hub, start_worker

WORKERS = "tests.acceptance.callingworkers"


class Agents:
    def __init__(self, hub: HubProcess, tokens: dict[str, str], folder: Path, closing: ExitStack) -> None:
        self.hub, self.tokens, self.folder, self._closing = hub, tokens, folder, closing
        self.http = closing.enter_context(httpx.Client(trust_env=False, timeout=30))
        self.client = "client"
        self._running: dict[str, Process] = {}

    def start(self, role: str, name: str = "") -> Process:
        """`name`: if it is not the instance a of that role. One that runs already goes on."""
        name = name or f"{role}:a"
        if name in self._running and self._running[name].alive:
            return self._running[name]
        log, env = self.folder / f"{name.replace(':', '-')}.log", {"ROLECALL_TOKEN": self.tokens["worker"]}
        worker = self._closing.enter_context(start_worker(f"{WORKERS}:{role}", name, self.hub.url, log=log, env=env))
        self._closing.callback(lambda: worker.kill9() if worker.alive else None)  # its handlers may run for minutes
        self._running[name] = worker
        return worker

    def of(self, client: str) -> Agents:
        """The same agents, for another client."""
        other = copy(self)
        other.client, other.tokens = client, {**self.tokens, "client": self.tokens[client]}
        return other

    def restart(self) -> None:
        """Kill the hub, and start it again on the same data and port."""
        self.hub.kill9()
        self.hub = self._closing.enter_context(start_hub(self.hub.data_dir, port=self.hub.port))

    def rpc(self, role: str, method: str, params: dict[str, Any], kind: str = "client", **headers: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Authorization": f"Bearer {self.tokens[kind]}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        answer: dict[str, Any] = self.http.post(f"{self.hub.url}/agents/{role}/", json=body, headers=headers).json()
        return answer

    def send(self, role: str, text: str, *, wait: bool = True, **members: Any) -> dict[str, Any]:
        message = text_message(text)
        message["message"] |= members
        result: dict[str, Any] = self.rpc(role, "message/send", {**message, "configuration": {"blocking": wait}})["result"]
        return result

    def take_lease(self, role: str, server: str) -> dict[str, Any]:
        """A lease that the test holds, and whose calls the worker `server` serves."""
        headers = {"Authorization": f"Bearer {self.tokens['worker']}"}
        agent = self.http.get(f"{self.hub.url}/registry/agents/{server}:a", headers=headers).json()
        offer = {"url": agent["url"], "card": agent["card"], "boot": "b"}
        lease: dict[str, Any] = self.http.put(f"{self.hub.url}/registry/agents/{role}/a", json=offer, headers=headers).json()
        return lease

    def call_within(self, task: str, lease: dict[str, Any], role: str, text: str = "hi") -> dict[str, Any]:
        """A call of `role` that the holder of the lease makes in that task."""
        proof = f"task={task}; worker={lease['name']}; epoch={lease['epoch']}; lease={lease['lease']}"
        return self.rpc(role, "message/send", text_message(text), "worker", A2A_Parent=proof)

    def tree(self, task: str) -> list[dict[str, Any]]:
        """What is below the root."""
        headers = {"Authorization": f"Bearer {self.tokens['client']}"}
        tree = self.http.get(f"{self.hub.url}/registry/tasks/{task}/tree", headers=headers).json()
        return [found for found in tree["tasks"] if found["parent"] is not None]

    def revoke(self, name: str) -> None:
        path = self.hub.data_dir / "tokens.json"
        listed = json.loads(path.read_text())
        listed["tokens"] = [one for one in listed["tokens"] if one["name"] != name]
        path.write_text(json.dumps(listed))

    def answer(self, role: str, task: str, text: str) -> dict[str, Any]:
        message = text_message(text)
        message["message"]["taskId"] = task
        return self.rpc(role, "message/send", {**message, "configuration": {"blocking": False}})

    def get(self, role: str, task: str) -> dict[str, Any]:
        found: dict[str, Any] = self.rpc(role, "tasks/get", {"id": task})["result"]
        return found

    def states(self, role: str) -> list[str]:
        return [task["state"] for task in self.tasks(role)]

    def only_task(self, role: str) -> str:
        (task,) = self.tasks(role)
        return str(task["id"])

    def tasks(self, role: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.tokens['client']}"}
        page = self.http.get(f"{self.hub.url}/registry/tasks", params={"role": role}, headers=headers).json()
        found: list[dict[str, Any]] = page["tasks"]
        return found


@contextmanager
def open_agents(folder: Path, clients: Sequence[str] = ("client",)) -> Iterator[Agents]:
    data = folder / "hub"
    data.mkdir()
    kinds = {**dict.fromkeys(clients, Kind.CLIENT), "worker": Kind.WORKER, "stranger": Kind.WORKER}
    tokens = {
        name: new(data / "tokens.json", Principal(name, kind, roles=("*",)), lasts=None, now=0.0)[0]
        for name, kind in kinds.items()
    }
    with ExitStack() as closing:
        yield Agents(closing.enter_context(start_hub(data)), tokens, folder, closing)


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])
