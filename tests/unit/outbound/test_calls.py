"""What a call to a worker tells its listener, and when: against scripted workers on real sockets."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hub.core.shares.slots import WorkspaceSlots
from hub.identity.vault import SealingVault, random_key
from hub.outbound.answers import AnswerLimits
from hub.outbound.client import Client, ClientLimits
from hub.outbound.forwarder import HttpForwarder
from hub.outbound.url import ParsedUrl
from hub.outbound.worker_guard import Guard
from hub.ports.forwarder import Dispatch, OpenCall
from rolecall.errors import (
    GoesInCircles,
    InvalidAnswer,
    InvalidParams,
    SecretUnreadable,
    WorkerBroke,
    WorkerFull,
    WorkerRefused,
    WorkerUnreachable,
)
from rolecall.model.a2a import Ids, TaskState
from rolecall.model.command import Send, Target
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.worker import Offer
from tests.helpers.listening import Listener
from tests.helpers.raw_server import (
    LAST_CHUNK,
    Peer,
    RawServer,
    Script,
    all_read,
    always,
    answer,
    chunk,
    chunked_head,
    frame,
    stream,
)

GUARD = Guard([], [], allow_loopback=True)
IDS = Ids(TaskId("t-hub"), "c-hub")

pytestmark = pytest.mark.virtual_time


def offer(url: str) -> Offer:
    return Offer(WorkerId("echo", "1"), url, streaming=True)


def message(name: str = "m-1", text: str = "hello") -> dict[str, Any]:
    return {"kind": "message", "role": "user", "messageId": name, "parts": [{"kind": "text", "text": text}]}


def dispatch(text: str = "hello") -> Dispatch:
    return Dispatch(Send(Target(), {"message": message(text=text)}, "0.3", "m-1"), IDS, {})


def deliver(client: Client, url: str, listener: Listener, **limits: Any) -> OpenCall:
    return HttpForwarder(client, AnswerLimits(**limits)).deliver("default", offer(url), dispatch(), listener)


def status(state: str, text: str = "") -> bytes:
    """A frame."""
    update: dict[str, Any] = {"kind": "status-update", "taskId": "t-worker", "contextId": "c", "status": {"state": state}}
    return frame(json.dumps({"jsonrpc": "2.0", "id": "t-hub", "result": {**update, "metadata": {"text": text}}}).encode())


WORKING, COMPLETED = status("working"), status("completed")


def open_stream(*chunks: bytes) -> Script:
    """Answers with the beginning of a stream, and nothing more."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + b"".join(map(chunk, chunks)))
        await peer.gone()

    return script


async def connected(client: Client, server: RawServer) -> None:
    """Leave an idle connection in the pool."""
    listener = Listener()
    deliver(client, server.url, listener)
    await listener.end()


# --- when


async def test_nothing_is_told_from_within_the_call_that_starts() -> None:
    unreadable = b64encode(b"not a secret").decode()
    async with (
        RawServer(always(stream(COMPLETED))) as server,
        RawServer(open_stream()) as full,
        Client(GUARD, ClientLimits(per_origin=1)) as client,
    ):
        await connected(client, server)
        deliver(client, full.url, Listener())
        for target, error in (
            (offer(server.url), None),
            (offer(full.url), WorkerFull),
            (offer("http://no.example:x/"), WorkerUnreachable),
            (offer("http://169.254.169.254/"), WorkerUnreachable),
            (replace(offer(server.url), credential=unreadable), SecretUnreadable),
        ):
            listener = Listener()
            HttpForwarder(client, vault=SealingVault(random_key())).deliver("default", target, dispatch(), listener)
            assert (listener.batches, listener.closed_with) == ([], [])
            await listener.until(lambda: listener.closed_with)  # noqa: B023 - awaited at once
            assert [type(one) for one in listener.closed_with] == [type(None) if error is None else error]
        assert len(server.requests) == 2


async def test_a_message_that_the_worker_cannot_be_told_is_refused_at_once(client: Client) -> None:
    listener = Listener()
    message = {"role": "ROLE_USER", "messageId": "m-1", "parts": [{}]}
    untranslatable = Dispatch(Send(Target(), {"message": message}, "1.0", "m-1"), IDS, {})
    with pytest.raises(InvalidParams):
        HttpForwarder(client).deliver("default", offer("http://127.0.0.1:1/"), untranslatable, listener)
    await all_read()
    assert listener.closed_with == []


async def test_on_an_idle_connection_a_call_is_written_at_once_and_needs_no_task(client: Client) -> None:
    async with RawServer(always(stream(WORKING, COMPLETED))) as server:
        await connected(client, server)
        listener = Listener()
        before = asyncio.all_tasks()
        deliver(client, server.url, listener)
        assert asyncio.all_tasks() == before
        listener.on_change = lambda: tasks.append(asyncio.all_tasks() - before)
        tasks: list[Any] = []
        await listener.end()
        assert tasks == [set()] * len(tasks)
        assert len(server.peers) == 1


async def test_a_head_alone_is_a_sign_of_life(client: Client) -> None:
    goes_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head())
        await goes_on.wait()
        await peer.write(chunk(WORKING) + b"0\r\n\r\n")

    async with RawServer(script) as server:
        listener = Listener()
        deliver(client, server.url, listener)
        await listener.until(lambda: listener.batches)
        goes_on.set()
        await listener.end()
        assert [len(batch) for batch in listener.batches] == [0, 1]


async def test_a_head_with_events_is_told_by_them(client: Client) -> None:
    async with RawServer(always(stream(WORKING))) as server:
        listener = Listener()
        deliver(client, server.url, listener)
        await listener.end()
        assert [len(batch) for batch in listener.batches] == [1]


@pytest.mark.parametrize("data", [answer(b"{}", status="500 Oops"), answer(b"", kind="text/html"), b"HTTP/1.1 200 OK\r\n"])
async def test_a_refused_head_is_no_sign_of_life(client: Client, data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(data)

    async with RawServer(script) as server:
        listener = Listener()
        deliver(client, server.url, listener)
        with pytest.raises((InvalidAnswer, WorkerBroke)):
            await listener.end()
        assert listener.batches == []


# --- the end


async def test_the_end_is_told_once_whatever_follows(client: Client) -> None:
    async with RawServer(always(stream(COMPLETED))) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        await listener.end()
        call.pause()
        call.resume()
        await client.aclose()
        await all_read()
        call.hang_up()
        await all_read()
        assert listener.closed_with == [None]


async def test_closing_the_client_ends_every_call() -> None:
    policy = SlowPolicy()
    client, slow = Client(GUARD), Client(policy)
    async with RawServer(open_stream(WORKING)) as server:
        listening, connecting, late = Listener(), Listener(), Listener()
        deliver(client, server.url, listening)
        deliver(slow, server.url, connecting)
        await listening.until(lambda: listening.events)
        await policy.asked.wait()
        await client.aclose()
        await slow.aclose()
        deliver(client, server.url, late)
        with pytest.raises(WorkerBroke):
            await listening.end()
        for listener in (connecting, late):
            with pytest.raises(WorkerRefused, match="closing"):
                await listener.end()
        assert len(server.requests) == 1


@pytest.mark.parametrize("paused", [False, True])
async def test_events_before_a_cut_are_told_first(client: Client, paused: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(WORKING + COMPLETED))

    async with RawServer(script) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        if paused:
            call.pause()
            await asyncio.sleep(0.05)
            assert (listener.batches, listener.closed_with) == ([], [])
            call.resume()
        with pytest.raises(WorkerBroke, match="cut off"):
            await listener.end()
        assert [one.state for one in listener.events] == [TaskState.WORKING, TaskState.COMPLETED]


async def test_a_listener_that_pauses_at_the_event_before_a_malformed_one_is_told_the_error_later(client: Client) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(WORKING + frame(b"{")))
        await peer.gone()
        gone.set()

    async with RawServer(script) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        listener.on_change = lambda: call.pause() if listener.events else None
        await listener.until(lambda: listener.events)
        # What follows does not count, so the connection is not kept for it.
        await gone.wait()
        assert listener.closed_with == []
        call.resume()
        with pytest.raises(InvalidAnswer):
            await listener.end()
        assert len(listener.events) == 1


async def test_an_error_body_without_an_end_has_a_timeout(client: Client) -> None:
    head = b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(head)
        await peer.gone()

    async with RawServer(script) as server:
        listener = Listener()
        deliver(client, server.url, listener, reply_timeout=0.05)
        with pytest.raises(WorkerBroke, match="no end to it"):
            await listener.end()


async def test_the_first_failure_of_an_answer_is_the_one_that_is_told(client: Client) -> None:
    async with RawServer(always(stream(frame(b"{") + b"data: unfinished"))) as server:
        listener = Listener()
        deliver(client, server.url, listener)
        with pytest.raises(InvalidAnswer):
            await listener.end()


async def test_a_request_that_is_answered_before_it_is_taken_may_be_taken_later() -> None:
    async def script(peer: Peer) -> None:
        await peer.write(chunked_head() + chunk(WORKING))
        await asyncio.sleep(0.3)
        await peer.write(chunk(COMPLETED) + LAST_CHUNK)

    async with RawServer(script) as server, Client(GUARD, ClientLimits(write=0.1)) as client:
        listener = Listener()
        HttpForwarder(client).deliver("default", offer(server.url), dispatch("x" * 50_000_000), listener)
        await listener.end()
        assert len(listener.events) == 2


async def test_an_answer_to_a_message_has_no_timeout(client: Client) -> None:
    async with RawServer(open_stream(WORKING)) as server:
        listener = Listener()
        deliver(client, server.url, listener, reply_timeout=0.01)
        await listener.until(lambda: listener.events)
        await asyncio.sleep(0.1)
        assert listener.closed_with == []


# --- hanging up


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_nothing_is_told_after_hanging_up(client: Client, at: int) -> None:
    """At the head, at the first piece of the events, and at the second."""
    events = [status("working", "x" * 1000) for _ in range(100)]
    async with RawServer(always(stream(*events))) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        listener.on_change = lambda: call.hang_up() if len(listener.batches) == at else None
        await listener.until(lambda: len(listener.batches) == at)
        await asyncio.sleep(0.05)
        assert len(listener.batches) == at
        assert listener.closed_with == []


async def test_hanging_up_before_the_answer_closes_the_connection(client: Client) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        asked.set()
        await peer.gone()
        gone.set()

    async with RawServer(script) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        await asked.wait()
        call.hang_up()
        await gone.wait()
        assert (listener.batches, listener.closed_with) == ([], [])


async def test_hanging_up_while_connecting_sends_nothing_and_gives_the_connection_back() -> None:
    policy = SlowPolicy()
    async with RawServer(always(stream(COMPLETED))) as server, Client(policy, ClientLimits(per_origin=1)) as client:
        for begun in (False, True):
            listener = Listener()
            policy.asked.clear()
            call = deliver(client, server.url, listener)
            if begun:
                await policy.asked.wait()
            call.hang_up()
            await all_read()
            assert listener.closed_with == []
        policy.resolved.set()
        await connected(client, server)
        assert len(server.requests) == 1


async def test_an_answer_that_has_ended_leaves_its_connection_to_the_next_call(client: Client) -> None:
    async with RawServer(always(stream(WORKING, COMPLETED))) as server:
        for _ in range(3):
            listener = Listener()
            call = deliver(client, server.url, listener)
            await listener.end()
            call.hang_up()
        assert len(server.peers) == 1


# --- pausing


async def test_a_paused_call_tells_nothing_and_holds_the_worker(client: Client) -> None:
    sent, total = 0, 64 * 1024 * 1024
    event = chunk(status("working", "x" * 50_000))

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.write(chunked_head())
        while sent < total:
            await peer.write(event)
            sent += len(event)
        await peer.write(chunk(COMPLETED) + LAST_CHUNK)

    async with RawServer(script) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        listener.on_change = lambda: call.pause() if len(listener.events) == 1 else None
        await listener.until(lambda: listener.events)
        known, before = len(listener.batches), -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert len(listener.batches) == known
        # What the hub's buffer and the kernel's buffers hold.
        assert sent < total / 4
        listener.on_change = lambda: None
        call.resume()
        assert len(listener.batches) == known
        await listener.end()
        assert len(listener.events) == total // len(event) + 2
        assert listener.events[-1].state is TaskState.COMPLETED


async def test_a_listener_that_pauses_at_every_batch_is_told_everything_in_order(client: Client) -> None:
    events = [status("working", f"{number} {'x' * 3000}") for number in range(200)]
    async with RawServer(always(stream(*events, COMPLETED))) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)
        listener.on_change = call.pause
        while not listener.closed_with:
            known = len(listener.batches)
            await listener.until(lambda: len(listener.batches) > known or listener.closed_with)  # noqa: B023 - awaited at once
            await all_read()
            assert len(listener.batches) + len(listener.closed_with) == known + 1
            call.resume()
        texts = [one.document["metadata"]["text"].split()[0] for one in listener.events[:-1]]
        assert texts == [str(number) for number in range(200)]
        assert listener.closed_with == [None]


async def test_a_call_that_is_paused_and_resumed_within_one_turn_goes_on(client: Client) -> None:
    async with RawServer(always(stream(*[status("working", "x" * 3000) for _ in range(50)], COMPLETED))) as server:
        listener = Listener()
        call = deliver(client, server.url, listener)

        def pause_and_resume() -> None:
            batches = len(listener.batches)
            call.pause()
            call.resume()
            assert len(listener.batches) == batches

        listener.on_change = pause_and_resume
        await listener.end()
        assert len(listener.events) == 51


async def test_the_loop_turns_between_the_pieces_of_a_large_answer(client: Client) -> None:
    """One piece a turn, so that one worker's flood does not keep the others waiting."""
    events = [status("working", "x" * 1000) for _ in range(150)]
    async with RawServer(always(stream(*events))) as server:
        listener, turns = Listener(), 0

        def count() -> None:
            nonlocal turns
            turns += 1
            if not listener.closed_with:
                asyncio.get_running_loop().call_soon(count)

        at_turn: list[int] = []

        def note() -> None:
            at_turn.append(turns)
            call.resume()
            call.resume()

        listener.on_change = note
        call = deliver(client, server.url, listener)
        count()
        await listener.end()
        assert all(len(batch) <= 17 for batch in listener.batches)
        pieces = at_turn[1:]
        assert len(set(pieces)) >= len(pieces) - 1


# --- pieces


class SlowPolicy:
    """Allows loopback, but only after `resolved`."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.resolved = asyncio.Event()

    async def addresses(self, target: ParsedUrl, workspace: str) -> Sequence[tuple[int, str]]:
        self.asked.set()
        await self.resolved.wait()
        return await GUARD.addresses(target)


# --- places for large events


MIB = 1024 * 1024


def large_stream(size: int, *, cut: int = 0) -> bytes:
    """A status with so many bytes; the last `cut` bytes are missing."""
    return status("completed", "x" * size)[: -cut or None]


async def test_an_event_above_a_mebibyte_waits_for_a_place_and_the_worker_counts_as_alive() -> None:
    slots = WorkspaceSlots("large events", 1, queue=0, setting="")
    other = slots.slot("default")
    await other.__aenter__()
    async with RawServer(always(chunked_head() + chunk(large_stream(2 * MIB)) + LAST_CHUNK)) as server, Client(GUARD) as client:
        forwarder, listener = HttpForwarder(client, AnswerLimits(sign_every=0.01), event_slots=slots), Listener()
        forwarder.deliver("default", offer(server.url), dispatch(), listener)
        await listener.until(lambda: slots.use.waiting)
        signs = len(listener.batches)
        await listener.until(lambda: len(listener.batches) >= signs + 5)
        assert not listener.events
        await other.__aexit__()
        await listener.end()
        (event,) = listener.events
        assert event.state is TaskState.COMPLETED
    assert slots.use.used == 0


async def test_a_smaller_event_needs_no_place() -> None:
    slots = WorkspaceSlots("large events", 1, queue=0, setting="")
    await slots.acquire("default")
    async with (
        RawServer(always(chunked_head() + chunk(large_stream(MIB // 2)) + LAST_CHUNK)) as server,
        Client(GUARD) as client,
    ):
        listener = Listener()
        HttpForwarder(client, event_slots=slots).deliver("default", offer(server.url), dispatch(), listener)
        await listener.end()
    assert len(listener.events) == 1


async def test_a_large_event_that_does_not_arrive_gives_its_place_to_others() -> None:
    slots = WorkspaceSlots("large events", 1, queue=0, setting="")
    async with RawServer(open_stream(large_stream(2 * MIB, cut=10))) as server, Client(GUARD) as client:
        forwarder, listener = HttpForwarder(client, AnswerLimits(large_timeout=0.1), event_slots=slots), Listener()
        forwarder.deliver("default", offer(server.url), dispatch(), listener)
        await listener.until(lambda: slots.use.used)
        with pytest.raises(WorkerBroke, match=r"the rest of a large event has not come within 0\.1 s"):
            await listener.end()
    assert slots.use.used == 0


@pytest.mark.parametrize("held", [True, False])
async def test_who_hangs_up_leaves_no_place_behind(held: bool) -> None:
    slots = WorkspaceSlots("large events", 1, queue=0, setting="")
    if not held:
        await slots.acquire("default")
    async with RawServer(open_stream(large_stream(2 * MIB, cut=10))) as server, Client(GUARD) as client:
        listener = Listener()
        limits = AnswerLimits(sign_every=0.01)  # the listener looks again when it is told something
        call = HttpForwarder(client, limits, event_slots=slots).deliver("default", offer(server.url), dispatch(), listener)
        await listener.until(lambda: slots.use.used if held else slots.use.waiting)
        call.hang_up()
        await all_read()
    if not held:
        slots.release("default")
    assert (slots.use.used, slots.use.waiting) == (0, 0)


# --- what another hub as a worker needs


async def test_each_message_of_a_task_has_a_key_of_its_own_and_a_repeat_has_the_same() -> None:
    able = replace(offer(""), replays=True)
    first, other = (Dispatch(Send(Target(), {"message": message(name)}, "0.3", name), IDS, {}) for name in ("m-1", "m-2"))
    later = [Dispatch(one.send, Ids(TaskId("t-hub"), "c-hub", "t-worker"), {}) for one in (first, other, other)]
    async with RawServer(always(stream(COMPLETED))) as server, Client(GUARD) as client:
        for one in (first, *later):
            listener = Listener()
            HttpForwarder(client).deliver("default", replace(able, url=server.url), one, listener)
            await listener.end()
        keys = [request.headers["idempotency-key"] for peer in server.peers for request in peer.requests]
    assert keys[0] == "t-hub"
    assert keys[2] == keys[3]
    assert len(set(keys)) == 3
    assert all(key.startswith("t-hub") and len(key) < 255 for key in keys)


async def test_a_circle_of_hubs_is_told_as_such() -> None:
    error = {"code": -32000, "message": "…", "data": [{"reason": "LOOP"}]}
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "error": error}).encode()
    async with RawServer(always(stream(frame(body)))) as server, Client(GUARD) as client:
        listener = Listener()
        deliver(client, server.url, listener)
        with pytest.raises(GoesInCircles, match="8 hubs"):
            await listener.end()
