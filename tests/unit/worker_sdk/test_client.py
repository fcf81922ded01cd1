"""HubClient against a scripted hub: replies, errors by reason, streams that resume."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel

from rolecall.model.card import USAGE_EXTENSION
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, Script, always, answer, chunk, chunked_head
from worker_sdk import (
    AuthError,
    Budget,
    BudgetSpent,
    File,
    Forbidden,
    HubBusy,
    HubClient,
    HubUnreachable,
    InputRequired,
    InvalidRequest,
    InvalidResult,
    NoLiveWorker,
    RolecallError,
    RoleUnknown,
    SkillUnknown,
    StreamLost,
    TaskFailed,
    TaskNotFound,
    TaskRejected,
    TimedOut,
    WorkerBusy,
    WorkerLost,
)
from worker_sdk.calling.child import ChildCall, ChildQuestion
from worker_sdk.calling.http import HubLink
from worker_sdk.calling.stream import HubStream
from worker_sdk.errors import error_for

pytestmark = pytest.mark.virtual_time

TASK: dict[str, Any] = {
    "kind": "task",
    "id": "t1",
    "contextId": "c1",
    "status": {"state": "completed", "message": {"role": "agent", "parts": [{"kind": "text", "text": "bye"}]}},
    "artifacts": [
        {"artifactId": "a", "name": "words", "parts": [{"kind": "text", "text": "hel"}, {"kind": "text", "text": "lo"}]},
        {"artifactId": "b", "parts": [{"kind": "data", "data": {"n": 1}}]},
    ],
}
OPEN = {**TASK, "status": {"state": "working"}, "artifacts": []}


def result(document: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "1", "result": document}).encode()


def fault(code: int, reason: str = "", **facts: str) -> bytes:
    data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "metadata": facts}] if reason else None
    return json.dumps({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": "refused", "data": data}}).encode()


def text_update(text: str) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
    return {"kind": "artifact-update", "taskId": "t1", "contextId": "c1", "artifact": artifact, "append": True}


def status_update(state: str, text: str = "", final: bool = False) -> dict[str, Any]:
    status: dict[str, Any] = {"state": state}
    if text:
        status["message"] = {"role": "agent", "parts": [{"kind": "text", "text": text}]}
    return {"kind": "status-update", "taskId": "t1", "contextId": "c1", "status": status, "final": final}


def frame(cursor: int, document: Any) -> bytes:
    return chunk(b"id: %d\ndata: %b\n\n" % (cursor, result(document)))


def streamed(*frames: bytes) -> bytes:
    return chunked_head("text/event-stream") + b"".join(frames) + LAST_CHUNK


ANSWERED = streamed(frame(1, TASK))


async def test_a_reply_has_text_data_artifacts_and_ids() -> None:
    async with RawServer(always(ANSWERED)) as server, HubClient(server.url) as hub:
        reply = await hub.send_to_agent("echo", "hi", context_id="c1", metadata={"k": "v"})
    assert (reply.text, reply.data, reply.state) == ("hello", {"n": 1}, "completed")
    assert (reply.task_id, reply.context_id, reply.message and reply.message.text) == ("t1", "c1", "bye")
    assert [artifact.name for artifact in reply.artifacts] == ["words", ""]
    assert reply.raise_for_state() is reply
    request = json.loads(server.requests[0].body)
    assert server.requests[0].line.split(" ")[1] == "/agents/echo/"
    assert request["params"]["message"]["parts"] == [{"kind": "text", "text": "hi"}]
    assert request["params"]["metadata"] == {"k": "v"}


class Count(BaseModel):
    n: int


async def test_a_call_names_a_skill_and_returns_the_reply_or_its_model() -> None:
    async with RawServer(always(ANSWERED)) as server, HubClient(server.url) as hub:
        counted = await hub.call(
            "echo:a",
            [Count(n=2), File("f", raw=b"x"), "hi"],
            skill="count",
            context_id="c1",
            metadata={"priority": 1},
            returns=Count,
        )
        reply = await hub.call("echo", {"parts": [{"kind": "text", "text": "hi"}], "metadata": {"k": "v"}})
        with pytest.raises(InvalidResult, match='"n" must be an object'):
            await hub.call("echo", "hi", returns=Wrong)
    assert (counted, reply.text) == (Count(n=1), "hello")
    first, second, _ = [json.loads(request.body)["params"] for request in server.requests]
    assert first["metadata"] == {"priority": 1, "skill": "count", "role": "echo:a"}
    assert first["message"]["contextId"] == "c1"
    assert first["message"]["parts"] == [
        {"kind": "data", "data": {"n": 2}},
        {"kind": "file", "file": {"bytes": "eA==", "name": "f"}},
        {"kind": "text", "text": "hi"},
    ]
    assert second["message"]["metadata"] == {"k": "v"}
    assert "metadata" not in second


async def test_a_budget_goes_into_the_metadata_of_every_call() -> None:
    body = chunked_head("text/event-stream") + frame(1, TASK) + LAST_CHUNK
    async with RawServer(always(body)) as server, HubClient(server.url) as hub:
        tokens, cost = Budget(tokens=5), Budget("0.5")
        for stream in (hub.stream("echo", "x", budget=tokens), hub.stream_to_agent("echo", "x", budget=cost)):
            async with stream:
                assert [event.kind async for event in stream] == ["task"]
        await hub.call("echo", "x", budget=Budget(2, "EUR"), skill="s")
        await hub.send_to_agent("echo", "x", budget=Budget(tokens=5), metadata={"a": 1})
    five = {USAGE_EXTENSION: {"budget": {"tokens": 5}}}
    assert [json.loads(request.body)["params"]["metadata"] for request in server.requests] == [
        five,
        {USAGE_EXTENSION: {"budget": {"cost": {"amount": "0.5", "currency": "USD"}}}},
        {"skill": "s", USAGE_EXTENSION: {"budget": {"cost": {"amount": "2", "currency": "EUR"}}}},
        {"a": 1, **five},
    ]


async def test_a_refusal_for_a_spent_budget_has_the_figures() -> None:
    refusal = fault(-32000, "BUDGET_SPENT", spentCost="2.1", budgetCost="2", currency="USD", chain="a > b")
    async with RawServer(always(answer(refusal))) as server, HubClient(server.url) as hub:
        with pytest.raises(BudgetSpent) as refused:
            await hub.call("echo", "x")
    assert (refused.value.facts["spentCost"], refused.value.facts["chain"]) == ("2.1", "a > b")


class Wrong(BaseModel):
    n: Count


@pytest.mark.parametrize(
    ("state", "error"),
    [("failed", TaskFailed), ("canceled", TaskFailed), ("rejected", TaskRejected), ("input-required", InputRequired)],
)
async def test_a_call_raises_if_the_task_has_no_result(state: str, error: type[RolecallError]) -> None:
    end = frame(2, status_update(state, final=True))
    async with RawServer(always(streamed(frame(1, OPEN), end))) as server, HubClient(server.url) as hub:
        with pytest.raises(error):
            await hub.call("echo", "hi", returns=Count)


async def test_a_stream_names_a_skill_and_takes_a_model_and_a_mismatch_is_raised_when_it_opens() -> None:
    body = streamed(frame(1, OPEN), frame(2, status_update("completed", final=True)))
    async with RawServer(always(body)) as server, HubClient(server.url) as hub:
        async with hub.stream("echo", Count(n=2), skill="count", metadata={"priority": 1}) as stream:
            assert [event.kind async for event in stream] == ["task", "done"]
        params = json.loads(server.requests[0].body)["params"]
    assert params["metadata"] == {"priority": 1, "skill": "count"}
    assert params["message"]["parts"] == [{"kind": "data", "data": {"n": 2}}]
    async with RawServer(always(answer(fault(-32602)))) as server, HubClient(server.url) as hub:
        with pytest.raises(InvalidRequest):
            async with hub.stream("echo", Count(n=2)):
                pass


async def test_an_instance_is_pinned_by_name_or_argument() -> None:
    async with RawServer(always(ANSWERED)) as server, HubClient(server.url) as hub:
        await hub.send_to_agent("echo:a", "hi")
        await hub.send_to_agent("echo", "hi", instance="b")
    assert [request.line.split(" ")[1] for request in server.requests] == ["/agents/echo/"] * 2
    assert [json.loads(request.body)["params"]["metadata"]["role"] for request in server.requests] == ["echo:a", "echo:b"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (fault(-32000, "ROLE_UNKNOWN", role="x"), RoleUnknown),
        (fault(-32000, "SKILL_UNKNOWN", skills="price,scan"), SkillUnknown),
        (fault(-32000, "NO_LIVE_WORKER", retryAfter="10"), NoLiveWorker),
        (fault(-32000, "WORKER_BUSY"), WorkerBusy),
        (fault(-32000, "WORKER_SILENT"), WorkerLost),
        (fault(-32000, "FORBIDDEN"), Forbidden),
        (fault(-32000, "UNAUTHENTICATED"), AuthError),
        (fault(-32000, "NO_TOKENS"), AuthError),
        (fault(-32001), TaskNotFound),
        (fault(-32602), InvalidRequest),
        (fault(-32603), RolecallError),
        (b"<html>", RolecallError),
        (b"{}", RolecallError),
        (result({"kind": "task"}), RolecallError),
    ],
)
async def test_each_refusal_of_the_hub_has_its_class(body: bytes, kind: type[RolecallError]) -> None:
    async with RawServer(always(answer(body))) as server, HubClient(server.url) as hub:
        with pytest.raises(RolecallError) as caught:
            await hub.send_to_agent("x", "hi")
    assert type(caught.value) is kind
    if kind is NoLiveWorker:
        assert (caught.value.retry_after, caught.value.code, caught.value.reason) == (10, -32000, "NO_LIVE_WORKER")


@pytest.mark.parametrize(
    ("status", "kind"), [("401 No", AuthError), ("403 No", Forbidden), ("404 No", RolecallError), ("502 No", RolecallError)]
)
async def test_http_refusals_have_their_classes(status: str, kind: type[RolecallError]) -> None:
    async with RawServer(always(answer(b"no", status=status, kind="text/plain"))) as server, HubClient(server.url) as hub:
        with pytest.raises(RolecallError) as caught:
            await hub.send_to_agent("x", "hi")
        assert type(caught.value) is kind
        with pytest.raises(kind):
            await hub.health()


async def test_what_a_token_may_not_do_is_not_told_as_an_unknown_token() -> None:
    problem = {"reason": "FORBIDDEN", "detail": "This reader token cannot send messages; use a client or admin token."}
    refusal = answer(json.dumps(problem).encode(), status="403 No", kind="application/problem+json")
    async with RawServer(always(refusal)) as server, HubClient(server.url, "t0k") as hub:
        with pytest.raises(Forbidden, match="reader token cannot send") as caught:
            await hub.send_to_agent("x", "hi")
    assert (caught.value.reason, caught.value.hint) == ("FORBIDDEN", "")
    assert not isinstance(caught.value, AuthError)


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32002, -32003, -32004, -32005, -32007, -32009])
def test_a_code_for_a_wrong_request_is_invalid_request(code: int) -> None:
    assert type(error_for("refused", code=code)) is InvalidRequest


async def test_a_task_is_returned_with_as_much_history_as_requested() -> None:
    async with RawServer(always(answer(result(TASK)))) as server, HubClient(server.url) as hub:
        await hub.get_task("t1")
        await hub.get_task("t1", history_length=0)
    params = [json.loads(request.body)["params"] for request in server.requests]
    assert params == [{"id": "t1"}, {"id": "t1", "historyLength": 0}]


@pytest.mark.parametrize(("status", "asks"), [("200 OK", False), ("401 No", True)])
async def test_whether_a_hub_asks_for_a_token_is_tried_without_one(status: str, asks: bool) -> None:
    async with RawServer(always(answer(b"{}", status=status))) as server, HubClient(server.url, "t0p") as hub:
        assert await hub.asks_for_a_token() is asks
    assert ["authorization" in request.headers for request in server.requests] == [False]


async def test_an_absent_hub_and_one_that_disconnects_are_unreachable() -> None:
    async def disconnect(peer: Peer) -> None:
        await peer.read_request()

    async with RawServer(disconnect) as server, HubClient(server.url) as hub:
        with pytest.raises(HubUnreachable, match="may have run"):
            await hub.send_to_agent("x", "hi")
    async with HubClient(server.url) as hub:
        with pytest.raises(HubUnreachable, match="No hub answers"):
            await hub.send_to_agent("x", "hi")


async def test_a_call_raises_timed_out_after_its_timeout() -> None:
    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.gone()

    async with RawServer(silent) as server, HubClient(server.url) as hub:
        with pytest.raises(TimedOut):
            await hub.send_to_agent("x", "hi", timeout=0.05)


async def test_discovery_sends_its_filters_and_follows_the_pages() -> None:
    def item(name: str) -> dict[str, Any]:
        role, instance = name.split(":")
        return {"name": name, "role": role, "instance_id": instance, "state": "ready", "load": {"in_flight": 1, "capacity": 4}}

    async def script(peer: Peer) -> None:
        for agents, cursor in (([item("a:1"), item("b:1")], "a:1"), ([item("b:2")], "b:2"), ([item("b:3")], None)):
            await peer.read_request()
            await peer.write(answer(json.dumps({"agents": agents, "next_cursor": cursor}).encode()))
        await peer.gone()

    async with RawServer(script) as server, HubClient(server.url) as hub:
        found = await hub.discover_agents(role="a", skill="s", labels={"team": "x"})
    assert [(agent.name, agent.instance, agent.in_flight, agent.capacity) for agent in found] == [
        ("a:1", "1", 1, 4),
        ("b:1", "1", 1, 4),
        ("b:2", "2", 1, 4),
        ("b:3", "3", 1, 4),
    ]
    filters = "/registry/agents?role=a&skill=s&label=team%3Dx"
    assert [request.line.split(" ")[1] for request in server.requests] == [
        filters,
        filters + "&cursor=a%3A1",
        filters + "&cursor=b%3A2",
    ]


async def test_a_stream_yields_typed_events_and_ends_with_the_task() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(
            chunked_head() + frame(1, OPEN) + frame(2, status_update("working", "hm")) + frame(3, text_update("hi"))
        )
        await peer.write(chunk(b": keep-alive\n\n") + frame(4, status_update("completed", final=True)) + LAST_CHUNK)
        await peer.gone()

    async with RawServer(script) as server, HubClient(server.url) as hub, hub.stream_to_agent("echo", "x") as stream:
        events = [event async for event in stream]
        assert (stream.task_id, stream.context_id, stream.cursor) == ("t1", "c1", "4")
    assert [(event.kind, event.text, event.cursor) for event in events] == [
        ("task", "", "1"),
        ("status", "hm", "2"),
        ("text", "hi", "3"),
        ("done", "", "4"),
    ]


def cut_after(*frames: bytes) -> Script:
    """Reset the first connection after these frames. Later ones must resubscribe and get the rest from 3 on."""

    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        assert request is not None
        if peer.number == 1:
            await peer.write(chunked_head() + b"".join(frames))
            await asyncio.sleep(0.02)
            peer.reset()
            return
        call = json.loads(request.body)
        assert (call["method"], call["params"]["id"], request.headers["last-event-id"]) == ("tasks/resubscribe", "t1", "2")
        if peer.number == 2:
            await peer.write(answer(fault(-32000, "HUB_DRAINING")))
            return
        rest = frame(2, OPEN) + frame(3, text_update("b")) + frame(4, status_update("input-required", "?", final=True))
        await peer.write(chunked_head() + rest + LAST_CHUNK)

    return script


def fast(stream: HubStream) -> HubStream:
    stream._backoff = (0.001, 0.01)
    return stream


async def test_a_cut_stream_resumes_at_its_cursor_without_repeats() -> None:
    script = cut_after(frame(1, OPEN), frame(2, text_update("a")))
    async with (
        RawServer(script) as server,
        HubClient(server.url) as hub,
        fast(hub.stream_to_agent("echo", "x")) as stream,
    ):
        events = [(event.kind, event.text, event.cursor) async for event in stream]
    assert events == [("task", "", "1"), ("text", "a", "2"), ("text", "b", "3"), ("input_required", "?", "4")]


async def test_a_stream_that_ends_before_its_task_resumes() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        rest = frame(1, OPEN) if peer.number == 1 else frame(1, OPEN) + frame(2, status_update("completed", final=True))
        await peer.write(chunked_head() + rest + LAST_CHUNK)

    async with (
        RawServer(script) as server,
        HubClient(server.url) as hub,
        fast(hub.stream_to_agent("echo", "x")) as stream,
    ):
        assert [event.kind async for event in stream] == ["task", "done"]


async def test_a_paused_task_starts_the_stream_of_its_answer_and_ends_a_followed_one() -> None:
    waits = {**OPEN, "status": {"state": "input-required"}}
    answered = frame(2, waits) + frame(3, status_update("working")) + frame(4, status_update("completed", final=True))

    async def script(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            resumed = b"tasks/resubscribe" in request.body
            await peer.write(chunked_head() + (frame(2, waits) if resumed else answered) + LAST_CHUNK)

    async with RawServer(script) as server, HubClient(server.url) as hub:
        async with hub.stream_to_agent("echo", "yes", task_id="t1") as stream:
            assert [event.kind async for event in stream] == ["task", "status", "done"]
        async with hub.follow_task("t1") as stream:
            assert [event.kind async for event in stream] == ["task"]


async def test_a_stream_gives_up_after_its_limit_and_reports_its_cursor() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number == 1:
            await peer.write(chunked_head() + frame(1, OPEN))

    kinds: list[str] = []
    async with RawServer(script) as server, HubClient(server.url) as hub:
        stream = fast(hub.stream_to_agent("echo", "x", give_up_after=0.1))
        with pytest.raises(StreamLost) as caught:
            async with stream:
                async for event in stream:
                    kinds.append(event.kind)  # noqa: PERF401 - keeps the events before the error
    assert kinds == ["task"]
    assert caught.value.facts == {"taskId": "t1", "cursor": "1"}


async def test_a_hub_that_accepts_the_call_without_an_event_is_not_back() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + (frame(1, OPEN) if peer.number == 1 else LAST_CHUNK))

    async with RawServer(script) as server, HubClient(server.url) as hub:
        stream = fast(hub.stream_to_agent("echo", "x", give_up_after=0.1))
        with pytest.raises(StreamLost, match="did not come back"):
            async with asyncio.timeout(5), stream:
                assert [event async for event in stream]
    assert len(server.peers) > 2


async def test_a_decision_is_returned_while_the_hub_has_it() -> None:
    made = {"task": "t/1", "role": "echo", "worker": "echo:a", "rule": "role", "candidates": 2, "at": "now"}

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(json.dumps(made).encode()))
        await peer.read_request()
        gone = json.dumps({"reason": "TASK_NOT_FOUND", "detail": "forgotten"}).encode()
        await peer.write(answer(gone, status="404 Not Found", kind="application/problem+json"))
        await peer.gone()

    async with RawServer(script) as server, HubClient(server.url) as hub:
        assert await hub.task_decision("t/1") == made
        assert await hub.task_decision("t/1") is None
    assert server.requests[0].line.split(" ")[1] == "/registry/tasks/t%2F1/decision"


async def test_a_stream_cut_before_its_first_event_is_not_started_again() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head())
        peer.reset()

    async with RawServer(script) as server, HubClient(server.url) as hub, hub.stream_to_agent("echo", "x") as stream:
        with pytest.raises(StreamLost, match="may or may not have run"):
            assert [event async for event in stream]
    assert len(server.peers) == 1


async def test_a_stream_that_repeats_sends_the_same_message_until_its_first_event() -> None:
    failures = [answer(fault(-32000, "HUB_DRAINING")), chunked_head(), answer(fault(-32000, "HUB_DRAINING"))[:-5]]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number <= len(failures):
            await peer.write(failures[peer.number - 1])
            peer.reset()
        else:
            await peer.write(
                chunked_head() + frame(1, OPEN) + frame(2, status_update("completed", "", final=True)) + LAST_CHUNK
            )

    async with RawServer(script) as server:
        link = HubLink(server.url)
        stream = HubStream(link, "/agents/x/", "message/stream", {"message": {}}, give_up_after=5, repeats=True)
        async with fast(stream) as events:
            assert [event.kind async for event in events] == ["task", "done"]
        await link.close()
    assert len({request.body for request in server.requests}) == 1
    assert len(server.requests) == len(failures) + 1


async def test_a_stream_that_repeats_raises_a_refusal_and_gives_up_in_time() -> None:
    link = HubLink("http://127.0.0.1:9")
    stream = HubStream(link, "/agents/x/", "message/stream", {"message": {}}, give_up_after=0.05, repeats=True)
    with pytest.raises(StreamLost, match="did not come back"):
        await fast(stream).open()
    await link.close()
    async with RawServer(always(answer(fault(-32000, "OVERLOADED")))) as server:
        link = HubLink(server.url)
        with pytest.raises(HubBusy):
            await HubStream(link, "/", "message/stream", {}, give_up_after=5, repeats=True).open()
        await link.close()
    assert len(server.requests) == 1


async def test_the_result_of_a_child_is_read_when_the_hub_is_back() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        assert request is not None
        if peer.number == 1:
            await peer.write(chunked_head() + frame(1, OPEN) + frame(2, status_update("completed", final=True)) + LAST_CHUNK)
        elif peer.number == 2:
            peer.reset()
        elif peer.number == 3:
            await peer.write(answer(fault(-32000, "HUB_DRAINING")))
        else:
            await peer.write(answer(result(TASK)))

    async with RawServer(script) as server:
        link = HubLink(server.url)
        stream = HubStream(link, "/agents/x/", "message/stream", {"message": {}}, give_up_after=5)
        child = ChildCall(lambda *words: link, stream, lambda task, message: stream, goes_on=False, files=None)
        assert (await child.reply(None)).text == "hello"
        await link.close()
    assert len(server.requests) == 4


async def test_a_child_that_was_answered_elsewhere_is_followed_when_the_hub_is_back() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        assert request is not None
        if peer.number == 1:
            await peer.write(chunked_head() + frame(1, OPEN) + frame(2, status_update("input-required", "?")) + LAST_CHUNK)
        elif peer.number == 2:
            peer.reset()
        elif peer.number == 3:
            assert (json.loads(request.body)["method"], request.headers["last-event-id"]) == ("tasks/resubscribe", "2")
            await peer.write(chunked_head() + frame(2, OPEN) + frame(3, status_update("completed", final=True)) + LAST_CHUNK)
        else:
            await peer.write(answer(result(TASK)))

    async def ask(question: ChildQuestion) -> None:
        assert (question.text, question.child, question.event) == ("?", "t1", "2")

    async with RawServer(script) as server:
        link = HubLink(server.url)
        stream = HubStream(link, "/agents/x/", "message/stream", {"message": {}}, give_up_after=5)
        child = ChildCall(lambda *words: link, stream, lambda task, message: stream, goes_on=False, files=None)
        assert (await child.reply(ask)).text == "hello"
        await link.close()
    assert len(server.requests) == 4


@pytest.mark.parametrize("as_event", [True, False])
async def test_an_error_of_a_streaming_call_is_raised_in_either_form(as_event: bool) -> None:
    body = fault(-32000, "ROLE_UNKNOWN")
    event = chunked_head() + chunk(b"data: " + body + b"\n\n") + LAST_CHUNK
    async with RawServer(always(event if as_event else answer(body))) as server, HubClient(server.url) as hub:
        with pytest.raises(RoleUnknown):
            async with hub.stream_to_agent("x", "hi") as stream:
                assert [event async for event in stream]


async def test_a_refusal_of_a_streaming_call_that_is_cut_is_a_lost_stream() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(fault(-32000, "ROLE_UNKNOWN"))[:-5])

    async with RawServer(script) as server, HubClient(server.url) as hub:
        with pytest.raises(StreamLost, match="was cut"):
            await hub.stream_to_agent("x", "hi").__aenter__()


async def test_a_hub_that_is_busy_before_the_first_event_is_reported_as_busy() -> None:
    """The call did not run, so the error is not a lost stream, after which it may have run."""
    event = streamed(chunk(b"data: " + fault(-32000, "HUB_DRAINING") + b"\n\n"))
    async with RawServer(always(event)) as server, HubClient(server.url) as hub, hub.stream_to_agent("x", "hi") as stream:
        with pytest.raises(HubBusy):
            assert [event async for event in stream]
    assert len(server.requests) == 1


async def test_a_bare_message_is_a_complete_reply_and_stream() -> None:
    message = {"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}

    async def script(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            streams = b"message/stream" in request.body
            await peer.write(chunked_head() + frame(1, message) + LAST_CHUNK if streams else answer(result(message)))

    async with RawServer(script) as server, HubClient(server.url) as hub:
        reply = await hub.send_to_agent("x", "hi")
        async with hub.stream_to_agent("x", "hi") as stream:
            events = [(event.kind, event.text) async for event in stream]
    assert (reply.text, reply.state, reply.task_id) == ("hi", "completed", None)
    assert events == [("message", "hi")]
