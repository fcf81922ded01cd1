"""The client of a2a-sdk 0.3, driven over lines: a JSON request on stdin, its JSON answer on stdout, several at a time.

What the SDK returns is written as it returned it; what it raises becomes `error`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, A2AClient, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    Message,
    MessageSendConfiguration,
    MessageSendParams,
    Part,
    Role,
    SendMessageRequest,
    TaskIdParams,
    TaskQueryParams,
    TextPart,
)

Request = dict[str, Any]


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def message(request: Request) -> Message:
    return Message(
        role=Role.user,
        message_id=request.get("message_id") or str(uuid4()),
        parts=[Part(root=TextPart(text=request["text"]))],
        task_id=request.get("task"),
        context_id=request.get("context"),
    )


@asynccontextmanager
async def connected(request: Request, *, streaming: bool = True) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        yield await ClientFactory.connect(request["url"], ClientConfig(streaming=streaming, httpx_client=http))


async def card(request: Request) -> Any:
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        return dump(await A2ACardResolver(http, request["url"]).get_agent_card())


async def send(request: Request) -> Any:
    configuration = MessageSendConfiguration(blocking=request["blocking"]) if "blocking" in request else None
    async with connected(request, streaming=False) as client:
        answer = await anext(aiter(client.send_message(message(request), configuration=configuration)))
        return dump(answer[0] if isinstance(answer, tuple) else answer)


async def stream(request: Request) -> Any:
    async with connected(request) as client:
        return await read(request, client.send_message(message(request)))


async def resubscribe(request: Request) -> Any:
    async with connected(request) as client:
        return await read(request, client.resubscribe(TaskIdParams(id=request["task"])))


async def read(request: Request, answers: AsyncIterator[Any]) -> Any:
    """Every event, and the task that the SDK made of them. `take`: leave after so many."""
    events: list[Any] = []
    task = None
    async for answer in answers:
        found, update = answer if isinstance(answer, tuple) else (None, answer)
        task = found or task
        events.append(dump(update or found))
        if len(events) == request.get("take"):
            break
    return {"events": events, "task": dump(task) if task else None}


async def get(request: Request) -> Any:
    query = TaskQueryParams(id=request["task"], history_length=request.get("history"))
    async with connected(request) as client:
        return dump(await client.get_task(query))


async def cancel(request: Request) -> Any:
    async with connected(request) as client:
        return dump(await client.cancel_task(TaskIdParams(id=request["task"])))


async def legacy(request: Request) -> Any:
    """The client class of 0.2, which many programs still use."""
    async with httpx.AsyncClient(timeout=20, trust_env=False) as http:
        client = A2AClient(http, await A2ACardResolver(http, request["url"]).get_agent_card())
        answer = await client.send_message(SendMessageRequest(id="1", params=MessageSendParams(message=message(request))))
        return dump(answer.root.result)


OPERATIONS = {
    "card": card,
    "send": send,
    "stream": stream,
    "resubscribe": resubscribe,
    "get": get,
    "cancel": cancel,
    "legacy": legacy,
}


async def answer(request: Request) -> None:
    reply: Request = {"id": request["id"]}
    try:
        reply["result"] = await OPERATIONS[request["op"]](request)
    except A2AClientJSONRPCError as error:
        reply["error"] = {"type": type(error).__name__, "code": error.error.code, "message": error.error.message}
    except Exception as error:  # noqa: BLE001  whatever the SDK raises is what the test wants to see
        reply["error"] = {"type": type(error).__name__, "code": None, "message": str(error)}
    print(json.dumps(reply), flush=True)


async def main() -> None:
    async with asyncio.TaskGroup() as under_way:
        while line := await asyncio.to_thread(sys.stdin.readline):
            under_way.create_task(answer(json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main())
