"""Errors of streaming methods: a plain answer where clients read one, an event where they read nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import System
from tests.protocol.transcripts import HttpRequest, app_of, exchange

EVENTS = b"text/event-stream; charset=utf-8"
OLD = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
NEW = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hi"}]}


class Way(NamedTuple):
    """How a caller asks for a stream, and how it gets an error of it: the status, and whether it is an event."""

    message: dict[str, Any]
    method: str
    status: int
    is_event: bool

    def ask(self, **metadata: Any) -> HttpRequest:
        params = {"message": self.message, "metadata": metadata}
        if self.method.startswith("/"):
            return HttpRequest("POST", f"/agents/echo{self.method}", params)
        return HttpRequest("POST", "/agents/echo/", {"jsonrpc": "2.0", "id": 7, "method": self.method, "params": params})


CALLERS = {
    "0.1": Way({"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "tasks/sendSubscribe", 200, True),
    "0.3": Way(OLD, "message/stream", 200, True),
    "1.0": Way(NEW, "SendStreamingMessage", 200, False),
    "0.3 over REST": Way(OLD, "/v1/message:stream", 404, False),
    "1.0 over REST": Way(NEW, "/message:stream", 404, False),
}


@pytest.mark.parametrize("name", CALLERS)
async def test_before_the_first_event_an_error_is_a_plain_answer_for_those_who_read_it(system: System, name: str) -> None:
    way = CALLERS[name]
    status, headers, body = await exchange(app_of(system), way.ask())
    assert (status, dict(headers)[b"content-type"]) == (way.status, EVENTS if way.is_event else b"application/json")
    document = parse(body.removeprefix("data: ").encode())
    assert document["error"]["message"].startswith('No role "echo".')
    if not way.method.startswith("/"):
        assert (document["id"], document["error"]["code"]) == (7, -32000)


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("header", [("last-event-id", "x"), ("a2a-version", "2.0"), ("a2a-hop", "99")])
async def test_so_is_an_error_of_the_request(system: System, name: str, header: tuple[str, str]) -> None:
    caller = CALLERS[name]
    status, headers, body = await exchange(app_of(system), caller.ask()._replace(headers=(header,)))
    if header[0] == "a2a-version" and caller.method.startswith("/v1"):
        assert status == 404  # the address decides
        return
    assert (status == 200) is not caller.method.startswith("/")
    assert dict(headers)[b"content-type"] == (EVENTS if caller.is_event else b"application/json")
    assert "error" in parse(body.removeprefix("data: ").encode())


@pytest.mark.parametrize("name", CALLERS)
async def test_after_a_keep_alive_comment_an_error_is_an_event(system: System, name: str) -> None:
    way = CALLERS[name]
    status, headers, body = await exchange(app_of(system, keep_alive=1.0), way.ask(waitSeconds=2.5))
    assert (status, dict(headers)[b"content-type"]) == (200, EVENTS)
    *before, event = body.removesuffix("\n\n").split("\n\n")
    assert before == [": keep-alive"] * 2
    kind, _, data = event.rpartition("data: ")
    assert kind == ("event: error\n" if way.method.startswith("/") else "")
    assert parse(data.encode())["error"]["message"].startswith('No role "echo".')
