"""A lease in a hub's registry, renewed for as long as the process lives.

It works for any A2A server: `Worker` uses it for itself, `rolecall announce` for a server that is already running.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from os import PathLike
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from rolecall.log import SCOPE, scope_of
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import is_instance, is_role, split_name
from worker_sdk.calling.http import HubLink
from worker_sdk.config import Token, default_instance, hub_address, is_here, read_settings
from worker_sdk.errors import (
    AuthError,
    Forbidden,
    HubUnreachable,
    InstanceConflict,
    LeaseSuperseded,
    LeaseUnknown,
    RolecallError,
)
from worker_sdk.files.hub_files import HubStore, read_store

log = logging.getLogger("worker_sdk")

BOOT = uuid4().hex
"""Identifies this process. The hub keeps the epoch of a name while the boot id stays the same."""

_HEARTBEAT, _TTL = 45.0, 120.0
"""Seconds, until the hub has said others."""
REFUSALS = (InstanceConflict, AuthError, Forbidden)
_TOKEN_LOOK = 2.0
"""Seconds between two looks at the file that the token is in."""
_SHUTDOWN_TIMEOUT = 5.0
_UNREACHABLE_TIMEOUT = 1.0
"""Replaces `_SHUTDOWN_TIMEOUT` for a hub that did not answer the last request."""


class LeaseState(StrEnum):
    """Where a worker stands with its hub."""

    ENROLLING = "enrolling"
    READY = "ready"
    LOST = "lost"
    DRAINING = "draining"
    GONE = "gone"


_STATE_TEXT = {
    LeaseState.ENROLLING: "is trying to enrol at",
    LeaseState.READY: "is enrolled at",
    LeaseState.LOST: "cannot renew its lease at",
    LeaseState.DRAINING: "gets no new calls from",
    LeaseState.GONE: "is no longer enrolled at",
}
_GIVEN_UP, _NEVER_THERE = "lost its lease at", "was not enrolled at"

_LEVELS = {LeaseState.DRAINING: logging.DEBUG}
"""Of what is no problem: a line at the start and one at the end are enough."""

Probe = Callable[[], Awaitable[bool]]


class Lease:
    """`async with Lease("planner", url=…) as lease:` enrols and renews in the background until the block ends.

    The states: enrolling until the hub has accepted; ready; lost while it cannot be renewed (the hub cannot be reached, or the
    probe fails; the hub keeps it for its ttl), and permanently when it is given up (then `refusal` is set and `given_up()`
    returns); draining; gone after withdrawal. `authorization`: the header that the hub calls the worker with; a function is
    asked again every two seconds, and the hub gets what is new. `idempotent`: a call may be made again, although it may have
    run. `ca_file`: as in HubClient. `on_change` gets each new state with the reason, once per change.
    """

    def __init__(
        self,
        role: str,
        instance: str | None = None,
        *,
        url: str,
        hub: str | None = None,
        token: Token | None = None,
        ca_file: str | PathLike[str] | None = None,
        card: JsonObject | None = None,
        description: str = "",
        capacity: int | None = None,
        labels: dict[str, str] | None = None,
        models: tuple[str, ...] = (),
        idempotent: bool = False,
        authorization: str | Callable[[], str] | None = None,
        in_flight: Callable[[], int] | None = None,
        probe: Probe | None = None,
        on_change: Callable[[LeaseState, str], None] | None = None,
        ttl: float | None = None,
        boot: str = BOOT,
        backoff: tuple[float, float] = (0.5, 15.0),
    ) -> None:
        self.role, self.instance = worker_name(role, instance)
        self.url = url
        self.state = LeaseState.ENROLLING
        self.superseded = False
        self.refusal: RolecallError | None = None
        self.epoch: int | None = None
        self.store: HubStore | None = None
        """The hub's files; None: it stores none."""
        self._secret: str | None = None
        self._offer: JsonObject = {"url": url, "boot": boot, "description": description, "labels": labels or {}}
        self._offer |= {"card": card} if card is not None else {}
        self._offer |= {"capacity": capacity} if capacity is not None else {}
        self._offer |= {"models_supported": list(models)} if models else {}
        self._offer |= {"idempotent": True} if idempotent else {}
        self._offer |= {"ttl_seconds": ttl} if ttl is not None else {}
        self._authorization = authorization
        self._offered_authorization: str | None = None
        self._capacity = capacity
        self._in_flight = in_flight
        self._probe = probe
        self._on_change = on_change
        self._backoff = backoff
        address = hub_address(hub, token, ca_file)
        self._link = HubLink(address.url, address.token, ca_file=address.ca_file)
        self._reason = ""
        self._heartbeat = _HEARTBEAT
        self._ttl = ttl or _TTL
        self._refused_since: float | None = None
        self._draining = False
        self._drain_failures = 0
        self._was_away = False
        """The probe has failed since the last beat."""
        self._hub_silent = False
        self._drain_done = asyncio.Event()
        """Set when the hub has confirmed that it drains this worker, or cannot be reached."""
        self._wake = asyncio.Event()
        self._given_up = asyncio.Event()
        self._enrolled = asyncio.Event()
        self._job: asyncio.Task[None] | None = None

    def link_within(self, task: str, *words: str, headers: Mapping[str, str]) -> HubLink:
        """The hub, for calls in a task of this worker: this lease is the right to make them. `task`: the hub's id. `words`:
        what else the header says. RolecallError: the worker is not enrolled.
        """
        if self.epoch is None or self._secret is None:
            raise RolecallError(f"{self.name} is not enrolled, so it can call nobody.")
        proof = (f"task={task}", f"worker={self.name}", f"epoch={self.epoch}", f"lease={self._secret}", *words)
        return self._link.bound({**headers, "a2a-parent": "; ".join(proof)})

    @property
    def name(self) -> str:
        return f"{self.role}:{self.instance}"

    @property
    def hub(self) -> str:
        return self._link.hub

    async def __aenter__(self) -> Lease:
        self._link.open()  # a wrong setting ends the process here, and is not tried again
        self._job = asyncio.create_task(self._run(), name=f"lease of {self.name}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._job is not None
        self._job.cancel()
        await asyncio.wait([self._job])
        try:
            await asyncio.shield(self._withdraw())
        except (RolecallError, TimeoutError):
            pass  # the lease then expires by itself
        await self._link.close()
        left = "withdrawn" if self._enrolled.is_set() else "stopped before"
        self._change(LeaseState.GONE, left if not self.superseded else "another process has the name")
        if not self._job.cancelled():
            self._job.result()

    async def ready(self) -> None:
        """Wait until the hub has accepted the worker for the first time."""
        await self._enrolled.wait()

    async def given_up(self) -> None:
        """Wait until the lease is given up, which normally never happens: another process has taken the name, or the hub has
        refused the name or the token for longer than a lease lasts. `refusal` is then the reason.
        """
        await self._given_up.wait()

    async def drain(self, timeout: float = _SHUTDOWN_TIMEOUT) -> None:
        """Ask the hub to send no new calls. Returns when it has confirmed, when it cannot be reached, or after `timeout`
        seconds.
        """
        self._draining = True
        self._wake.set()
        try:
            async with asyncio.timeout(min(timeout, self._shutdown_timeout)):
                await self._drain_done.wait()
        except TimeoutError:
            self._hub_silent = True  # a hub that cannot be reached routes nothing either

    # --- the loop

    async def _run(self) -> None:
        SCOPE.set(scope_of(self.name))
        try:
            await self._renew()
        finally:
            self._drain_done.set()

    async def _renew(self) -> None:
        failures = forgotten = 0
        while not self.superseded:
            secrets = self._secrets  # before the request: they may change while it is under way
            try:
                pause = await self._enrol_or_beat()
                failures = forgotten = 0
                self._refused_since = None
            except LeaseUnknown:
                # The hub restarted without this lease, or the lease expired: enrol again at once.
                self.epoch, pause, forgotten = None, self._backoff_delay(forgotten) if forgotten else 0.0, forgotten + 1
                self._change(LeaseState.ENROLLING, "the hub no longer has this lease")
            except LeaseSuperseded as error:
                self.superseded = True
                self._give_up(error, "another process has taken over this name")
                return
            except RolecallError as error:
                if self._is_refused_for_good(error):
                    self._give_up(error, f"{error} It was refused for longer than a lease lasts.")
                    return
                # Who has the name is often about to end, such as the same worker before a restart.
                slow = not isinstance(error, HubUnreachable | InstanceConflict)
                pause = self._backoff[1] * random.uniform(0.5, 1) if slow else self._backoff_delay(failures)
                failures += 1
                self._report_failure(error)
                if self._draining and not self._drain_done.is_set():
                    pause = self._drain_failed(pause)
            await self._wait(pause, secrets)

    def _is_refused_for_good(self, error: RolecallError) -> bool:
        """Whether the name or the token has been refused, by a hub that answers, for longer than a lease lasts."""
        now = asyncio.get_running_loop().time()
        if not isinstance(error, REFUSALS):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        return self._refused_since is not None and now - self._refused_since > self._ttl

    def _give_up(self, error: RolecallError, why: str) -> None:
        self.refusal = error
        self._change(LeaseState.LOST, why, problem=True)
        self._given_up.set()

    async def _enrol_or_beat(self) -> float:
        """Enrol or send a heartbeat, whichever is due. Returns the seconds to wait before the next."""
        if self._probe is not None and not await self._alive(self._probe):
            self._was_away = True
            raise HubUnreachable(f"{self.url} does not answer its probe", reason="PROBE_FAILED")
        authorization = self._current_authorization
        if self.epoch is None or authorization != self._offered_authorization:
            offer = self._offer | ({"authorization": authorization} if authorization is not None else {})
            self._read_answer(await self._request("PUT", f"/{quote(self.role)}/{quote(self.instance)}", offer))
            self._offered_authorization = authorization
            if self._draining:
                return 0.0
        else:
            beat: JsonObject = {"epoch": self.epoch, "lease": self._secret}
            # Never false: an operator may have drained this worker, and a heartbeat must not undo that.
            beat |= {"draining": True} if self._draining else {}
            beat |= {"in_flight": self._in_flight()} if self._in_flight is not None else {}
            beat |= {"capacity": self._capacity} if self._capacity is not None else {}
            beat |= {"was_away": True} if self._was_away else {}
            sent_draining = self._draining
            self._read_answer(await self._request("POST", f"/{quote(self.name)}/heartbeat", beat))
            self._was_away = False
            if sent_draining:
                self._drain_done.set()
        self._change(LeaseState.DRAINING if self._draining else LeaseState.READY, "")
        self._enrolled.set()
        return self._heartbeat

    @property
    def _current_authorization(self) -> str | None:
        return self._authorization() if callable(self._authorization) else self._authorization

    def _read_answer(self, answer: Any) -> None:
        if not isinstance(answer, dict):
            raise RolecallError(f"{self.hub} answered enrolment with something that is not a lease. Is this address a hub?")
        epoch, secret, heartbeat = answer.get("epoch"), answer.get("lease"), answer.get("heartbeat_seconds")
        self.epoch = epoch if isinstance(epoch, int) else self.epoch or 0
        self._secret = secret if isinstance(secret, str) else self._secret
        if isinstance(heartbeat, int | float) and heartbeat > 0:
            self._heartbeat = float(heartbeat)
        self.store = read_store(answer.get("files"))
        ttl = answer.get("ttl_seconds")
        if isinstance(ttl, int | float) and ttl > 0:
            self._ttl = float(ttl)

    def _drain_failed(self, pause: float) -> float:
        """Give up after two failures. The first one may come from a kept-alive connection that had died, so retry at once."""
        self._drain_failures += 1
        if self._drain_failures == 1:
            return 0.0
        self._drain_done.set()
        return pause

    async def _alive(self, probe: Probe) -> bool:
        try:
            async with asyncio.timeout(10.0):
                return await probe()
        except (OSError, RolecallError, TimeoutError):
            return False

    async def _request(self, method: str, path: str, body: JsonObject) -> Any:
        return await self._link.ask(method, "/registry/agents" + path, body=body)

    async def _withdraw(self) -> None:
        if self.epoch is not None and not self.superseded:
            async with asyncio.timeout(self._shutdown_timeout):
                await self._request("DELETE", f"/{quote(self.name)}", {"epoch": self.epoch, "lease": self._secret})

    @property
    def _shutdown_timeout(self) -> float:
        answers = self.state in (LeaseState.READY, LeaseState.DRAINING) and not self._hub_silent
        return _SHUTDOWN_TIMEOUT if answers else _UNREACHABLE_TIMEOUT

    # --- waiting

    def _backoff_delay(self, failures: int) -> float:
        """Exponential back-off with full jitter, so that a thousand workers do not retry in step. Never longer than a
        heartbeat, because a restarted hub gives each lease its TTL once more and must be reached before that ends.
        """
        low, high = self._backoff
        return random.uniform(low / 2, min(high, self._heartbeat, low * 2 ** min(failures, 20)))

    async def _wait(self, seconds: float, secrets: tuple[str | None, str | None]) -> None:
        """Less if the token is no longer that one: what is done with the old one ends with it, so the lease is to be renewed
        with the new one before that. The hub needs a new credential of the worker as soon.
        """
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0 and self._secrets == secrets:
            try:
                # Not wait_for: up to Python 3.11 it loses a cancellation that comes as the wait ends: the lease would go on.
                async with asyncio.timeout(min(left, _TOKEN_LOOK)):
                    await self._wake.wait()
                break
            except TimeoutError:
                pass  # the time is over
        self._wake.clear()

    @property
    def _secrets(self) -> tuple[str | None, str | None]:
        """The token of the hub, and the worker's own credential."""
        return self._link.token, self._current_authorization

    # --- reporting

    def _report_failure(self, error: RolecallError) -> None:
        state = LeaseState.ENROLLING if self.epoch is None else LeaseState.LOST
        # A hint that was made for this failure is what its reader needs; those of a class go without saying.
        hint = f" {error.hint}" if error.hint != type(error).hint else ""
        again = f" This process tries again for {self._ttl:g} s." if isinstance(error, REFUSALS) else ""
        self._change(state, f"{error}{hint}", problem=True, again=again)

    def _change(self, state: LeaseState, reason: str, *, problem: bool = False, again: str = "") -> None:
        """One log line and one `on_change` call per change, not per retry. `again`: what this process does, for the log."""
        if (state, reason) == (self.state, self._reason):
            return
        reported = problem or state is not self.state
        self.state, self._reason = state, reason
        if not reported:
            return
        level = logging.ERROR if self.refusal is not None else logging.WARNING if problem else _LEVELS.get(state, logging.INFO)
        more = f": {reason}{again}" if reason else f", which calls it at {self.url}" if state is LeaseState.READY else ""
        log.log(level, "%s %s %s%s", self.name, self._state_text, self.hub, more, extra={"event": f"lease_{state}"})
        if self._on_change is not None:
            self._on_change(state, reason)

    @property
    def _state_text(self) -> str:
        if self.state is LeaseState.LOST and self.refusal is not None:
            return _GIVEN_UP
        return _NEVER_THERE if self.state is LeaseState.GONE and not self._enrolled.is_set() else _STATE_TEXT[self.state]


def worker_name(role: str, instance: str | None) -> tuple[str, str]:
    """Split `role` or `role:instance`. The instance comes from the argument, the name, ROLECALL_INSTANCE, or is generated. The
    argument and the variable may be the whole name: whoever starts a worker need not know that its role is in it.

    ValueError for names that no hub accepts.
    """
    base, named = split_name(role)
    given = instance or (None if named else read_settings().instance)
    chosen = (given.removeprefix(f"{base}:") if given else named) or default_instance()
    if not is_role(base):
        raise ValueError(
            f"{base!r} cannot be a role: lowercase letters, digits, dot, dash and underscore, and no reserved word"
        )
    if not is_instance(chosen):
        raise ValueError(f"{chosen!r} cannot be an instance name: letters, digits, dot, dash, underscore and colon")
    return base, chosen


def url_towards(hub: str, port: int, scheme: str = "http") -> str:
    """The URL of a port of this machine for that hub: loopback for a local hub, else the address of the route to the hub."""
    host = urlsplit(hub).hostname or "127.0.0.1"
    if is_here(host):
        return f"{scheme}://127.0.0.1:{port}/"
    family, kind, protocol, _, address = socket.getaddrinfo(host, urlsplit(hub).port or 80, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # connecting a datagram socket only selects the route, nothing is sent
        source = str(probe.getsockname()[0])
    return f"{scheme}://{f'[{source}]' if ':' in source else source}:{port}/"
