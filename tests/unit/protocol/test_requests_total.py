"""Any input of a caller or a worker is parsed, or refused with an error of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolecall.errors import HubError, InvalidAnswer
from rolecall.model.a2a import EventKind, Ids, JsonObject, Logged, WorkerEvent
from rolecall.model.command import Target
from rolecall.model.ids import START, Cursor, TaskId
from rolecall.protocol.callers.encoder import EventEncoder
from rolecall.protocol.codec import Codec
from rolecall.protocol.dialect import Requests
from rolecall.protocol.dialects import DIALECTS, worker_side
from rolecall.protocol.rest import params_of, read_query, read_route
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.workers import requests as calls
from rolecall.protocol.workers.events import Malformed
from tests.helpers.examples import examples
from tests.unit.protocol.contents import mutated, random_documents

many = settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
ANY = Target()
TEXT_03, TEXT_10 = {"kind": "text", "text": "hi", "metadata": {"a": 1}}, {"text": "hi", "mediaType": "text/plain"}
METADATA = {"role": "echo:a", "skill": "s", "waitSeconds": 1}
AUTH = {"schemes": ["Bearer"], "credentials": "c"}
HOOK = {"id": "p", "url": "https://example.org/", "token": "t"}
MESSAGE_03: JsonObject = {
    "kind": "message",
    "messageId": "m",
    "role": "user",
    "parts": [TEXT_03, {"kind": "file", "file": {"bytes": "AA==", "name": "n"}}, {"kind": "data", "data": {"x": 1}}],
    "taskId": "t",
    "contextId": "c",
    "referenceTaskIds": ["r"],
    "extensions": ["e"],
    "metadata": METADATA,
}
MESSAGE_10: JsonObject = {
    **{name: value for name, value in MESSAGE_03.items() if name != "kind"},
    "role": "ROLE_USER",
    "parts": [TEXT_10, {"raw": "AA=="}, {"url": "u"}, {"data": None}],
}
SENDS: dict[str, JsonObject] = {
    "0.1": {
        "id": "t",
        "sessionId": "s",
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": METADATA},
        "pushNotification": {**HOOK, "authentication": AUTH},
        "acceptedOutputModes": ["text"],
        "historyLength": 2,
        "metadata": METADATA,
    },
    "0.3": {
        "message": MESSAGE_03,
        "configuration": {
            "blocking": True,
            "historyLength": 3,
            "acceptedOutputModes": ["text/plain"],
            "pushNotificationConfig": {**HOOK, "authentication": AUTH},
        },
        "metadata": METADATA,
    },
    "1.0": {
        "tenant": "echo",
        "message": MESSAGE_10,
        "configuration": {
            "returnImmediately": True,
            "historyLength": 3,
            "acceptedOutputModes": ["text/plain"],
            "taskPushNotificationConfig": {**HOOK, "authentication": {"scheme": "Bearer", "credentials": "c"}},
        },
        "metadata": METADATA,
    },
}
CALLS: tuple[JsonObject, ...] = (
    {"id": "t", "historyLength": 1, "metadata": {}, "tenant": "echo"},
    {"taskId": "t", "pushNotificationConfig": {**HOOK, "authentication": AUTH}},
    {"taskId": "t", **HOOK, "authentication": {"scheme": "Bearer", "credentials": "c"}},
    {"id": "t", "pushNotificationConfigId": "p"},
    {"context_id": "c", "status": "TASK_STATE_WORKING", "pageSize": 5, "pageToken": "1.0/x", "historyLength": 1},
    {"statusTimestampAfter": "2025-01-01T00:00:00Z", "includeArtifacts": True, "tenant": "echo"},
)
READERS: dict[str, Callable[[JsonObject, Requests], object]] = {
    "get": lambda params, requests: requests.read_get(params, ANY, ()),
    "cancel": lambda params, requests: requests.read_cancel(params, ANY, ()),
    "subscribe": lambda params, requests: requests.read_subscribe(params, ANY, None, ()),
    "list": lambda params, requests: requests.read_list(params, ANY),
    "push set": lambda params, requests: requests.read_set_push(params, ANY),
    "push get": lambda params, requests: requests.read_name_push(params, ANY),
    "push list": lambda params, requests: requests.read_name_push(params, ANY, required=False),
}
VERSIONS = ["0.1", "0.3", "1.0"]

STATUS_03: JsonObject = {"state": "working", "message": MESSAGE_03, "timestamp": "2025-01-01T00:00:00Z"}
STATUS_10: JsonObject = {"state": "TASK_STATE_WORKING", "message": MESSAGE_10, "timestamp": "2025-01-01T00:00:00Z"}
IDS = {"taskId": "t", "contextId": "c"}
RESULTS: dict[str, tuple[JsonObject, ...]] = {
    "0.3": (
        {
            "kind": "task",
            "id": "t",
            "contextId": "c",
            "status": STATUS_03,
            "history": [MESSAGE_03],
            "artifacts": [{"artifactId": "a", "name": "n", "parts": [TEXT_03]}],
        },
        {"kind": "status-update", **IDS, "status": STATUS_03, "final": False},
        {"kind": "artifact-update", **IDS, "artifact": {"artifactId": "a", "parts": [TEXT_03]}, "append": True},
        MESSAGE_03,
    ),
    "1.0": (
        {
            "task": {
                "id": "t",
                "contextId": "c",
                "status": STATUS_10,
                "history": [MESSAGE_10],
                "artifacts": [{"artifactId": "a", "name": "n", "parts": [TEXT_10]}],
            }
        },
        {"statusUpdate": {**IDS, "status": STATUS_10}},
        {"artifactUpdate": {**IDS, "artifact": {"artifactId": "a", "parts": [TEXT_10]}, "append": True}},
        {"message": MESSAGE_10},
    ),
}
LOG_DIALECTS = ["0.3", "1.0"]
codec = Codec(lambda: 0.0)


@pytest.mark.parametrize("dialect", VERSIONS)
def test_any_message_of_a_caller_is_refused_or_can_be_sent_to_every_worker(dialect: str) -> None:
    outcomes: Counter[bool] = Counter()

    @many
    @given(mutated(SENDS[dialect]) | random_documents)
    def try_one(params: JsonObject) -> None:
        try:
            send = DIALECTS[dialect].requests.read_send(params, ANY)
        except HubError:
            outcomes[False] += 1
            return
        outcomes[True] += 1
        turn = codec.record(send, after=START)
        for log_dialect in LOG_DIALECTS:
            ids = Ids(TaskId("T"), "C", "wt", "wc", log_dialect)
            sent = calls.send_params(send, ids, {}, stream=False)
            DIALECTS[log_dialect].shape.read(EventKind.MESSAGE, sent["message"])
            log = [Logged(Cursor(1), codec.opening(ids, turn))]
            for reader in VERSIONS:
                assert codec.snapshot((turn,), log, dialect=reader, history_length=None)

    try_one()
    assert min(outcomes[True], outcomes[False]) > 5


@pytest.mark.parametrize("dialect", VERSIONS)
@pytest.mark.parametrize("call", READERS)
def test_any_other_call_is_read_or_refused(call: str, dialect: str) -> None:
    @settings(many, max_examples=examples(150))
    @given(mutated(*CALLS) | random_documents)
    def try_one(params: JsonObject) -> None:
        try:
            READERS[call](params, DIALECTS[dialect].requests)
        except HubError as error:
            assert len(error.message) < 1000

    try_one()


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_any_event_of_a_worker_is_malformed_or_can_be_logged(log_dialect: str) -> None:
    outcomes: Counter[bool] = Counter()

    @settings(many, max_examples=examples(1000))
    @given(mutated(*RESULTS[log_dialect]) | random_documents)
    def try_one(result: Any) -> None:
        try:
            worker_event = worker_side(log_dialect).events.read_result(result)
        except Malformed as error:
            outcomes[False] += 1
            assert len(str(error)) < 200
            return
        outcomes[True] += 1
        log_and_read(worker_event, log_dialect)

    try_one()
    assert min(outcomes[True], outcomes[False]) > 50


def log_and_read(worker_event: WorkerEvent, log_dialect: str) -> None:
    """A reader of another dialect may get InvalidAnswer; one of the same dialect always gets the event."""
    ids = Ids(TaskId("T"), "C", worker_event.task, worker_event.context, log_dialect)
    turn = codec.record(DIALECTS["0.3"].requests.read_send({"message": {"parts": [TEXT_03]}}, ANY), after=START)
    events = codec.begin(worker_event, ids, turn)
    log = [Logged(Cursor(at + 1), event) for at, event in enumerate(events)]
    assert all(parse(event.body) for event in events)
    for dialect in VERSIONS:
        encoder = EventEncoder(dialect, "alias")
        try:
            assert all(encoder.encode(event) for event in events)
            if events[0].kind is not EventKind.MESSAGE:
                codec.snapshot((turn,), log, dialect=dialect, history_length=1)
        except InvalidAnswer:
            assert dialect != log_dialect
    if worker_event.kind is EventKind.TASK:
        fold = codec.fold((turn,))
        fold.add([Logged(Cursor(1), codec.opening(ids, turn))])
        for event in fold.missing(worker_event, ids, gap=True).events:
            assert event.state is not None or event.kind is EventKind.ARTIFACT


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize("result", [None, [], "x", 1, True, {}])
def test_a_result_that_is_not_a_document_is_malformed(result: Any, log_dialect: str) -> None:
    events = worker_side(log_dialect).events
    for read in (events.read_result, events.read_task):
        with pytest.raises(Malformed):
            read(result)


_KNOWN = ("tasks", "t", "t:cancel", ":subscribe", "v1", "a2a", "rest", "agents", "echo", "message:send", "card")
_OTHER = ("", "echo%3Aa", "c", "%2F", "%00", "%", "%zz", "..", "%E2%82%AC", "%FF", "message:", "A" * 300)
_words = st.sampled_from((*_KNOWN, *_OTHER, "pushNotificationConfigs"))
_paths = st.lists(_words, max_size=6).map("/".join) | st.text(max_size=20)
_http_methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])


@many
@given(_paths, _http_methods, mutated(*CALLS, *SENDS.values()) | random_documents, st.sampled_from(["0.3", "1.0"]))
def test_any_address_with_any_body_is_read_or_refused(path: str, method: str, body: JsonObject, dialect: str) -> None:
    route = read_route(f"/{path}", method)
    if route is None:
        return
    assert route.methods
    assert (route.operation is not None) == (method in route.methods)
    try:
        wanted = DIALECTS[dialect]
        assert wanted.rest is not None
        wanted.rest.check(body)
        params = params_of(route, body, wanted)
        for read in READERS.values():
            read(params, wanted.requests)
    except HubError:
        return


@many
@given(st.binary(max_size=40) | st.text("ab=&%+;019-.#\u20ac", max_size=40).map(str.encode))
def test_any_query_is_read_or_refused(query: bytes) -> None:
    try:
        assert dump(read_query(query))
    except HubError:
        return
