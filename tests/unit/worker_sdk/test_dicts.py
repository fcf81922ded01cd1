"""What a dict means that a caller sends: data, or an A2A message or part if it is exactly one."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall import Message, Worker
from worker_sdk.calling.messages import message_document

TEXT = {"kind": "text", "text": "hi"}


def parts_of(message: Any) -> Any:
    return message_document(message)["parts"]


def test_a_dict_is_data_as_it_is_for_a_handler() -> None:
    assert parts_of({"order": 7}) == [{"kind": "data", "data": {"order": 7}}]
    assert parts_of({}) == [{"kind": "data", "data": {}}]
    assert parts_of(["pack it", {"order": 7}]) == [
        {"kind": "text", "text": "pack it"},
        {"kind": "data", "data": {"order": 7}},
    ]


@pytest.mark.parametrize("data", [{"kind": "order"}, {"kind": "file", "path": "/x"}, {"text": "hi"}, {"kind": ["text"]}])
def test_a_dict_that_only_resembles_a_part_is_data(data: dict[str, Any]) -> None:
    assert parts_of(data) == parts_of([data]) == [{"kind": "data", "data": data}]


@pytest.mark.parametrize(
    "part", [TEXT, {"kind": "data", "data": {"parts": [1]}}, {"kind": "file", "file": {"uri": "x:y"}, "metadata": {"k": 1}}]
)
def test_a_dict_that_is_a_part_is_that_part_alone_and_in_a_list(part: dict[str, Any]) -> None:
    assert parts_of(part) == [part]
    assert parts_of(["hi", part]) == [TEXT, part]


@pytest.mark.parametrize("parts", [[TEXT], [{"text": "hi"}], ({"raw": "aGk="},)])
def test_a_dict_that_is_a_message_is_that_message(parts: Any) -> None:
    sent = message_document({"parts": parts, "messageId": "m", "metadata": {"k": 1}}, context_id="c")
    assert sent == {
        "kind": "message",
        "role": "user",
        "messageId": "m",
        "parts": parts,
        "metadata": {"k": 1},
        "contextId": "c",
    }


@pytest.mark.parametrize(
    ("ambiguous", "why"),
    [
        ({"parts": [TEXT], "order": 7}, '"order", which a message has not'),
        ({"parts": ["wheel", "axle"]}, "no list of A2A parts"),
        ({"parts": []}, "no list of A2A parts"),
        ({"parts": 3}, "no list of A2A parts"),
        ({"parts": [{"kind": "wheel", "text": "x"}]}, "no list of A2A parts"),
    ],
)
def test_a_dict_with_parts_that_is_no_message_is_refused_with_both_ways_out(ambiguous: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        message_document(ambiguous)
    assert '{"kind": "data", "data": {…}}' in str(refused.value) and "Message({…})" in str(refused.value)
    assert parts_of({"kind": "data", "data": ambiguous}) == [{"kind": "data", "data": ambiguous}]
    assert message_document(Message({"messageId": "m", **ambiguous}))["parts"] == ambiguous["parts"]


def test_a_dict_with_a_part_and_more_is_refused() -> None:
    with pytest.raises(ValueError, match='"kind" and "text", as an A2A part has, and "lang", which a part has not'):
        message_document(["x", {**TEXT, "lang": "en"}])


def test_bytes_are_no_message() -> None:
    with pytest.raises(TypeError, match="not of a bytes"):
        message_document(b"hi")  # type: ignore[arg-type]


async def test_a_handler_of_a_worker_gets_the_dict_that_a_caller_sends() -> None:
    worker = Worker("shop")

    @worker.on_message
    async def price(message: Message) -> dict[str, Any]:
        return {"got": message.data, "metadata": message.metadata}

    async with worker.test() as bench:
        assert (await bench.call({"order": 7}, metadata={"k": 1})).data == {"got": {"order": 7}, "metadata": {}}
