import asyncio
from collections.abc import AsyncGenerator

from rolecall import Artifact, Reject, Status, Worker

worker = Worker("counter", concurrency=4)


@worker.on_message
async def count(text: str) -> AsyncGenerator[str | Status | Artifact, None]:
    """Counts to a number."""
    if not text.strip().isdigit():
        raise Reject("Give me a whole number.")
    last = int(text)
    yield Status(f"counting to {last}")
    for number in range(1, last + 1):
        yield f"{number} "
        await asyncio.sleep(0.1)
    yield Artifact("sum.json", data={"last": last, "sum": last * (last + 1) // 2})


if __name__ == "__main__":
    worker.run()
