import asyncio
from collections.abc import AsyncGenerator

from pydantic import BaseModel, Field

from rolecall import Message, Status, Worker

worker = Worker("shop")


class Order(BaseModel):
    """What to buy."""

    what: str
    count: int = Field(1, gt=0)


class Invoice(BaseModel):
    total: float


@worker.skill("price")
async def price(order: Order) -> Invoice:
    """What an order costs."""
    return Invoice(total=2.5 * order.count)


@worker.skill("pack")
async def pack(order: Order, note: str | None = None) -> AsyncGenerator[Status | str, Message]:
    """Packs an order, and says how far it is."""
    for done in range(1, order.count + 1):
        await asyncio.sleep(0.1)
        yield Status(f"packed {order.what}", done=done, total=order.count)
    yield f"Packed: {note or 'no note'}."


if __name__ == "__main__":
    worker.run()
