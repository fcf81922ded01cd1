"""A shop whose handlers have models of pydantic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rolecall.model.a2a import JsonObject
from worker_sdk import Worker


class Item(BaseModel):
    what: str
    price: float
    count: int = Field(1, gt=0)


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    customer: str = Field(min_length=2, max_length=9)
    lines: list[Item]
    speed: Literal["slow", "fast"] = "slow"

    @field_validator("customer")
    @classmethod
    def known(cls, name: str) -> str:
        if name == "stranger":
            raise ValueError("is no customer of ours")
        return name

    @model_validator(mode="after")
    def check_speed(self) -> Order:
        if self.customer == "snail" and self.speed == "fast":
            raise ValueError("cannot be fast")
        return self


class Invoice(BaseModel):
    total: float


GOOD: JsonObject = {"customer": "anna", "lines": [{"what": "tea", "price": 2.5, "count": 2}]}


def data_message(*data: Any, text: str | None = None) -> JsonObject:
    parts = [{"kind": "data", "data": one} for one in data]
    return {"parts": [*([] if text is None else [{"kind": "text", "text": text}]), *parts]}


def total(order: Order) -> Invoice:
    return Invoice(total=sum(line.price * line.count for line in order.lines))


def worker_of(handler: Callable[..., Any], **options: Any) -> Worker:
    worker = Worker("shop", **options)
    worker.on_message(handler)
    return worker


async def of_text(text: str) -> str:
    return text
