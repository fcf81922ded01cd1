from collections.abc import AsyncGenerator

from rolecall import Message, NeedInput, Reject, Worker

worker = Worker("booking")


@worker.on_message
async def book(text: str) -> AsyncGenerator[str | NeedInput, Message]:
    """Books a table, and asks before it does."""
    reply = yield NeedInput(f"Book {text}? (yes/no)")
    if reply.text.strip().lower() != "yes":
        raise Reject("Nothing was booked.")
    yield f"Booked: {text}."


if __name__ == "__main__":
    worker.run()
