"""Examples that a worker's models take, and what people read of what it takes."""

from __future__ import annotations

import json
import shlex
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, HttpUrl

from rolecall.cli.agents.example_call import example_call
from rolecall.cli.agents.schemas import NoExample, example_of, members_of, required_of
from rolecall.model.a2a import JsonObject
from worker_sdk import Worker
from worker_sdk.handlers.models import schema_of


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Item(BaseModel):
    what: str
    price: float
    count: int = Field(1, gt=0)


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Order(BaseModel):
    items: Annotated[list[Item], Field(min_length=2)]
    day: date
    at: datetime
    id: UUID
    size: Size
    kind: Literal["a", "b"]
    whole: Annotated[int, Field(gt=10, lt=12)]
    half: Annotated[float, Field(gt=0, lt=1)]
    negative: Annotated[int, Field(lt=0, multiple_of=7)]
    price: Decimal
    time: timedelta
    page: HttpUrl
    maybe: int | None
    yes: bool
    labels: dict[str, str]
    short: Annotated[str, Field(max_length=3)]
    long: Annotated[str, Field(min_length=12)]
    tree: Tree
    anything: object
    code: Annotated[str, Field(pattern="^a+$", examples=["aaa"])]


def schema(model: type[BaseModel]) -> JsonObject:
    return schema_of((model,), "validation")


def test_an_example_matches_its_model() -> None:
    Order.model_validate_json(json.dumps(example_of(schema(Order))))


def test_what_may_be_left_out_is() -> None:
    assert example_of(schema(Item)) == {"what": "what", "price": 1}


class Pattern(BaseModel):
    code: Annotated[str, Field(pattern="^a+$")]


class Endless(BaseModel):
    next: Endless


NAMES = [f"a{number}" for number in range(20)]
WIDE: JsonObject = {
    "$ref": "#/$defs/0",
    "$defs": {
        str(level): {
            "type": "object",
            "required": NAMES,
            "properties": {name: {"$ref": f"#/$defs/{level + 1}"} for name in NAMES},
        }
        for level in range(7)
    }
    | {"7": {"type": "string"}},
}
"""More members than anybody can print."""
MANY: JsonObject = {"type": "array", "minItems": 10**9, "items": {"type": "boolean"}}


@pytest.mark.parametrize(
    "unknown",
    [
        schema(Pattern),
        schema(Endless),
        WIDE,
        MANY,
        {"type": "string", "format": "colour"},
        {"type": "integer", "minimum": 1, "maximum": 0},
        {"type": "integer", "minimum": "one"},
        {"type": "object", "required": 7},
        {"type": "object", "required": ["a"], "properties": []},
        {"$ref": "#/$defs/none"},
        {"$ref": "#"},
        {"anyOf": []},
        {"type": ["string", "null"]},
    ],
)
def test_where_nobody_can_tell_what_matches_there_is_none(unknown: JsonObject) -> None:
    with pytest.raises(NoExample):
        example_of(unknown)
    assert members_of(unknown)
    assert isinstance(required_of(unknown), list | tuple)


def test_the_members_of_a_model_are_one_line() -> None:
    assert members_of(schema(Item)) == "{what: text, price: number, count?: whole number}"
    assert members_of(schema(Tree)).startswith("{name: text, children?: [{name: text, children?: [{name: text, ")
    assert len(members_of(schema(Order))) == 301
    line = members_of(schema(Order) | {"required": ["kind"]})
    assert "items?: [{what: text, price: number, count?: whole number}], day?: date, at?: date-time" in line
    assert "size?: small or large, kind: a or b" in line


def card(*handlers: Any, named: bool = False) -> JsonObject:
    worker = Worker("shop")
    for handler in handlers:
        (worker.skill(handler.__name__) if named else worker.on_message)(handler)
    return worker.card("http://127.0.0.1:1/")


async def repeat(text: str) -> str:
    return text


async def price(order: Item) -> str:
    return order.what


async def code(pattern: Pattern) -> str:
    return pattern.code


def words(card: JsonObject) -> list[str]:
    return shlex.split(example_call("shop", card))


def test_the_call_of_a_worker_sends_what_its_handler_takes() -> None:
    assert words(card(repeat)) == words({}) == ["shop", "hello"]
    assert words(card(price)) == ["shop", "--data", '{"what": "what", "price": 1}']
    assert words(card(price, named=True)) == words(card(price))
    assert words(card(price, repeat, named=True)) == ["shop", "--skill", "price", "--data", '{"what": "what", "price": 1}']
    both = Worker("shop")
    both.skill("price")(price)
    both.on_message(repeat)
    assert words(both.card("http://127.0.0.1:1/")) == ["shop", "hello"]


def test_where_there_is_no_example_the_call_names_the_members() -> None:
    assert words(card(code)) == ["shop", "--data", '{"code": …}']
