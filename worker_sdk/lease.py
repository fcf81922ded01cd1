"""Presence: a lease in a hub's registry, held for as long as the process lives.

It works for any A2A server: `Worker` uses it for its own, `rolecall announce` for one that is already running.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from rolecall.model.a2a import JsonObject
from rolecall.model.ids import is_instance, is_loopback, is_role, split_name
from worker_sdk.calling.http import HubLink
from worker_sdk.config import default_instance, hub_url, read_settings
from worker_sdk.errors import HubUnreachable, InstanceConflict, LeaseSuperseded, LeaseUnknown, RolecallError

log = logging.getLogger("worker_sdk")

BOOT = uuid4().hex
"""This process. The hub keeps the epoch of a name as long as its boot is the same."""

_HEARTBEAT = 45.0
_FAREWELL = 5.0
_HOPELESS = 1.0
"""So long a farewell may take at a hub that did not answer the last time."""


class LeaseState(StrEnum):
    ENROLLING = "enrolling"
    READY = "ready"
    LOST = "lost"
    DRAINING = "draining"
    GONE = "gone"


_SAID = {
    LeaseState.ENROLLING: "keeps trying to enrol at",
    LeaseState.READY: "is enrolled at",
    LeaseState.LOST: "has lost its place at",
    LeaseState.DRAINING: "gets nothing new from",
    LeaseState.GONE: "has left",
}

Probe = Callable[[], Awaitable[bool]]


class Lease:
    """`async with Lease("planner", url=…) as lease:` enrols in the background, and for ever.

    The states: enrolling until the hub has accepted; ready; lost while the hub cannot be reached, or the probe fails, or
    for good when another process has taken the name (`superseded` is set then, and `taken_over()` returns); draining;
    gone after withdrawal. `on_change` gets each new state with the reason, once per change.
    """

    def __init__(
        self,
        role: str,
        instance: str | None = None,
        *,
        url: str,
        hub: str | None = None,
        token: str | None = None,
        card: JsonObject | None = None,
        description: str = "",
        capacity: int | None = None,
        labels: dict[str, str] | None = None,
        models: tuple[str, ...] = (),
        in_flight: Callable[[], int] | None = None,
        probe: Probe | None = None,
        on_change: Callable[[LeaseState, str], None] | None = None,
        ttl: float | None = None,
        boot: str = BOOT,
        backoff: tuple[float, float] = (0.5, 15.0),
    ) -> None:
        settings = read_settings()
        self.role, self.instance = worker_name(role, instance)
        self.url = url
        self.state = LeaseState.ENROLLING
        self.superseded = False
        self.epoch: int | None = None
        self._secret: str | None = None
        self._offer: JsonObject = {"url": url, "boot": boot, "description": description, "labels": labels or {}}
        self._offer |= {"card": card} if card is not None else {}
        self._offer |= {"capacity": capacity} if capacity is not None else {}
        self._offer |= {"models_supported": list(models)} if models else {}
        self._offer |= {"ttl_seconds": ttl} if ttl is not None else {}
        self._capacity = capacity
        self._in_flight = in_flight
        self._probe = probe
        self._on_change = on_change
        self._backoff = backoff
        self._link = HubLink(hub_url(hub) if hub else settings.hub, token or settings.token)
        self._why = ""
        self._heartbeat = _HEARTBEAT
        self._draining = False
        self._drain_failures = 0
        self._silent = False
        self._drain_said = asyncio.Event()
        """The hub has heard it, or cannot be told."""
        self._kick = asyncio.Event()
        self._taken_over = asyncio.Event()
        self._enrolled = asyncio.Event()
        self._job: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return f"{self.role}:{self.instance}"

    @property
    def hub(self) -> str:
        return self._link.hub

    async def __aenter__(self) -> Lease:
        self._job = asyncio.create_task(self._hold(), name=f"lease of {self.name}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._job is not None
        self._job.cancel()
        await asyncio.wait([self._job])
        try:
            await asyncio.shield(self._withdraw())
        except (RolecallError, TimeoutError):
            pass  # the lease then ends with its time
        await self._link.close()
        self._change(LeaseState.GONE, "withdrawn" if not self.superseded else "another process has the name")
        if not self._job.cancelled():
            self._job.result()

    async def ready(self) -> None:
        """Wait until the hub has accepted the worker for the first time."""
        await self._enrolled.wait()

    async def taken_over(self) -> None:
        """Wait until another process takes the name. For most this never returns."""
        await self._taken_over.wait()

    async def drain(self, patience: float = _FAREWELL) -> None:
        """Tell the hub to send nothing new. Returns when it has heard, when it cannot be told, or after `patience` seconds."""
        self._draining = True
        self._kick.set()
        try:
            async with asyncio.timeout(min(patience, self._farewell)):
                await self._drain_said.wait()
        except TimeoutError:
            self._silent = True  # a hub that cannot be told routes nothing either

    # --- the loop

    async def _hold(self) -> None:
        try:
            await self._keep()
        finally:
            self._drain_said.set()

    async def _keep(self) -> None:
        failures = forgotten = 0
        while not self.superseded:
            try:
                pause = await self._once()
                failures = forgotten = 0
            except LeaseUnknown:
                # The hub forgot us, or we were away for longer than the lease: back at once.
                self.epoch, pause, forgotten = None, self._pause(forgotten) if forgotten else 0.0, forgotten + 1
                self._change(LeaseState.ENROLLING, "the hub does not know this lease any more")
            except LeaseSuperseded:
                self.superseded = True
                self._change(LeaseState.LOST, "another process has taken over this name")
                self._taken_over.set()
                return
            except RolecallError as error:
                slowly = not isinstance(error, HubUnreachable)
                pause = self._backoff[1] * random.uniform(0.5, 1) if slowly else self._pause(failures)
                failures += 1
                self._trouble(error)
                if self._draining and not self._drain_said.is_set():
                    pause = self._drain_failed(pause)
            await self._wait(pause)

    async def _once(self) -> float:
        """Enrol or beat, whichever is due; how long to pause then."""
        if self._probe is not None and not await self._alive(self._probe):
            raise HubUnreachable(f"{self.url} does not answer its probe", reason="PROBE_FAILED")
        if self.epoch is None:
            self._heard(await self._ask("PUT", f"/{quote(self.role)}/{quote(self.instance)}", self._offer))
            if self._draining:
                return 0.0
        else:
            beat: JsonObject = {"epoch": self.epoch, "lease": self._secret}
            # Only ever yes: an operator may have drained this worker, and that is not ours to undo.
            beat |= {"draining": True} if self._draining else {}
            beat |= {"in_flight": self._in_flight()} if self._in_flight is not None else {}
            beat |= {"capacity": self._capacity} if self._capacity is not None else {}
            said_draining = self._draining
            self._heard(await self._ask("POST", f"/{quote(self.name)}/heartbeat", beat))
            if said_draining:
                self._drain_said.set()
        self._change(LeaseState.DRAINING if self._draining else LeaseState.READY, "")
        self._enrolled.set()
        return self._heartbeat

    def _heard(self, answer: Any) -> None:
        if not isinstance(answer, dict):
            raise RolecallError(f"{self.hub} answered enrolment with something else. Is this address a hub?")
        epoch, secret, heartbeat = answer.get("epoch"), answer.get("lease"), answer.get("heartbeat_seconds")
        self.epoch = epoch if isinstance(epoch, int) else self.epoch or 0
        self._secret = secret if isinstance(secret, str) else self._secret
        if isinstance(heartbeat, int | float) and heartbeat > 0:
            self._heartbeat = float(heartbeat)

    def _drain_failed(self, pause: float) -> float:
        """Twice is enough to know that it cannot be told: the first time may have been a connection that had died."""
        self._drain_failures += 1
        if self._drain_failures == 1:
            return 0.0
        self._drain_said.set()
        return pause

    async def _alive(self, probe: Probe) -> bool:
        try:
            async with asyncio.timeout(10.0):
                return await probe()
        except (OSError, RolecallError, TimeoutError):
            return False

    async def _ask(self, method: str, path: str, body: JsonObject) -> Any:
        return await self._link.ask(method, "/registry/agents" + path, body=body)

    async def _withdraw(self) -> None:
        if self.epoch is not None and not self.superseded:
            async with asyncio.timeout(self._farewell):
                await self._ask("DELETE", f"/{quote(self.name)}", {"epoch": self.epoch, "lease": self._secret})

    @property
    def _farewell(self) -> float:
        answers = self.state in (LeaseState.READY, LeaseState.DRAINING) and not self._silent
        return _FAREWELL if answers else _HOPELESS

    # --- waiting

    def _pause(self, failures: int) -> float:
        """Exponential with full jitter: a thousand workers do not come back in step. Never longer than a heartbeat: a hub
        that is back must hear of us before the lease, which it gives its time once more, runs out.
        """
        low, high = self._backoff
        return random.uniform(low / 2, min(high, self._heartbeat, low * 2 ** min(failures, 20)))

    async def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        try:
            # Never wait_for: up to Python 3.11 it loses a cancellation that comes as the wait ends, and the lease goes on.
            async with asyncio.timeout(seconds):
                await self._kick.wait()
        except TimeoutError:
            pass  # the pause is over
        self._kick.clear()

    # --- telling

    def _trouble(self, error: RolecallError) -> None:
        if isinstance(error, InstanceConflict):
            error = InstanceConflict(f"{error} This process keeps asking.", reason=error.reason)
        state = LeaseState.ENROLLING if self.epoch is None else LeaseState.LOST
        self._change(state, str(error), problem=True)

    def _change(self, state: LeaseState, why: str, *, problem: bool = False) -> None:
        """One line and one call per change, not per retry."""
        if (state, why) == (self.state, self._why):
            return
        first_line = problem or state is not self.state
        self.state, self._why = state, why
        if not first_line:
            return
        level = logging.ERROR if self.superseded else logging.WARNING if problem else logging.INFO
        log.log(level, "%s %s %s%s", self.name, _SAID[state], self.hub, f": {why}" if why else "")
        if self._on_change is not None:
            self._on_change(state, why)


def worker_name(role: str, instance: str | None) -> tuple[str, str]:
    """`role`, or `role:instance`. The instance: the argument, the name, ROLECALL_INSTANCE, or one that is made up.

    ValueError for names that no hub takes.
    """
    base, named = split_name(role)
    chosen = instance or named or read_settings().instance or default_instance()
    if not is_role(base):
        raise ValueError(f"{base!r} cannot be a role: small letters, digits, dot, dash and underscore, and no reserved word")
    if not is_instance(chosen):
        raise ValueError(f"{chosen!r} cannot be an instance name: letters, digits, dot, dash, underscore and colon")
    return base, chosen


def url_towards(hub: str, port: int) -> str:
    """Where that hub reaches a port of ours: loopback for a hub on this machine, else our address on the way to it."""
    host = urlsplit(hub).hostname or "127.0.0.1"
    if is_loopback(host) or host.endswith(".localhost"):
        return f"http://127.0.0.1:{port}/"
    family, kind, protocol, _, address = socket.getaddrinfo(host, urlsplit(hub).port or 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # a datagram socket only chooses its route here, nothing is sent
        source = str(probe.getsockname()[0])
    return f"http://[{source}]:{port}/" if ":" in source else f"http://{source}:{port}/"
