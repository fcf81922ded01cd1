"""A stream of the client: it knows its task early, repeats no text that the reader had, and folds the task that it tells."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Sequence
from typing import Any

import pytest

from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, Script, always, answer, chunk, chunked_head
from tests.unit.worker_sdk.test_client import OPEN, fast, fault, frame, result, status_update, streamed, text_update
from worker_sdk import AuthError, HubBusy, HubClient, NoLiveWorker, RolecallError, StreamLost, TaskNotFound, TimedOut

pytestmark = pytest.mark.virtual_time

NAMED = chunked_head().replace(b"\r\n\r\n", b"\r\nA2A-Task: t1\r\n\r\n") + chunk(b": keep-alive\n\n")
DONE = status_update("completed", final=True)
OLD = {"artifactId": "old", "parts": [{"kind": "text", "text": "old "}, {"kind": "text", "text": "text"}]}
QUESTION = {"kind": "message", "role": "agent", "messageId": "q", "parts": [{"kind": "text", "text": "Sure?"}]}
WAITING = {**OPEN, "artifacts": [OLD], "status": {"state": "input-required", "message": QUESTION}}


def calls_of(server: RawServer) -> list[tuple[str, dict[str, Any]]]:
    bodies = [json.loads(request.body) for request in server.requests]
    return [(body["method"], body["params"]) for body in bodies]


def error_event(code: int, reason: str, **facts: str) -> bytes:
    return chunk(b"data: " + fault(code, reason, **facts) + b"\n\n")


def first(opening: bytes, *then: bytes) -> Script:
    """The first connection gets `opening` and is cut, unless that ends the answer; each later one the next of `then`."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(opening if peer.number == 1 else then[min(peer.number - 2, len(then) - 1)])
        if not opening.endswith(LAST_CHUNK) and peer.number == 1:
            await asyncio.sleep(0.02)
            peer.reset()
            return
        await peer.gone()

    return script


# --- the task's id


async def test_the_id_is_known_before_the_first_event_and_a_time_out_names_it() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        assert request is not None and request.headers["want-a2a-task"] == "1"
        await peer.write(NAMED)
        await peer.gone()

    async with RawServer(script) as server, HubClient(server.url) as hub:
        with pytest.raises(TimedOut, match="Its task t1 goes on") as caught:
            await hub.call("echo", "hi", timeout=0.05)
        async with hub.stream("echo", "hi") as stream:
            assert stream.task_id == "t1"
    assert caught.value.task_id == "t1"
    assert "".join(traceback.format_exception(caught.value)).count("t1") == 1
    assert "httpx" not in "".join(traceback.format_exception(caught.value))


async def test_a_call_whose_task_is_known_resumes_also_before_its_first_event() -> None:
    async with (
        RawServer(first(NAMED, streamed(frame(1, OPEN), frame(2, text_update("hi")), frame(3, DONE)))) as server,
        HubClient(server.url) as hub,
        fast(hub.stream("echo", "hi")) as stream,
    ):
        assert [(event.kind, event.text) async for event in stream] == [("task", ""), ("text", "hi"), ("done", "")]
        sent, resumed = calls_of(server)
        assert (sent[0], resumed) == ("message/stream", ("tasks/resubscribe", {"id": "t1"}))
        assert "last-event-id" not in server.requests[1].headers


async def test_a_call_that_the_hub_has_taken_back_did_not_run() -> None:
    gone = streamed(error_event(-32001, ""))
    async with RawServer(first(NAMED, gone)) as server, HubClient(server.url) as hub, fast(hub.stream("echo", "hi")) as stream:
        with pytest.raises(StreamLost, match="did not run") as caught:
            await stream.reply()
    assert caught.value.hint == "Send it again."


async def test_an_answer_that_is_cut_before_its_first_event_may_have_run() -> None:
    async with RawServer(first(NAMED, b"")) as server, HubClient(server.url) as hub:
        stream = fast(hub.stream("echo", "yes", task_id="t1"))
        with pytest.raises(StreamLost, match="may or may not have run") as caught:
            async with stream:
                await stream.reply()
    assert caught.value.task_id == "t1"
    assert len(server.requests) == 1


@pytest.mark.parametrize("refusal", [error_event(-32000, "NO_LIVE_WORKER"), error_event(-32000, "OVERLOADED")])
async def test_a_refusal_before_the_first_event_leaves_no_task(refusal: bytes) -> None:
    async with RawServer(always(NAMED + refusal + LAST_CHUNK)) as server, HubClient(server.url) as hub:
        with pytest.raises((NoLiveWorker, HubBusy)) as caught:
            await hub.send_to_agent("echo", "hi")
    assert caught.value.task_id is None
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ((error_event(-32006, "INVALID_AGENT_RESPONSE", taskId="t1"),), RolecallError),
        ((frame(1, OPEN), error_event(-32000, "UNAUTHENTICATED")), AuthError),
        ((frame(1, OPEN), chunk(b"data: nonsense\n\n")), RolecallError),
    ],
)
async def test_an_error_while_there_is_a_task_names_it(events: Sequence[bytes], kind: type[RolecallError]) -> None:
    async with RawServer(always(streamed(*events))) as server, HubClient(server.url) as hub:
        with pytest.raises(kind) as caught:
            await hub.send_to_agent("echo", "hi")
    assert caught.value.task_id == "t1"


async def test_an_error_about_a_named_task_names_it() -> None:
    async with RawServer(always(answer(fault(-32001)))) as server, HubClient(server.url) as hub:
        for ask in (
            hub.get_task("t9"),
            hub.cancel_task("t9"),
            hub.call("echo", "hi", task_id="t9"),
            hub.send_to_agent("echo", "hi", task_id="t9", blocking=False),
            hub.follow_task("t9").__aenter__(),
        ):
            with pytest.raises(TaskNotFound) as caught:
                await ask
            assert caught.value.task_id == "t9"


# --- the whole task


async def test_a_reply_is_what_the_events_make_of_the_task() -> None:
    parts = frame(2, text_update("hel")), frame(3, text_update("lo")), frame(4, status_update("completed", "bye", final=True))
    script = always(streamed(frame(1, {**OPEN, "history": []}), *parts))
    async with RawServer(script) as server, HubClient(server.url) as hub:
        reply = await hub.send_to_agent("echo", "hi")
        assert (reply.task_id, reply.text, reply.message and reply.message.text) == ("t1", "hello", "bye")
        await hub.send_to_agent("echo", "hi")
    assert len(server.peers) == 1, "the end of an answer is read, so that the connection can be used again"


async def test_a_reply_survives_a_cut() -> None:
    start = chunked_head() + frame(1, OPEN) + frame(2, text_update("a"))
    resumed = streamed(
        frame(2, {**OPEN, "artifacts": [text_update("a")["artifact"]]}), frame(3, text_update("b")), frame(4, DONE)
    )
    async with RawServer(first(start, resumed)) as server, HubClient(server.url) as hub:
        assert (await hub.send_to_agent("echo", "hi")).text == "ab"


async def test_without_a_last_event_the_end_of_an_answer_is_not_waited_for() -> None:
    async with RawServer(first(chunked_head() + frame(1, OPEN) + frame(2, DONE))) as server, HubClient(server.url) as hub:
        began = asyncio.get_running_loop().time()
        assert (await hub.send_to_agent("echo", "hi")).state == "completed"
        assert asyncio.get_running_loop().time() - began < 0.2


async def test_a_call_that_does_not_block_is_a_plain_request() -> None:
    async with RawServer(always(answer(result(OPEN)))) as server, HubClient(server.url) as hub:
        assert (await hub.send_to_agent("echo", "hi", blocking=False)).state == "working"
        ((method, params),) = calls_of(server)
    assert (method, params["configuration"]) == ("message/send", {"blocking": False})


# --- text that the reader had


def answering(opening: dict[str, Any], known: bytes) -> Script:
    """A hub whose task has asked something. `known`: its answer to what the task was before."""

    async def script(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            call = json.loads(request.body)
            asked = call["method"] == "tasks/get"
            if asked:
                sequence = call["params"]["metadata"]["https://rolecall.dev/ext/sequence/v1"]
                assert (call["params"]["id"], sequence) == ("t1", {"after": 6})
            await peer.write(known if asked else streamed(frame(7, opening), frame(8, DONE)))

    return script


@pytest.mark.parametrize(
    ("opening", "added"),
    [
        ({**WAITING, "status": {"state": "working"}}, ""),
        ({**WAITING, "artifacts": [{**OLD, "parts": [*OLD["parts"], {"kind": "text", "text": "new"}]}]}, "new"),
        ({**WAITING, "artifacts": [OLD, {"artifactId": "b", "parts": [{"kind": "text", "text": "more"}]}]}, "more"),
        ({**WAITING, "status": {"state": "completed", "message": {**QUESTION, "messageId": "b"}}}, "Sure?"),
        (WAITING, ""),
    ],
)
async def test_an_answer_begins_with_what_the_task_had_not_before(opening: dict[str, Any], added: str) -> None:
    script = answering(opening, answer(result(WAITING)))
    async with RawServer(script) as server, HubClient(server.url) as hub, hub.stream("echo", "yes", task_id="t1") as stream:
        events = [event async for event in stream]
    assert (events[0].kind, events[0].text, events[0].raw, events[0].known) == ("task", added, opening, WAITING)


async def test_what_the_task_was_before_is_asked_for_only_where_it_matters() -> None:
    plain = {**OPEN, "status": {"state": "working"}}
    async with RawServer(answering(plain, b"")) as server, HubClient(server.url) as hub:
        async with hub.stream("echo", "yes", task_id="t1") as stream:
            assert [event.text async for event in stream] == ["", ""]
        async with hub.stream("echo", "hi") as stream:
            assert [event.text async for event in stream] == ["", ""]
    assert len(server.requests) == 2


async def test_text_comes_twice_rather_than_not_at_all() -> None:
    opening = {**WAITING, "status": {"state": "working"}}
    script = answering(opening, answer(fault(-32001)))
    async with RawServer(script) as server, HubClient(server.url) as hub, hub.stream("echo", "yes", task_id="t1") as stream:
        assert [event.text async for event in stream] == ["old text", ""]


@pytest.mark.parametrize(("after", "text"), [("7", ""), (None, "old text")])
async def test_following_after_a_cursor_repeats_no_text(after: str | None, text: str) -> None:
    script = always(streamed(frame(7, WAITING)))
    async with RawServer(script) as server, HubClient(server.url) as hub, hub.follow_task("t1", after=after) as stream:
        assert [event.text async for event in stream] == [text]
