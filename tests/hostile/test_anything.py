"""Random input to the whole hub: in JSON-RPC, on its own paths, and from its worker. It never causes an internal error or a
memory leak.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from string import ascii_letters
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.inside import Answer, LocalHub, local_hub
from tests.hostile.latency import memory_of
from tests.unit.protocol.test_methods import METHODS

DONE = b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}}'
MEMORY_LIMIT = 100


def words(text: str) -> list[str]:
    return text.split()


EXPECTED_STATUSES = frozenset({501, 502, 503, 504, 507, 508})

NAMES = st.sampled_from(
    words("""
    jsonrpc id method params message parts metadata taskId contextId role kind text data file url uri bytes mimeType
    messageId configuration blocking historyLength pushNotificationConfig pushNotificationConfigId token authentication
    schemes credentials status state timestamp artifact artifacts artifactId append lastChunk final history name
    referenceTaskIds extensions tenant pageSize pageToken skill skillId taskPushNotificationConfig task statusUpdate
    artifactUpdate msg result error code acceptedOutputModes sessionId epoch lease boot ttl_seconds capacity in_flight
    draining labels card skills tags capabilities description models_supported instance_id reason authorization idempotent
""")
)
TEXTS = (
    st.text(max_size=20)
    | st.sampled_from(["echo", "echo:a", "a", "user", "agent", "ROLE_USER", "completed", "working", "input-required", "text"])
    | st.sampled_from(["data", "file", "task", "status-update", "artifact-update", "message", "http://127.0.0.1:9/", "\0", "²"])
)
NUMBERS = st.integers() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.sampled_from([2**63, -(2**63), 10**400, 1e308])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | TEXTS, inner, max_size=6),
    max_leaves=25,
)
OBJECTS = st.dictionaries(NAMES | TEXTS, VALUES, max_size=8)
PARTS = st.lists(
    st.fixed_dictionaries({"kind": TEXTS, "text": TEXTS}, optional={"metadata": VALUES, "data": VALUES}), max_size=3
)
MESSAGES = st.fixed_dictionaries(
    {"messageId": TEXTS, "role": TEXTS, "parts": PARTS | VALUES},
    optional={"kind": TEXTS, "metadata": VALUES, "taskId": TEXTS, "contextId": TEXTS, "extensions": VALUES},
)
PARAMS = (
    VALUES
    | OBJECTS
    | st.fixed_dictionaries({"message": MESSAGES}, optional={"configuration": OBJECTS, "metadata": OBJECTS, "id": TEXTS})
    | st.fixed_dictionaries({"id": TEXTS}, optional={"historyLength": NUMBERS, "pushNotificationConfig": OBJECTS})
)
ADDRESSES = st.sampled_from(
    words("""
    / /agents /health /livez /metrics /readyz /registry/agents /registry/agents/{} /registry/push/dead-letters /registry/tasks
    /registry/tasks/{}/decision /registry/agents/{}/drain /registry/agents/{}/heartbeat /registry/agents/{}/probe
    /registry/push/dead-letters/{}/{}/{}/redeliver /registry/agents/echo/{} /.well-known/agent-card.json
    /.well-known/ai-catalog.json /agents/{}/.well-known/agent-card.json /message:send /tasks /tasks/{} /tasks/{}:cancel
    /tasks/{}/pushNotificationConfigs /v1/message:send /v1/tasks/{} /v1/card /extendedAgentCard /a2a/rest/tasks/{}
    /agents/{} /agents/{}/ /registry/agents/{}/undrain /registry/me /registry/tasks/{}/events /registry/tasks/{}/artifacts/{} {}
""")
)
SEGMENTS = st.sampled_from(["echo", "echo:b", "x", "1", "%00", "%ff", "..", "%2e%2e%2f", "*", ":cancel", "²"]) | st.text(
    ascii_letters + "-._~:%/é", max_size=12
)
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(
            words("limit cursor role skill tag capability label q state pageSize pageToken after status A2A-Version")
        ),
        st.sampled_from(["", "0", "-1", "1", "²", "9" * 30, "%00", "%ff", "a=b", "=", "NaN"])
        | st.text(ascii_letters, max_size=8),
    ),
    max_size=4,
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"a2a-version", b"a2a-extensions", b"last-event-id", b"idempotency-key", b"traceparent", b"a2a-hop"]),
        st.sampled_from([b"", b"0.3", b"1.0", b"1", b"-1", b"9" * 30, b"\xb2", b"x" * 300, b"a,b"])
        | st.binary(max_size=8).filter(lambda value: not set(value) & set(b"\r\n\0")),
    ),
    max_size=3,
    unique_by=lambda header: header[0],
)
BODIES = OBJECTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)

IDS = st.sampled_from(["t", "t", "t", "u", "", 5])
EVENTS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("task"), "id": IDS, "contextId": IDS, "status": st.fixed_dictionaries({"state": TEXTS})}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("status-update"),
            "taskId": IDS,
            "status": st.fixed_dictionaries({"state": TEXTS}, optional={"message": MESSAGES}),
        },
        optional={"final": VALUES, "contextId": IDS, "metadata": VALUES},
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("artifact-update"),
            "taskId": IDS,
            "artifact": st.fixed_dictionaries({"artifactId": TEXTS, "parts": PARTS | VALUES}),
        },
        optional={"append": VALUES, "lastChunk": VALUES, "contextId": IDS},
    ),
    MESSAGES,
    VALUES,
)
RESPONSES = EVENTS.map(lambda event: {"jsonrpc": "2.0", "id": "1", "result": event}) | OBJECTS
LINES = st.one_of(
    RESPONSES.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
    st.just(b"data: " + DONE + b"\n\n"),
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b": x\n\n", b"data:\n\n", b"id: 1\n", b"event: x\n", b"retry: x\n", b"data: {\n\n"]
    ),
    st.binary(max_size=30),
)
STREAMS = st.lists(LINES, max_size=8).map(b"".join)
HEADS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\n\r\n",
        b"",
    ]
)

many = pytest.mark.parametrize("rounds", [pytest.param(1, id="few"), pytest.param(30, id="many", marks=pytest.mark.soak)])


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    with local_hub() as hub:
        yield hub


@pytest.fixture(autouse=True)
def hub_healthy(hub: LocalHub, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    hub.worker_answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(DONE) + DONE
    yield
    assert hub.run(hub.ask("GET", "/readyz")).status == 200
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


def run_settings(examples: int) -> settings:
    checks = [
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ]
    return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks)


def repeat(rounds: int, one: Callable[[], None]) -> None:
    """Hypothesis keeps all examples of a round, so rounds are short; memory that remains after them is the hub's."""
    one()
    before = memory_of(os.getpid())
    for _ in range(rounds - 1):
        one()
    assert memory_of(os.getpid()) - before < MEMORY_LIMIT


def is_no_bug(answer: Answer) -> bool:
    if b"Internal error" in answer.body or b"Traceback" in answer.body or b'"reason":"INTERNAL"' in answer.body:
        return False
    return answer.status < 500 or answer.status in EXPECTED_STATUSES or b"INVALID_AGENT_RESPONSE" in answer.body


@many
def test_any_call_is_answered(hub: LocalHub, rounds: int) -> None:
    @run_settings(300)
    @given(st.sampled_from([name for name, _, _ in METHODS]), PARAMS, HEADERS, st.sampled_from(["/", "/agents/echo/"]))
    def call(method: str, params: Any, headers: list[tuple[bytes, bytes]], path: str) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        answer = hub.run(hub.ask("POST", path, body=body, headers=headers))
        assert is_no_bug(answer), answer
        assert answer.status == 200
        assert b"jsonrpc" in answer.body

    repeat(rounds, call)


@many
def test_any_request_to_any_path_is_answered(hub: LocalHub, rounds: int) -> None:
    @run_settings(300)
    @given(
        st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]),
        ADDRESSES,
        st.lists(SEGMENTS, min_size=3, max_size=3),
        QUERIES,
        HEADERS,
        BODIES,
    )
    def request(
        method: str, address: str, segments: list[str], query: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        path = "/" + address.format(*segments).lstrip("/")
        answer = hub.run(hub.ask(method, path, query, body, headers))
        assert is_no_bug(answer), answer

    repeat(rounds, request)


@many
def test_any_answer_of_a_worker_is_handled(hub: LocalHub, rounds: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "params": {"message": {"role": "user", "parts": [{"kind": "text", "text": "x"}]}}}

    @run_settings(60)
    @given(HEADS, STREAMS, st.sampled_from(["message/send", "message/stream", "SendMessage", "SendStreamingMessage"]))
    def call(head: bytes, events: bytes, method: str) -> None:
        hub.worker_answer = head + events
        message = {**body["params"]["message"], "messageId": os.urandom(8).hex()}  # type: ignore[index]
        sent = json.dumps({**body, "method": method, "params": {"message": message}}).encode()
        answer = hub.run(hub.ask("POST", "/agents/echo/", body=sent))
        assert is_no_bug(answer), answer
        hub.run(asyncio.sleep(0))

    repeat(rounds, call)
