"""The forwarder against scripted workers on real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from base64 import b64encode
from functools import partial
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from hub.outbound.answers import AnswerLimits
from hub.outbound.client import Client
from hub.outbound.forwarder import HttpForwarder
from hub.ports.forwarder import Attach, Dispatch
from rolecall.errors import CredentialRefused, InvalidAnswer, WorkerBroke, WorkerFault, WorkerRefused, WorkerUnreachable
from rolecall.model.a2a import EventKind, Ids, TaskState, WorkerEvent
from rolecall.model.command import Send, Target
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.value import replace
from rolecall.model.worker import Offer
from tests.helpers.listening import Listener, collect_events
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

IDS = Ids(TaskId("t-hub"), "c-hub", "t-worker", "c-worker")
BUSY = {"code": -32000, "message": "no", "data": [{"reason": "WORKER_BUSY"}]}

pytestmark = pytest.mark.virtual_time


def offer(url: str, *, streaming: bool = True, replays: bool = False) -> Offer:
    return Offer(WorkerId("echo", "1"), url, streaming=streaming, replays=replays)


def dispatch(*, remaining: float | None = None, **members: Any) -> Dispatch:
    message = {"kind": "message", "role": "user", "messageId": "m-1", "parts": [{"kind": "text", "text": "hello"}]}
    send = Send(Target(), {"message": message}, "0.3", "m-1", **members)
    return Dispatch(send, Ids(TaskId("t-hub"), "c-hub"), {}, remaining)


def result(value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "t-hub", "result": value}).encode()


def fault(error: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "t-hub", "error": error}).encode()


def task(state: str = "completed") -> dict[str, Any]:
    return {"kind": "task", "id": "t-worker", "contextId": "c-worker", "status": {"state": state}}


def status(state: str) -> dict[str, Any]:
    return {"kind": "status-update", "taskId": "t-worker", "contextId": "c-worker", "status": {"state": state}}


async def collect(client: Client, url: str, *, streaming: bool = True, replays: bool = False) -> list[WorkerEvent]:
    return await collect_events(
        partial(HttpForwarder(client).deliver, "default", offer(url, streaming=streaming, replays=replays), dispatch())
    )


async def test_a_stream_gives_its_events_in_order(client: Client) -> None:
    async with RawServer(always(stream(frame(result(task("working"))), frame(result(status("completed")))))) as server:
        received = await collect(client, server.url)
    assert [(one.kind, one.state) for one in received] == [
        (EventKind.TASK, TaskState.WORKING),
        (EventKind.STATUS, TaskState.COMPLETED),
    ]
    (request,) = server.requests
    assert json.loads(request.body)["method"] == "message/stream"
    assert request.headers["accept"] == "text/event-stream, application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert "traceparent" not in request.headers


async def test_a_worker_that_cannot_stream_is_asked_not_to_block(client: Client) -> None:
    async with RawServer(always(answer(result(task())))) as server:
        (received,) = await collect(client, server.url, streaming=False)
    assert received.state is TaskState.COMPLETED
    body = json.loads(server.requests[0].body)
    assert body["method"] == "message/send"
    assert body["params"]["configuration"]["blocking"] is False
    assert server.requests[0].headers["accept"] == "application/json"


async def test_a_json_answer_to_a_stream_call_is_one_event(client: Client) -> None:
    async with RawServer(always(answer(result(task())))) as server:
        (received,) = await collect(client, server.url)
    assert received.kind is EventKind.TASK


async def test_events_that_arrive_together_are_one_batch_and_a_comment_is_an_empty_batch(client: Client) -> None:
    taken = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(frame(result(task("working"))) + frame(result(status("working")))))
        await taken.wait()
        await peer.write(chunk(b": still here\n\n") + LAST_CHUNK)

    async with RawServer(script) as server:
        listener = Listener()
        HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
        assert len(await listener.next()) == 2
        taken.set()
        assert len(await listener.next()) == 0
        await listener.end()


@pytest.mark.parametrize("replays", [True, False])
async def test_positions_are_read_only_from_workers_that_replay(client: Client, replays: bool) -> None:
    async with RawServer(always(stream(frame(result(task()), id="boot.7")))) as server:
        (received,) = await collect(client, server.url, replays=replays)
    assert received.position == ("boot.7" if replays else None)


async def test_attach_sends_the_position(client: Client) -> None:
    async with RawServer(always(stream(frame(result(status("completed")))))) as server:
        attach = Attach(IDS, "boot.7")
        received = await collect_events(partial(HttpForwarder(client).attach, "default", offer(server.url), attach))
        assert [one.state for one in received] == [TaskState.COMPLETED]
    (request,) = server.requests
    assert json.loads(request.body) == {
        "jsonrpc": "2.0",
        "id": "t-hub",
        "method": "tasks/resubscribe",
        "params": {"id": "t-worker"},
    }
    assert request.headers["last-event-id"] == "boot.7"


async def test_the_trace_and_the_remaining_time_are_headers(client: Client) -> None:
    async with RawServer(always(answer(result(task())))) as server:
        for sent in (
            dispatch(),
            dispatch(trace="00-1", trace_state="a=1", remaining=2.5),
            dispatch(trace_state="a=1", remaining=-1),
        ):
            assert len(await collect_events(partial(HttpForwarder(client).deliver, "default", offer(server.url), sent))) == 1
    names = ("traceparent", "tracestate", "a2a-remaining")
    found = [tuple(request.headers.get(name) for name in names) for request in server.requests]
    assert found == [(None, None, None), ("00-1", "a=1", "2.500"), (None, None, "0.000")]


@pytest.mark.parametrize(("hops", "header"), [(0, "1"), (3, "4")])
async def test_each_hub_adds_one_hop(client: Client, hops: int, header: str) -> None:
    async with RawServer(always(answer(result(task())))) as server:
        assert (
            len(await collect_events(partial(HttpForwarder(client).deliver, "default", offer(server.url), dispatch(hops=hops))))
            == 1
        )
    assert server.requests[0].headers["a2a-hop"] == header


async def test_fetch_and_cancel_name_the_workers_task(client: Client) -> None:
    async with RawServer(always(answer(result(task("working"))))) as server:
        forwarder = HttpForwarder(client)
        assert (await forwarder.fetch("default", offer(server.url), IDS)).state is TaskState.WORKING
        await forwarder.cancel("default", offer(server.url), IDS)
    bodies = [json.loads(request.body) for request in server.requests]
    assert [(one["method"], one["params"]["id"]) for one in bodies] == [("tasks/get", "t-worker"), ("tasks/cancel", "t-worker")]
    assert len(server.peers) == 1


async def test_fetch_has_a_timeout(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.gone()

    async with RawServer(script) as server:
        with pytest.raises(WorkerBroke, match=r"within 0\.05 s"):
            await HttpForwarder(client, AnswerLimits(reply_timeout=0.05)).fetch("default", offer(server.url), IDS)


async def test_an_unknown_task_is_the_workers_own_error(client: Client) -> None:
    async with RawServer(always(answer(fault({"code": -32001, "message": "Task not found"})))) as server:
        with pytest.raises(WorkerFault) as caught:
            await HttpForwarder(client).fetch("default", offer(server.url), IDS)
    assert (caught.value.code, caught.value.text) == (-32001, "Task not found")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Task not found: t-worker", "Task not found: t-hub"),
        ("t-worker (of c-worker) is over", "t-hub (of c-hub) is over"),
        ('no "t-other" for t-worker', 'no "t-named" for t-hub'),
        ("xt-worker t-worker-2 t-worker_3", "xt-worker t-worker-2 t-worker_3"),
    ],
)
async def test_an_error_names_tasks_and_contexts_by_the_hubs_ids(client: Client, text: str, expected: str) -> None:
    refusal = fault({"code": -32001, "message": text})
    sent = replace(dispatch(), ids=IDS, references={"t-named": "t-other"})
    async with RawServer(always(answer(refusal))) as server:
        with pytest.raises(WorkerFault) as caught:
            await collect_events(partial(HttpForwarder(client).deliver, "default", offer(server.url), sent))
        assert caught.value.text == expected
        if "t-other" not in text:
            for ask in (HttpForwarder(client).fetch, HttpForwarder(client).cancel):
                with pytest.raises(WorkerFault) as caught:
                    await ask("default", offer(server.url), IDS)
                assert caught.value.text == expected


async def test_an_error_of_a_stream_names_its_task_by_the_hubs_id(client: Client) -> None:
    """The hub learns the worker's ids by the same stream."""
    refusal = fault({"code": -32602, "message": "t-worker of c-worker is over"})
    async with RawServer(always(stream(frame(result(task("working"))), frame(refusal)))) as server:
        with pytest.raises(WorkerFault) as caught:
            await collect(client, server.url)
    assert caught.value.text == "t-hub of c-hub is over"


async def test_probe_reports_whether_a_port_listens(client: Client) -> None:
    async with RawServer(always(b"")) as server:
        assert await HttpForwarder(client).probe("default", offer(server.url))
    assert not await HttpForwarder(client).probe("default", offer(server.url))


async def test_a_closed_port_is_unreachable(client: Client) -> None:
    async with RawServer(always(b"")) as server:
        pass
    with pytest.raises(WorkerUnreachable, match="connection refused") as caught:
        await collect(client, server.url)
    assert caught.value.refused
    with pytest.raises(WorkerUnreachable, match="its URL") as caught:
        await collect(client, "ftp://w/")
    assert not caught.value.refused


@pytest.mark.parametrize(
    "data",
    [
        answer(b"", status="503 Service Unavailable", more="X-Not-Processed: 1\r\n"),
        answer(fault(BUSY)),
        answer(fault(BUSY), status="503 Service Unavailable"),
        stream(frame(fault(BUSY))),
        answer(fault({**BUSY, "data": {"reason": "WORKER_BUSY"}})),
    ],
)
async def test_a_worker_that_did_nothing_may_be_passed_over(client: Client, data: bytes) -> None:
    async with RawServer(always(data)) as server:
        with pytest.raises(WorkerRefused):
            await collect(client, server.url)


async def test_busy_after_an_event_is_no_refusal(client: Client) -> None:
    async with RawServer(always(stream(frame(result(task("working"))) + frame(fault(BUSY))))) as server:
        listener = Listener()
        HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
        with pytest.raises(WorkerFault):
            await listener.end()
        assert len(listener.events) == 1


@pytest.mark.parametrize("code", ["400 Bad Request", "500 Internal Server Error"])
async def test_an_error_status_with_a_json_rpc_error_is_the_workers_fault(client: Client, code: str) -> None:
    async with RawServer(always(answer(fault({"code": -32602, "message": "bad"}), status=code))) as server:
        with pytest.raises(WorkerFault, match="bad"):
            await collect(client, server.url)


@pytest.mark.parametrize(
    ("code", "kind", "shown", "why"),
    [
        ("401 Unauthorized", "application/json", True, "it does not accept the hub's credential (HTTP 401)"),
        ("401 Unauthorized", "text/html", True, "it does not accept the hub's credential (HTTP 401)"),
        ("401 Unauthorized", "application/json", False, "it asks for a credential (HTTP 401), and the hub has none for it"),
        ("403 Forbidden", "application/json", True, "it does not accept the hub's credential (HTTP 403)"),
        ("403 Forbidden", "text/html", False, None),
    ],
)
async def test_a_worker_that_does_not_let_the_hub_in_is_told_as_that(
    client: Client, code: str, kind: str, shown: bool, why: str | None
) -> None:
    vault = SealingVault(random_key())
    sealed = b64encode(vault.seal(b"Bearer old")).decode() if shown else ""
    refusal = answer(fault({"code": -32000, "message": "who?"}), status=code, kind=kind)
    async with RawServer(always(refusal)) as server:
        for ask in ("deliver", "fetch"):
            forwarder, target = HttpForwarder(client, vault=vault), dataclasses.replace(offer(server.url), credential=sealed)
            with pytest.raises(InvalidAnswer if why is None else CredentialRefused) as caught:
                if ask == "fetch":
                    await forwarder.fetch("default", target, IDS)
                else:
                    listener = Listener()
                    forwarder.deliver("default", target, dispatch(), listener)
                    await listener.end()
            if isinstance(caught.value, CredentialRefused):
                assert (caught.value.why, caught.value.copy().message) == (why, f"{target.worker} cannot be called: {why}.")


SECRET = b"s3cret-of-the-worker"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (answer(b"<html>" + SECRET, kind="text/html"), "HTML page"),
        (answer(SECRET, kind="text/plain; x=s3cret-of-the-worker"), "neither JSON"),
        (answer(b"", kind="application/json"), "not a JSON-RPC response"),
        (answer(b"{" + SECRET), "not a JSON-RPC response"),
        (answer(b'{"jsonrpc":"2.0","result":NaN}'), "not a JSON-RPC response"),
        (answer(b'["' + SECRET + b'"]'), "not a JSON-RPC response"),
        (answer(b'{"jsonrpc":"2.0"}'), "not a JSON-RPC response"),
        (answer(result({"kind": SECRET.decode()})), "no known kind"),
        (answer(SECRET, status="502 Bad Gateway"), "HTTP 502"),
        (answer(SECRET, status="404 Not Found", kind="text/html"), "HTTP 404"),
        (answer(SECRET, status="302 Found", more="Location: http://169.254.169.254/\r\n"), "no redirects"),
        (answer(SECRET, status="307 Moved", more="Location: /other\r\n"), "no redirects"),
        (stream(frame(SECRET)), "not a JSON-RPC response"),
        (stream(frame(result(["x"]))), "not an object"),
    ],
)
async def test_what_is_not_a2a_is_refused_without_quoting_it(client: Client, data: bytes, why: str) -> None:
    async with RawServer(always(data)) as server:
        with pytest.raises(InvalidAnswer, match=why) as caught:
            await collect(client, server.url)
    assert "s3cret" not in str(caught.value)
    assert len(server.requests) == 1


async def test_events_before_a_malformed_one_still_count(client: Client) -> None:
    async with RawServer(always(stream(frame(result(task("working"))) + frame(b"{") + frame(result(task()))))) as server:
        listener = Listener()
        HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
        with pytest.raises(InvalidAnswer):
            await listener.end()
        assert [one.state for one in listener.events] == [TaskState.WORKING]


@pytest.mark.parametrize("cut", ["reset", "close"])
async def test_a_cut_stream_is_not_a_normal_end(client: Client, cut: str) -> None:
    first_received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(frame(result(task("working")))))
        await first_received.wait()
        if cut == "reset":
            peer.reset()

    async with RawServer(script) as server:
        listener = Listener()
        HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
        await listener.until(lambda: listener.events)
        first_received.set()
        with pytest.raises(WorkerBroke, match="cut off"):
            await listener.end()
        assert len(listener.events) == 1


def until_closed(body: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body)

    return script


async def test_a_stream_without_a_length_ends_with_its_connection(client: Client) -> None:
    async with RawServer(until_closed(frame(result(task())))) as server:
        assert len(await collect(client, server.url)) == 1


@pytest.mark.parametrize("data", [frame(result(task()))[:-1], frame(result(task()))[:-9]])
async def test_an_end_within_an_event_is_a_cut(client: Client, data: bytes) -> None:
    async with RawServer(until_closed(data)) as server:
        with pytest.raises(WorkerBroke, match="within an event"):
            await collect(client, server.url)


async def test_an_endless_line_is_cut_at_the_limit(client: Client) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.write(chunked_head() + chunk(b"data: "))
        piece = chunk(b"x" * 65536)
        while sent < 64 * 1024 * 1024:
            await peer.write(piece)
            sent += len(piece)

    async with RawServer(script) as server:
        with pytest.raises(InvalidAnswer, match=r"an event of more than 1048576 bytes.*ROLECALL_MAX_EVENT"):
            forwarder = HttpForwarder(client, AnswerLimits(max_event=1024 * 1024))
            await collect_events(partial(forwarder.deliver, "default", offer(server.url), dispatch()))
    # At most what the limit, the client's buffer and the kernel's buffers hold.
    assert sent < 16 * 1024 * 1024


async def test_an_answer_that_is_too_long_is_cut(client: Client) -> None:
    async with RawServer(always(answer(b" " * 5000))) as server:
        forwarder = HttpForwarder(client, AnswerLimits(max_answer=4096))
        with pytest.raises(InvalidAnswer, match=r"more than 4096 bytes.*ROLECALL_MAX_LOG"):
            await forwarder.fetch("default", offer(server.url), IDS)
        with pytest.raises(InvalidAnswer, match=r"more than 4096 bytes.*ROLECALL_MAX_LOG"):
            await collect_events(partial(forwarder.deliver, "default", offer(server.url), dispatch()))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
async def test_a_stream_cut_in_two_anywhere_gives_the_same_events(client: Client, line_end: bytes) -> None:
    data = b": hi\n\n" + frame(result(task("working")), id="b.1") + b"event: x\n" + frame(result(status("completed")), id="b.2")
    data = data.replace(b"\n", line_end)
    positions = iter(range(1, len(data)))

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            at = next(positions)
            await peer.write(chunked_head() + chunk(data[:at]))
            await asyncio.sleep(0.0005)
            await peer.write(chunk(data[at:]) + LAST_CHUNK)

    async with RawServer(script) as server:
        for _ in range(1, len(data)):
            received = await collect(client, server.url, replays=True)
            assert [(one.state, one.position) for one in received] == [(TaskState.WORKING, "b.1"), (TaskState.COMPLETED, "b.2")]
        assert len(server.peers) == 1


async def test_cancelling_early_closes_the_connection(client: Client) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(frame(result(task("working")))))
        await peer.gone()
        gone.set()

    async with RawServer(script) as server:
        listener = Listener()
        call = HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
        await listener.until(lambda: listener.events)
        call.hang_up()
        async with asyncio.timeout(2):
            await gone.wait()


async def test_the_connection_is_kept_after_the_last_event(client: Client) -> None:
    done, ended = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            await peer.write(chunked_head() + chunk(frame(result(task()))))
            await done.wait()
            await peer.write(chunk(b": the end comes a moment later\n\n") + LAST_CHUNK)
            ended.set()

    async with RawServer(script) as server:
        for _ in range(3):
            done.clear()
            ended.clear()
            listener = Listener()
            call = HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
            assert len(await listener.next()) == 1
            call.hang_up()
            done.set()
            await ended.wait()
            await all_read()
        assert len(server.peers) == 1


async def test_a_worker_that_goes_on_after_its_last_event_is_cut_off(client: Client) -> None:
    cut = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(frame(result(task()))))
        piece = chunk(b": more\n\n" * 1000)
        try:
            while True:
                await peer.write(piece)
        finally:
            cut.set()

    async with RawServer(script) as server:
        listener = Listener()
        call = HttpForwarder(client).deliver("default", offer(server.url), dispatch(), listener)
        await listener.until(lambda: listener.events)
        call.hang_up()
        async with asyncio.timeout(0.9):
            await cut.wait()
