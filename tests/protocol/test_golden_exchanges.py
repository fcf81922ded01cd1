"""Requests and answers, byte for byte, in every dialect and binding; and how the official SDKs read them."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.model.a2a import JsonObject
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import open_system
from tests.protocol.golden_files import as_protobuf_writes, exactly, names_in, transcript
from tests.protocol.requests_to_workers import INTERFACES, made
from tests.protocol.sdk import parsed_by_sdk
from tests.protocol.transcripts import CONVERSATIONS, run_conversation

# The SDKs' types of the answers to each step. Streams have the type of their frames.
RESULTS_03 = {
    "send": "SendMessageResponse",
    "stream": "SendStreamingMessageResponse",
    "answer": "SendStreamingMessageResponse",
    "subscribe": "SendStreamingMessageResponse",
    "ask": "SendMessageResponse",
    "get": "GetTaskResponse",
    "cancel": "CancelTaskResponse",
    "push-set": "SetTaskPushNotificationConfigResponse",
    "push-get": "GetTaskPushNotificationConfigResponse",
    "push-get-unnamed": "GetTaskPushNotificationConfigResponse",
    "push-list": "ListTaskPushNotificationConfigResponse",
    "push-delete": "DeleteTaskPushNotificationConfigResponse",
    "card": "GetAuthenticatedExtendedCardResponse",
}
RESULTS_10 = {
    "send": "SendMessageResponse",
    "stream": "StreamResponse",
    "answer": "StreamResponse",
    "subscribe": "StreamResponse",
    "ask": "SendMessageResponse",
    "get": "Task",
    "cancel": "Task",
    "list": "ListTasksResponse",
    "push-set": "TaskPushNotificationConfig",
    "push-get": "TaskPushNotificationConfig",
    "push-list": "ListTaskPushNotificationConfigsResponse",
}
PARAMS_10 = {
    "SendMessage": "SendMessageRequest",
    "SendStreamingMessage": "SendMessageRequest",
    "GetTask": "GetTaskRequest",
    "CancelTask": "CancelTaskRequest",
    "SubscribeToTask": "SubscribeToTaskRequest",
    "ListTasks": "ListTasksRequest",
    "CreateTaskPushNotificationConfig": "TaskPushNotificationConfig",
    "GetTaskPushNotificationConfig": "GetTaskPushNotificationConfigRequest",
    "ListTaskPushNotificationConfigs": "ListTaskPushNotificationConfigsRequest",
    "DeleteTaskPushNotificationConfig": "DeleteTaskPushNotificationConfigRequest",
    "GetExtendedAgentCard": "GetExtendedAgentCardRequest",
}
PAGES = ("ListTasksResponse", "ListTaskPushNotificationConfigsResponse")
"""Protobuf writes numbers as integers here, and leaves out an empty token."""


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_conversation_equals_its_transcript(name: str) -> None:
    async with open_system() as system:
        sections = await run_conversation(CONVERSATIONS[name], system)
    expected = transcript(f"exchanges/{name}")
    assert list(sections) == list(expected)
    for step, text in sections.items():
        assert text == expected[step], step


@pytest.mark.parametrize("name", INTERFACES)
async def test_requests_to_a_worker_equal_their_transcript(name: str) -> None:
    sections = await made(INTERFACES[name])
    expected = transcript(f"workers/{name}")
    assert list(sections) == list(expected)
    for request_name, text in sections.items():
        assert text == expected[request_name], request_name


def test_every_transcript_is_compared() -> None:
    assert names_in("exchanges") == CONVERSATIONS.keys()
    assert names_in("workers") == INTERFACES.keys()


# --- as the official SDKs read them


def bodies(text: str) -> tuple[str, list[JsonObject]]:
    """The request's body, and the documents of the answer: one, or one for each frame."""
    request_name, _, answered = text.partition("\nHTTP ")
    head, _, body = answered.partition("\n\n")
    if "text/event-stream" in head:
        documents = [parse(line.removeprefix("data: ").encode()) for line in body.splitlines() if line.startswith("data: ")]
    else:
        documents = [parse(body.encode())]
    return request_name.partition("\n\n")[2], documents


def answers_in(name: str) -> list[tuple[str, JsonObject]]:
    """Every document that a caller got, with its step."""
    return [(step, document) for step, text in transcript(f"exchanges/{name}").items() for document in bodies(text)[1]]


def kind_of(step: str, table: dict[str, str]) -> str | None:
    return table.get(step) or table.get(step.partition("-")[0])


@pytest.mark.parametrize("name", ["jsonrpc-0.3", "jsonrpc-0.3-of-a-1.0-worker"])
def test_the_0_3_sdk_reads_every_answer_and_loses_nothing(name: str) -> None:
    answers = answers_in(name)
    typed = [(str(kind_of(step, RESULTS_03)), document) for step, document in answers]
    for (step, document), parsed in zip(answers, parsed_by_sdk("0.3", typed), strict=True):
        assert exactly(parsed) == exactly(document), step


@pytest.mark.parametrize("name", ["jsonrpc-1.0", "jsonrpc-1.0-of-a-0.3-worker", "rest-1.0"])
def test_the_1_x_sdk_knows_every_member_of_every_answer(name: str) -> None:
    typed: list[tuple[str, Any]] = []
    for step, document in answers_in(name):
        result = document.get("result") if name.startswith("jsonrpc") else document
        kind = kind_of(step, RESULTS_10)
        if kind is not None and result and "error" not in document:
            typed.append((kind, result))
    assert {kind for kind, _ in typed} >= {"SendMessageResponse", "StreamResponse", "Task"}
    for (kind, document), parsed in zip(typed, parsed_by_sdk("1.x", typed), strict=True):
        if kind not in PAGES:
            assert exactly(parsed) == exactly(as_protobuf_writes(document)), kind


def test_a_server_of_the_0_3_sdk_reads_every_request_and_loses_nothing() -> None:
    requests = [parse(bodies(text)[0].encode()) for text in transcript("exchanges/jsonrpc-0.3").values()]
    requests += [parse(text.partition("\n\n")[2].encode()) for text in transcript("workers/jsonrpc-0.3").values()]
    # The hub answers a request without an id, and refuses a message without one; the SDK knows neither.
    requests = [request for request in requests if "without" not in request.get("id", "without")]
    for request, parsed in zip(requests, parsed_by_sdk("0.3", [("A2ARequest", request) for request in requests]), strict=True):
        assert exactly(parsed) == exactly(request)


def test_a_server_of_the_1_x_sdk_knows_every_member_of_every_request() -> None:
    requests = [parse(bodies(text)[0].encode()) for text in transcript("exchanges/jsonrpc-1.0").values()]
    requests += [parse(text.partition("\n\n")[2].encode()) for text in transcript("workers/jsonrpc-1.0").values()]
    typed = [(PARAMS_10[request["method"]], request["params"]) for request in requests]
    for name in ("exchanges/rest-1.0", "workers/rest-1.0"):
        for text in transcript(name).values():
            request_name = bodies(text)[0] if name.startswith("exchanges") else text.partition("\n\n")[2]
            if ":send" in text.splitlines()[0] or ":stream" in text.splitlines()[0]:
                typed.append(("SendMessageRequest", parse(request_name.encode())))
    assert len(parsed_by_sdk("1.x", typed)) == len(typed) > 40
