"""What `on_message` accepts, and its errors for the rest."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from worker_sdk import Message, Task, Worker


def test_an_unknown_annotation_is_refused_at_decoration_and_names_the_parameter() -> None:
    with pytest.raises(TypeError, match='parameter "count"'):

        @Worker("a").on_message
        def handler(count: int) -> str:
            return ""


def test_a_parameter_without_annotation_is_refused() -> None:
    with pytest.raises(TypeError, match='"text" has no annotation'):

        @Worker("a").on_message
        def handler(text) -> str:  # type: ignore[no-untyped-def] # the test needs it
            return ""


def test_a_plain_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="async def"):

        @Worker("a").on_message
        def handler(text: str) -> Generator[str, None, None]:
            yield text


def test_a_second_handler_is_refused() -> None:
    worker = Worker("a")

    @worker.on_message
    async def first(text: str) -> str:
        return text

    with pytest.raises(TypeError, match="handler already"):
        worker.on_message(first)


async def test_parameters_are_filled_by_annotation_and_defaults_are_kept() -> None:
    worker = Worker("a")

    @worker.on_message
    async def handler(task: Task, message: Message, words: str, times: int = 2) -> str:
        return f"{words * times} {message.message_id} {task.context_id}"

    async with worker.test() as t:
        reply = await t.send({"messageId": "m", "parts": [{"text": "x"}, {"text": "y"}]}, context_id="c")
    assert reply.text == "x\nyx\ny m c"


async def test_names_that_exist_only_inside_a_function_are_resolved() -> None:
    from worker_sdk import Message as Local

    worker = Worker("a")

    @worker.on_message
    async def handler(message: worker_sdk.Message, task: "Task") -> "OnlyForTypeCheckers":  # noqa: F821, UP037
        assert isinstance(message, Local)
        return task.id

    async with worker.test() as t:
        reply = await t.send("x")
    assert reply.text == reply.task_id


def test_the_docstring_is_the_default_description() -> None:
    worker, other = Worker("a"), Worker("b", description="given")

    async def handler(text: str) -> AsyncGenerator[str, None]:
        """Returns the
        text.

        Details.
        """
        yield text

    worker.on_message(handler)
    other.on_message(handler)
    assert (worker.description, other.description) == ("Returns the text.", "given")
    assert [skill["description"] for one in (worker, other) for skill in one.card("http://w/")["skills"]] == [
        "Returns the text."
    ] * 2


def test_a_role_with_its_instance_is_split_and_an_invalid_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLECALL_INSTANCE", "env")
    assert Worker("a:b:c").name == "a:b:c"
    assert Worker("a:b", instance="d").name == "a:d"
    assert Worker("a").name == "a:env"
    for invalid in ("Capital", "", "registry"):
        with pytest.raises(ValueError, match="role"):
            Worker(invalid)
    with pytest.raises(ValueError, match="concurrency"):
        Worker("a", concurrency=0)
