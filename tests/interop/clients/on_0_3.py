"""The client of a2a-sdk 0.3, controlled by lines: a JSON request on stdin, its JSON answer on stdout, several at a time.
The events of a stream are lines of their own before that.

What the SDK returns is written as it returned it; what it raises becomes `error`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, A2AClient, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    AgentCard,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    MessageSendParams,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    SendMessageRequest,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

Request = dict[str, Any]


def dump(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def part(source: Request) -> Part:
    metadata, file = source.get("metadata"), {"name": source.get("name"), "mime_type": source.get("mediaType")}
    if "text" in source:
        return Part(root=TextPart(text=source["text"], metadata=metadata))
    if "data" in source:
        return Part(root=DataPart(data=source["data"], metadata=metadata))
    content = FileWithBytes(bytes=source["raw"], **file) if "raw" in source else FileWithUri(uri=source["url"], **file)
    return Part(root=FilePart(file=content, metadata=metadata))


def message(request: Request) -> Message:
    return Message(
        role=Role.user,
        message_id=request.get("message_id") or str(uuid4()),
        parts=[part(source) for source in request["parts"]],
        task_id=request.get("task"),
        context_id=request.get("context"),
        metadata=request.get("metadata"),
        reference_task_ids=request.get("references"),
    )


def push_config(push: Request) -> PushNotificationConfig:
    authentication = None
    if "scheme" in push:
        authentication = PushNotificationAuthenticationInfo(schemes=[push["scheme"]], credentials=push["credentials"])
    return PushNotificationConfig(id=push.get("id"), url=push["url"], token=push.get("token"), authentication=authentication)


def configuration(request: Request) -> MessageSendConfiguration | None:
    options: Request = {name: request[name] for name in ("blocking",) if name in request}
    if "history" in request:
        options["history_length"] = request["history"]
    if "push" in request:
        options["push_notification_config"] = push_config(request["push"])
    return MessageSendConfiguration(**options) if options else None


class SdkClient:
    """One program with its clients, which it keeps: one for each agent and way of calling."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.clients: dict[tuple[str, bool], Client] = {}

    async def client(self, request: Request, *, streaming: bool = True) -> Client:
        key = (request["url"], streaming)
        if key not in self.clients:
            self.clients[key] = self.connected(await self.fetched(request), streaming=streaming)
        return self.clients[key]

    def connected(self, card: AgentCard, *, streaming: bool) -> Client:
        return ClientFactory(ClientConfig(streaming=streaming, httpx_client=self.http)).create(card)

    async def fetched(self, request: Request) -> AgentCard:
        """`version`: what it is asked for in; left out, the SDK's own way, which says nothing. `path`: "/" for that of the URL
        itself.
        """
        headers = {"headers": {"A2A-Version": request["version"]}} if request.get("version") else None
        return await A2ACardResolver(self.http, request["url"]).get_agent_card(request.get("path"), http_kwargs=headers)

    async def card(self, request: Request) -> Any:
        return dump(await self.fetched(request))

    async def send(self, request: Request) -> Any:
        """`version`: by a card of that version."""
        if "version" in request:
            client = self.connected(await self.fetched(request), streaming=False)
        else:
            client = await self.client(request, streaming=False)
        answer = await anext(aiter(client.send_message(message(request), configuration=configuration(request))))
        return dump(answer[0] if isinstance(answer, tuple) else answer)

    async def stream(self, request: Request) -> Any:
        client = await self.client(request)
        return await read(request, client.send_message(message(request), configuration=configuration(request)))

    async def subscribe(self, request: Request) -> Any:
        return await read(request, (await self.client(request)).resubscribe(TaskIdParams(id=request["task"])))

    async def get(self, request: Request) -> Any:
        query = TaskQueryParams(id=request["task"], history_length=request.get("history"))
        return dump(await (await self.client(request)).get_task(query))

    async def cancel(self, request: Request) -> Any:
        return dump(await (await self.client(request)).cancel_task(TaskIdParams(id=request["task"])))

    async def push_set(self, request: Request) -> Any:
        config = TaskPushNotificationConfig(task_id=request["task"], push_notification_config=push_config(request["push"]))
        return dump(await (await self.client(request)).set_task_callback(config))

    async def push_get(self, request: Request) -> Any:
        named = GetTaskPushNotificationConfigParams(id=request["task"], push_notification_config_id=request.get("config"))
        return dump(await (await self.client(request)).get_task_callback(named))

    async def extended_card(self, request: Request) -> Any:
        """The SDK asks for it only where the card claims it: without a token it believes so."""
        card = await self.fetched(request)
        if "token" not in request:
            card.supports_authenticated_extended_card = True
        context = ClientCallContext(state={"http_kwargs": {"headers": shown(request)}})
        return dump(await self.connected(card, streaming=True).get_card(context=context))

    async def legacy(self, request: Request) -> Any:
        """The client class of 0.2, which many programs still use."""
        client = A2AClient(self.http, await self.fetched(request))
        answer = await client.send_message(SendMessageRequest(id="1", params=MessageSendParams(message=message(request))))
        return dump(answer.root.result)


def shown(request: Request) -> dict[str, str]:
    """The headers that show `token`."""
    return {"Authorization": f"Bearer {request['token']}"} if "token" in request else {}


async def read(request: Request, answers: AsyncGenerator[Any]) -> Any:
    """The task that the SDK made of the events. `take`: disconnect after that many."""
    task, seen = None, 0
    async with aclosing(answers):
        async for answer in answers:
            found, update = answer if isinstance(answer, tuple) else (None, answer)
            task, seen = found or task, seen + 1
            write({"id": request["id"], "event": dump(update or found)})
            if seen == request.get("take"):
                break
    return dump(task) if task else None


def write(line: Request) -> None:
    print(json.dumps(line), flush=True)


async def answer(sdk_client: SdkClient, request: Request) -> None:
    reply: Request = {"id": request["id"]}
    try:
        reply["result"] = await getattr(sdk_client, request["op"])(request)
    except A2AClientJSONRPCError as error:
        reply["error"] = {"type": type(error).__name__, "code": error.error.code, "message": error.error.message}
    except Exception as error:  # noqa: BLE001  whatever the SDK raises is what the test wants to see
        reply["error"] = {"type": type(error).__name__, "code": None, "message": str(error)}
    write(reply)


async def main() -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=20, trust_env=False, limits=limits) as http, asyncio.TaskGroup() as under_way:
        sdk_client = SdkClient(http)
        while line := await asyncio.to_thread(sys.stdin.readline):
            under_way.create_task(answer(sdk_client, json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main())
