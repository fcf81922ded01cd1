"""Several handlers on one worker: which of them a call gets, and what the card says of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from rolecall.errors import InvalidParams
from rolecall.protocol.cards import skills
from tests.unit.worker_sdk.typed import GOOD, Invoice, Item, Order, data_message, of_text, total, worker_of
from worker_sdk import File, Message, NeedInput, Task, Worker

Stream = AsyncGenerator[Any, Message]


def two_skills(*, on_message: bool) -> Worker:
    worker = Worker("shop")

    @worker.skill("price", name="Prices", tags=["money"], examples=["2 teas"])
    async def price(order: Order) -> Invoice:
        """Adds up an order."""
        return total(order)

    @worker.skill("echo", description="Says it again.")
    async def echo(text: str) -> AsyncGenerator[str | Invoice, Message]:
        yield f"echo {text}"

    if on_message:

        @worker.on_message
        async def rest(text: str) -> str:
            return f"rest {text}"

    return worker


@pytest.mark.parametrize("metadata", [{"skill": "echo"}, {"skillId": "echo"}])
async def test_a_call_goes_to_the_skill_that_it_names(metadata: Mapping[str, str]) -> None:
    async with two_skills(on_message=True).test() as t:
        assert (await t.send("hi", metadata=metadata)).text == "echo hi"
        assert await t.call(Order.model_validate(GOOD), skill="price", returns=Invoice) == Invoice(total=5)
        assert (await t.call(data_message(GOOD), skill="Prices")).data == {"total": 5.0}
        assert (await t.call("hi")).text == (await t.call("hi", skill="shop")).text == "rest hi"
        in_message = {**data_message(GOOD), "metadata": metadata, "parts": [{"kind": "text", "text": "hi"}]}
        assert (await t.send(in_message)).text == "echo hi"


async def test_an_unknown_skill_is_refused_with_the_list_of_those_there_are() -> None:
    async with two_skills(on_message=False).test() as t:
        with pytest.raises(
            InvalidParams, match=r'There is no skill "prize"\. This worker has: price, echo\. Did you mean price\?'
        ):
            await t.call("hi", skill="prize")
        with pytest.raises(InvalidParams, match=r"Name a skill in metadata.skill. This worker has: price, echo\."):
            await t.call("hi")
        with pytest.raises(InvalidParams) as refused:
            await t.call("hi", skill="x" * 10_000)
        assert len(str(refused.value)) < 200
        assert t.tasks.slots.busy == 0
    async with two_skills(on_message=True).test() as t:
        with pytest.raises(InvalidParams, match="This worker has: shop, price, echo"):
            await t.call("hi", skill="nothing")


async def test_a_text_handler_refuses_a_message_of_which_it_can_see_nothing_and_names_the_skills_that_can() -> None:
    worker = two_skills(on_message=True)

    @worker.skill("scan")
    async def scan(message: Message) -> str:
        return str(message.data)

    async with worker.test() as t:
        for skill in (None, "echo"):
            with pytest.raises(InvalidParams) as refused:
                await t.call(data_message(GOOD), skill=skill)
            assert str(refused.value) == (
                "The message has only data, and this handler takes text. "
                "Of this worker's skills, these take data: price (Order), scan."
            )
        with pytest.raises(InvalidParams, match=r"only data and file, .* these take data and file: price \(Order\), scan\."):
            await t.call([GOOD, File("a.txt", raw=b"a")])
        assert t.tasks.slots.busy == 0
        assert (await t.call(["hi", GOOD])).text == "rest hi"
    single = Worker("single")
    single.on_message(of_text)
    async with single.test() as t:
        with pytest.raises(InvalidParams, match=r"only file, and this handler takes text\. Send a text\."):
            await t.call(File("a.txt", raw=b"a"))


@pytest.mark.parametrize("given", ["nothing", "a text that may be missing", "a text or None", "also data", "the task"])
async def test_a_handler_that_expects_no_text_or_sees_more_gets_a_message_without_one(given: str) -> None:
    async def nothing() -> str:
        return "none"

    async def missing(text: str = "none") -> str:
        return text

    async def optional(text: str | None) -> str:
        return text or "none"

    async def both(text: str, order: Order) -> str:
        return text or order.lines[0].what

    async def whole(text: str, task: Task) -> str:
        return text or str(task.message.data)

    handlers = {"nothing": nothing, "a text that may be missing": missing, "a text or None": optional, "also data": both}
    worker = Worker("shop")
    worker.on_message(handlers.get(given, whole))
    async with worker.test() as t:
        assert (await t.call(data_message(GOOD))).text in ("none", "tea", str(GOOD))


async def test_one_skill_alone_answers_calls_without_a_skill_and_on_message_alone_calls_with_any() -> None:
    single, rest = Worker("a"), Worker("b")
    single.skill("only")(of_text)
    rest.on_message(of_text)
    for worker, skill in ((single, None), (single, "only"), (rest, "whatever")):
        async with worker.test() as t:
            assert (await t.call("hi", skill=skill)).text == "hi"


async def test_the_answer_to_a_question_of_a_skill_needs_no_skill() -> None:
    worker = two_skills(on_message=True)

    @worker.skill("ask")
    async def ask() -> Stream:
        reply = yield NeedInput("?")
        yield f"asked {reply.text}"

    async with worker.test() as t:
        asked = await t.send("x", metadata={"skill": "ask"})
        assert (await t.send("yes", task_id=asked.task_id)).text == "asked yes"


def test_a_skill_needs_an_id_of_its_own_and_a_plain_one_limits_the_concurrency() -> None:
    worker = Worker("shop", skills=[{"id": "listed"}])
    worker.skill("one")(of_text)
    assert worker.concurrency is None
    for taken in ("one", "listed", ""):
        with pytest.raises(TypeError, match="id of its own"):
            worker.skill(taken)(of_text)
    worker.skill("two")(total)
    assert worker.concurrency == 32


def test_the_card_lists_the_skills_with_their_schemas() -> None:
    worker = two_skills(on_message=True)
    worker.rename("store:a")
    card = worker.card("http://127.0.0.1:1/")
    rest, price, echo = skills(card)
    assert [(skill.id, skill.name, skill.description, skill.tags, skill.examples) for skill in (rest, price, echo)] == [
        ("store", "store", "store", ("store",), ()),
        ("price", "Prices", "Adds up an order.", ("money",), ("2 teas",)),
        ("echo", "echo", "Says it again.", ("store",), ()),
    ]
    assert price.input_schema and price.input_schema["required"] == ["customer", "lines"]
    assert price.input_schema["$defs"]["Item"]["properties"]["count"] == {
        "default": 1,
        "exclusiveMinimum": 0,
        "type": "integer",
    }
    assert price.output_schema == echo.output_schema
    assert price.output_schema == {
        "properties": {"total": {"type": "number"}},
        "required": ["total"],
        "title": "Invoice",
        "type": "object",
    }
    assert (rest.input_schema, rest.output_schema, echo.input_schema) == (None, None, None)
    assert [skill.id for skill in skills(two_skills(on_message=False).card("http://127.0.0.1:1/"))] == ["price", "echo"]


def test_a_result_of_two_models_has_a_schema_of_either_and_listed_skills_have_that_of_on_message() -> None:
    async def handler(order: Order) -> AsyncGenerator[Invoice | Item | str, Message]:
        yield ""

    worker = worker_of(handler, skills=[{"id": "a"}, {"id": "b"}])
    first, second = skills(worker.card("http://127.0.0.1:1/"))
    assert first.output_schema and [one["$ref"] for one in first.output_schema["anyOf"]] == ["#/$defs/Invoice", "#/$defs/Item"]
    assert (first.input_schema, first.output_schema) == (second.input_schema, second.output_schema)


def test_a_model_without_a_json_schema_is_refused_at_decoration() -> None:
    class Unknown:
        pass

    class Unsupported(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        value: Unknown

    async def handler(order) -> None: ...  # type: ignore[no-untyped-def] # the annotation follows

    handler.__annotations__["order"] = Unsupported
    with pytest.raises(TypeError, match="Unsupported has no JSON Schema"):
        worker_of(handler)
