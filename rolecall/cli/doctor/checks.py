"""The checks of `rolecall doctor`. Each is one line; a check that depends on a failed one is left out."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

from rolecall.cli.connect import EXIT_CODES
from rolecall.cli.doctor.check import FAIL, Check, failed, passed, skipped
from rolecall.cli.installed import HOW, missing_packages
from rolecall.cli.output import disk_use, duration, size
from rolecall.model.card import JSONRPC, Interface
from rolecall.model.ids import DOCTOR_ROLE
from rolecall.protocol.cards import interfaces
from worker_sdk import AgentInfo, HubClient, Lease, Message, RolecallError, Worker
from worker_sdk.errors import AuthError, ConfigError, Forbidden, HubUnreachable
from worker_sdk.lease import LeaseState, url_towards
from worker_sdk.run import serve_http

PIECES, INTERVAL = 6, 0.15
_PATIENCE = 15.0
_WITHOUT_A_CARD = frozenset({"name", "skills", "capabilities"})
"""The hub's card of a worker that enrolled without one has no other members."""
_STREAM = "stream"
_REFUSED = EXIT_CODES["UNAUTHENTICATED"]
_NO_TOKEN = """\
on the hub's machine: rolecall tokens new --name me --kind admin
then set ROLECALL_TOKEN to what it prints, or use --token"""
_OTHER_TOKEN = f"it is mistyped, has expired or was revoked, or belongs to another hub\n{_NO_TOKEN}"
_FIX_OF = {
    "tokens": "the hub cannot use its token file and refuses the tokens in it: its log says why (tokens_unreadable)",
    "audit": "the hub cannot write its audit log: its log says why (audit_failed)",
    "disk": "the disk of its data folder is nearly full, so it takes no calls and no workers: make room there\n"
    "what it keeps free is ROLECALL_DISK_RESERVE; tasks go sooner with a shorter ROLECALL_RETENTION",
    "descriptors": "raise the limit of open files of its process (ulimit -n), or lower ROLECALL_MAX_CONNECTIONS",
}
"""What to do about a check of the hub that fails."""
_UNREACHABLE = (
    "is its process alive, and does it listen there? for a hub on another machine: rolecall worker run --host 0.0.0.0\n"
    "is that its address as the hub sees it? in a container 127.0.0.1 is the container: rolecall worker run --url URL\n"
    "does the hub allow that network? ROLECALL_WORKER_NETWORKS on the hub, --network of the worker's token"
)
_BUFFERED = (
    "a proxy between here and the hub buffers the stream: switch its buffering off for text/event-stream\n"
    "nginx: proxy_buffering off; proxy_http_version 1.1; then check that --hub with the hub's own address passes"
)


def of_settings(file: Path | None) -> Check:
    if missing_packages():
        return skipped("settings", f"only a hub has them, and none is installed here ({HOW})")
    from hub.settings.model import load
    from rolecall import errors

    try:
        loaded = load(file=file)
    except errors.ConfigError as error:
        return failed("settings", error.problems[0], "list all problems: rolecall config validate", 2)
    return passed("settings", f"{loaded.file or 'no file'}, {len(loaded.origins)} set")


async def of_hub(hub: HubClient, token: str | None, role: str | None) -> AsyncGenerator[Check, None]:
    """All checks, or those up to a failure that makes the others pointless."""
    found = await _hub(hub)
    yield found
    if found.state == FAIL:
        return
    accepted = await _token(hub, token)
    yield accepted
    if accepted.state == FAIL:
        return
    async with aclosing(_workers(hub, role)) as of_workers:
        async for check in of_workers:
            yield check
    async with aclosing(_through_the_hub(hub, token)) as of_calls:
        async for check in of_calls:
            yield check


async def _hub(hub: HubClient) -> Check:
    started = time.monotonic()
    try:
        health = await hub.health()
    except ConfigError as error:
        return failed("connection", str(error), "see ROLECALL_CA_FILE", EXIT_CODES["CONFIG"])
    except HubUnreachable as error:
        return failed("hub", str(error), error.hint, EXIT_CODES["HUB_UNREACHABLE"])
    except (AuthError, Forbidden) as error:
        return failed("hub", str(error), _NO_TOKEN, _REFUSED)
    except RolecallError as error:
        fix = "does --hub (ROLECALL_HUB) name the hub itself, with the right port and no path?"
        return failed("hub", str(error), fix, EXIT_CODES["NOT_A_HUB"])
    took = duration(time.monotonic() - started)
    if "uptime_seconds" not in health or "checks" not in health:
        fix = "does --hub (ROLECALL_HUB) name the hub itself, with the right port and no path?"
        return failed("hub", f"what answers at {hub.url} is not a hub", fix, EXIT_CODES["NOT_A_HUB"])
    if health.get("status") != "ok":
        missing = [name for name, ok in health["checks"].items() if not ok]
        hints = [hint for name, hint in _FIX_OF.items() if name in missing]
        about = f"{hub.url} is not healthy: {', '.join(missing)}{_room(health.get('disk'))}"
        return failed("hub", about, "\n".join(hints) or "see its log", EXIT_CODES["NOT_WELL"])
    disk = f", {disk_use(found)}" if isinstance(found := health.get("disk"), dict) else ""
    return passed("hub", f"{hub.url}, version {health.get('version')}, {took}{disk}")


def _room(disk: object) -> str:
    """How much room the hub's disk has, if the hub tells."""
    if not isinstance(disk, dict) or "free" not in disk:
        return ""
    return f" ({size(disk['free'])} free on its disk, of which it keeps {size(disk['reserve'])})"


async def _token(hub: HubClient, token: str | None) -> Check:
    try:
        await hub.roles()
        needed = await hub.asks_for_a_token()
    except AuthError as error:
        if error.reason == "NO_TOKENS":
            return failed("token", str(error), _NO_TOKEN, _REFUSED)
        fix = _OTHER_TOKEN if token else _NO_TOKEN
        about = "the hub does not know this token" if token else "the hub requires a token, and none is given"
        return failed("token", about, fix, _REFUSED)
    except RolecallError as error:
        return failed("token", str(error), error.hint, EXIT_CODES.get(error.reason, 1))
    if needed:
        return passed("token", "accepted; the hub requires one")
    return passed("token", "the hub requires none" + (", and ignores the one that is given" if token else ""))


# --- workers


async def _workers(hub: HubClient, role: str | None) -> AsyncGenerator[Check, None]:
    try:
        found = [agent for agent in await hub.discover_agents(role=role) if agent.role != DOCTOR_ROLE]
    except RolecallError as error:
        yield failed("workers", str(error), error.hint, EXIT_CODES.get(error.reason, 1))
        return
    if not found:
        fix = "start one: rolecall worker run MODULE:WORKER, or rolecall announce ROLE URL"
        code = EXIT_CODES["NO_LIVE_WORKER"]
        yield failed("workers", f'none is live under "{role}"', fix, code) if role else skipped("workers", "none is live")
    for agent in found:
        yield await _reach(hub, agent)
        yield await _card(hub, agent)


async def _reach(hub: HubClient, agent: AgentInfo) -> Check:
    name = f"worker {agent.name}"
    try:
        reached = await hub.probe_agent(agent.name)
    except (AuthError, Forbidden):
        return skipped(name, "only an admin token can let the hub connect to a worker")
    except RolecallError as error:
        return failed(name, str(error), error.hint)
    if not reached:
        return failed(name, f"the hub cannot connect to {agent.url}", _UNREACHABLE)
    return passed(name, f"the hub reaches it at {agent.url}")


async def _card(hub: HubClient, agent: AgentInfo) -> Check:
    name = f"card of {agent.name}"
    try:
        card = (await hub.agent(agent.name)).card
    except RolecallError as error:
        return failed(name, str(error), error.hint)
    if set(card) <= _WITHOUT_A_CARD:
        return passed(name, "it enrolled without one; the hub calls it in 0.3")
    wrong = list(_faults_of(card))
    if wrong:
        return failed(name, "; ".join(wrong), "correct the card that the worker serves and enrols with; then restart it")
    dialects = sorted({interface.dialect for interface in interfaces(card, "")}, reverse=True)
    return passed(name, f"A2A {', '.join(dialects)}; skills: {', '.join(str(skill['id']) for skill in card['skills'])}")


def _faults_of(card: dict[str, object]) -> Iterator[str]:
    if not isinstance(card.get("name"), str) or not card["name"]:
        yield "it has no name"
    if interfaces(card, "") == (Interface("", JSONRPC, "0.3"),):
        yield "it names no http address with a transport and an A2A version (0.3, 1.0) that the hub supports"
    skills = card.get("skills")
    if not isinstance(skills, list) or not skills:
        yield "it names no skill"
    elif not all(isinstance(skill, dict) and skill.get("id") and skill.get("name") for skill in skills):
        yield "a skill has no id or no name"


# --- a call and a stream


async def _through_the_hub(hub: HubClient, token: str | None) -> AsyncGenerator[Check, None]:
    """With a worker of our own, whose answer is known. The tasks are erased."""
    with _quiet():
        async with _own_worker(hub, token) as (worker, failure), _erased(hub) as made:
            if failure:
                yield skipped("round trip", failure)
                yield skipped("stream", failure)
                return
            yield await _round_trip(hub, worker.name, made)
            yield await _streaming(hub, worker.name, made)


@asynccontextmanager
async def _erased(hub: HubClient) -> AsyncIterator[list[str]]:
    """Erase the tasks whose ids are in the list. What cannot be erased goes with its retention."""
    made: list[str] = []
    try:
        yield made
    finally:
        for task_id in made:
            with suppress(RolecallError):
                await hub.erase_task(task_id)


@asynccontextmanager
async def _own_worker(hub: HubClient, token: str | None) -> AsyncIterator[tuple[Worker, str]]:
    """A worker, and why it could not enrol; empty if it did."""
    worker = Worker(DOCTOR_ROLE, instance=token_hex(6), description="temporary worker of rolecall doctor")
    worker.on_message(_answer)
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_change(state: LeaseState, why: str) -> None:
        if not outcome.done():
            outcome.set_result("" if state is LeaseState.READY else why)

    host = urlsplit(url_towards(hub.url, 0)).hostname or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family)
    listener.setblocking(False)
    url = url_towards(hub.url, listener.getsockname()[1])
    worker.url = url
    ended = asyncio.Event()
    server = asyncio.create_task(serve_http(worker, listener, ended), name="server of the doctor's worker")
    lease = Lease(worker.role, worker.instance, url=url, hub=hub.url, token=token, card=worker.card(url), on_change=on_change)
    try:
        async with lease:
            await asyncio.wait([outcome], timeout=_PATIENCE)
            yield worker, outcome.result() if outcome.done() else "the hub did not answer the enrolment"
    finally:
        ended.set()
        await server


async def _answer(message: Message) -> AsyncIterator[str]:
    """Repeat the text; if it requests a stream, send pieces at an interval."""
    if message.text != _STREAM:
        yield message.text
        return
    for piece in range(PIECES):
        yield str(piece)
        await asyncio.sleep(INTERVAL)


async def _round_trip(hub: HubClient, name: str, made: list[str]) -> Check:
    """`made` gets the id of its task."""
    text, started = token_hex(8), time.monotonic()
    try:
        reply = (await hub.send_to_agent(name, text, timeout=_PATIENCE)).raise_for_state()
    except (AuthError, Forbidden):
        return skipped("round trip", "this token can enrol workers, but not call them")
    except RolecallError as error:
        made += [error.task_id] if error.task_id else []
        return failed("round trip", str(error), _UNREACHABLE)
    made += [reply.task_id] if reply.task_id else []
    if reply.text != text:
        return failed("round trip", "the answer is not what the worker sent", "check whether a proxy changes responses")
    return passed("round trip", f"a message came back in {duration(time.monotonic() - started)}")


async def _streaming(hub: HubClient, name: str, made: list[str]) -> Check:
    """Pieces that are sent at an interval arrive at an interval. `made` gets the id of its task."""
    stream = hub.stream_to_agent(name, _STREAM, give_up_after=1.0)
    try:
        async with asyncio.timeout(_PATIENCE), stream:
            times = [time.monotonic() async for event in stream if event.text]
    except (AuthError, Forbidden):
        return skipped("stream", "this token can enrol workers, but not call them")
    except (RolecallError, TimeoutError) as error:
        return failed("stream", str(error) or "it did not end in time", _BUFFERED)
    finally:
        made += [stream.task_id] if stream.task_id else []
    sent, received = INTERVAL * (PIECES - 1), times[-1] - times[0] if times else 0.0
    if received < sent / 2:
        about = f"{len(times)} events sent over {duration(sent)} arrived within {duration(received)}: the stream is buffered"
        return failed("stream", about, _BUFFERED)
    return passed("stream", f"unbuffered: {len(times)} events over {duration(received)}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the log of the doctor's worker: its checks report the same."""
    log = logging.getLogger("worker_sdk")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
