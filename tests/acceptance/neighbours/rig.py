"""A hub with two workspaces: `busy` does its worst, `quiet` makes calls to its worker all the time and is measured.

    with neighbours(tmp_path, max_rate=10) as pair:
        with pair.unharmed():
            …what the busy workspace does…

`unharmed` fails if a call of the quiet workspace fails, or if the hub's memory grows by more than it may. The soak tests also
compare latencies: `pair.idle()` before, `Harm.check_latency` after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.acceptance.loadclients import LatencyProbe, forget_peak, memory_peak, memory_used, p99, percentile
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, start_hub, start_worker, wait_for

BUSY, QUIET, OPERATOR = "busy", "quiet", "default"
MEMORY = 100.0
"""MB by which the hub may grow."""
_AT_LEAST = 5
"""Calls that must have been answered before anything is compared."""
WORKERS = "tests.acceptance.loadworkers"
UNSENT = "bytes of answers that clients have not taken"


@dataclass
class Harm:
    """What the quiet workspace noticed: milliseconds of each of its calls, and the growth of the hub in MB, at its peak."""

    calls: Sequence[float]
    growth: float

    def check_latency(self, idle: Sequence[float]) -> str:
        """The figures, for the table in docs/explanation/neighbours.md."""
        allowed = 3 * p99(idle) + 50
        text = (
            f"p50 {percentile(idle, 0.5):.1f} -> {percentile(self.calls, 0.5):.1f} ms, "
            f"p99 {p99(idle):.1f} -> {p99(self.calls):.1f} ms, {self.growth:+.0f} MB, {len(self.calls)} calls"
        )
        assert p99(self.calls) <= allowed, text
        return text


@dataclass
class Neighbours:
    hub: HubProcess
    http: httpx.Client
    tokens: dict[tuple[str, str], str]
    """By workspace and kind: admin, client, client-2, worker."""
    probe: LatencyProbe
    folder: Path

    def headers(self, workspace: str, kind: str = "client") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[workspace, kind]}"}

    def ask(
        self, workspace: str, method: str, path: str, body: Any = None, *, kind: str = "client", **headers: str
    ) -> httpx.Response:
        return self.http.request(method, self.hub.url + path, json=body, headers={**self.headers(workspace, kind), **headers})

    def rpc(self, workspace: str, method: str, params: dict[str, Any], role: str = "echo") -> dict[str, Any]:
        """The answer's document."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        document: dict[str, Any] = self.ask(workspace, "POST", f"/agents/{role}/", body).json()
        return document

    def send(self, workspace: str, text: str = "hi", role: str = "echo") -> dict[str, Any]:
        return self.rpc(workspace, "message/send", text_message(text), role)

    def used(self, thing: str) -> float:
        """How much of a scarce thing is in use, from the metrics."""
        lines = self.ask(OPERATOR, "GET", "/metrics", kind="admin").text.splitlines()
        name = f'a2a_hub_share_used{{thing="{thing}"}} '
        return float(next(line for line in lines if line.startswith(name)).removeprefix(name))

    def add_worker(self, closing: ExitStack, source: str, name: str, workspace: str, **env: str) -> None:
        """A process of the SDK, in that workspace."""
        env = {"ROLECALL_TOKEN": self.tokens[workspace, "worker"], **env}
        log = self.folder / f"{workspace}-{name.replace(':', '-')}-{uuid4().hex[:6]}.log"
        closing.enter_context(start_worker(source, name, self.hub.url, log=log, env=env))

    def idle(self, seconds: float = 3.0) -> Sequence[float]:
        """Milliseconds of the quiet workspace's calls while nothing else happens."""
        began = time.monotonic()
        time.sleep(seconds)
        return self.probe.figures(since=began)

    @contextmanager
    def unharmed(self, memory: float = MEMORY) -> Iterator[Harm]:
        """What is filled in when the block has ended. A call of the quiet workspace that failed ends its probe."""
        before, began = memory_used(self.hub), time.monotonic()
        forget_peak(self.hub)
        harm = Harm((), 0.0)
        yield harm
        harm.growth = memory_peak(self.hub) - before
        wait_for(lambda: len(self.probe.figures(since=began)) >= _AT_LEAST, 30)
        harm.calls = self.probe.figures(since=began)
        assert harm.growth <= memory, f"the hub grew by {harm.growth:.0f} MB"


@contextmanager
def neighbours(folder: Path, *, pause: float = 0.01, **settings: object) -> Iterator[Neighbours]:
    data = folder / "hub"
    data.mkdir(parents=True, exist_ok=True)
    kinds = {"admin": Kind.ADMIN, "client": Kind.CLIENT, "client-2": Kind.CLIENT, "worker": Kind.WORKER}
    tokens = {
        (workspace, kind): new(
            data / "tokens.json",
            Principal(f"{workspace}-{kind}", right, workspace, roles=("*",) if right is Kind.WORKER else ()),
            lasts=None,
            now=0.0,
        )[0]
        for workspace in (BUSY, QUIET, OPERATOR)
        for kind, right in kinds.items()
    }
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(data, **settings))
        http = closing.enter_context(
            httpx.Client(trust_env=False, timeout=30, limits=httpx.Limits(max_connections=None, max_keepalive_connections=50))
        )
        env = {"ROLECALL_TOKEN": tokens[QUIET, "worker"]}
        closing.enter_context(start_worker(f"{WORKERS}:echo", "echo:q", hub.url, log=folder / "echo.log", env=env))
        probe = closing.enter_context(LatencyProbe("calls", hub, folder, pause=pause, token=tokens[QUIET, "client"]))
        yield Neighbours(hub, http, tokens, probe, folder)
