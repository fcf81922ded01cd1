"""The client of a2a-sdk 1.x, controlled by lines: a JSON request on stdin, its JSON answer on stdout, several at a time.
The events of a stream are lines of their own before that.

What the SDK returns is written in the SDK's own JSON; what it raises becomes `error`. `binding`: JSONRPC or HTTP+JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.types import (
    AgentCard,
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP
from google.protobuf.json_format import MessageToDict, ParseDict

Request = dict[str, Any]


def part(source: Request) -> Part:
    made = Part(filename=source.get("name", ""), media_type=source.get("mediaType", ""))
    if "text" in source:
        made.text = source["text"]
    elif "raw" in source:
        made.raw = base64.b64decode(source["raw"])
    elif "url" in source:
        made.url = source["url"]
    else:
        ParseDict(source["data"], made.data)
    if "metadata" in source:
        made.metadata.update(source["metadata"])
    return made


def push_config(push: Request, task: str = "") -> TaskPushNotificationConfig:
    config = TaskPushNotificationConfig(task_id=task, id=push.get("id", ""), url=push["url"], token=push.get("token", ""))
    if "scheme" in push:
        config.authentication.CopyFrom(AuthenticationInfo(scheme=push["scheme"], credentials=push["credentials"]))
    return config


def send_request(request: Request) -> SendMessageRequest:
    message = Message(
        role=Role.ROLE_USER,
        message_id=request.get("message_id") or str(uuid4()),
        parts=[part(source) for source in request["parts"]],
        task_id=request.get("task"),
        context_id=request.get("context"),
        metadata=request.get("metadata"),
        reference_task_ids=request.get("references"),
    )
    configuration = SendMessageConfiguration(return_immediately=not request.get("blocking", True))
    if "history" in request:
        configuration.history_length = request["history"]
    if "push" in request:
        configuration.task_push_notification_config.CopyFrom(push_config(request["push"]))
    return SendMessageRequest(message=message, configuration=configuration)


class SdkClient:
    """One program with its clients, which it keeps: one for each agent and way of calling. `plain` is for cards that are
    asked for in no version, which this SDK never does by itself.
    """

    def __init__(self, http: httpx.AsyncClient, plain: httpx.AsyncClient) -> None:
        self.http = http
        self.plain = plain
        self.clients: dict[tuple[str, str, bool], Client] = {}

    async def client(self, request: Request, *, streaming: bool = True) -> Client:
        key = (request["url"], request["binding"], streaming)
        if key not in self.clients:
            factory = self.factory(request, streaming=streaming)
            self.clients[key] = await factory.create_from_url(request["url"])
        return self.clients[key]

    def factory(self, request: Request, *, streaming: bool) -> ClientFactory:
        bindings = [request["binding"]]
        return ClientFactory(ClientConfig(streaming=streaming, httpx_client=self.http, supported_protocol_bindings=bindings))

    async def fetched(self, request: Request) -> AgentCard:
        """`version`: what it is asked for in, "" for none; left out, the SDK's own way. `path`: "/" for the URL itself."""
        path = request.get("path")
        if "version" not in request:
            return await A2ACardResolver(self.http, request["url"]).get_agent_card(path)
        headers = {"headers": {"A2A-Version": request["version"]}} if request["version"] else None
        return await A2ACardResolver(self.plain, request["url"]).get_agent_card(path, http_kwargs=headers)

    async def card(self, request: Request) -> Any:
        return MessageToDict(await self.fetched(request))

    async def send(self, request: Request) -> Any:
        """`version`: by a card of that version."""
        if "version" in request:
            client = self.factory(request, streaming=False).create(await self.fetched(request))
        else:
            client = await self.client(request, streaming=False)
        return MessageToDict(await anext(aiter(client.send_message(send_request(request)))))

    async def stream(self, request: Request) -> None:
        await read(request, (await self.client(request)).send_message(send_request(request)))

    async def subscribe(self, request: Request) -> None:
        await read(request, (await self.client(request)).subscribe(SubscribeToTaskRequest(id=request["task"])))

    async def get(self, request: Request) -> Any:
        query = GetTaskRequest(id=request["task"])
        if "history" in request:
            query.history_length = request["history"]
        return MessageToDict(await (await self.client(request)).get_task(query))

    async def cancel(self, request: Request) -> Any:
        return MessageToDict(await (await self.client(request)).cancel_task(CancelTaskRequest(id=request["task"])))

    async def list(self, request: Request) -> Any:
        query = ParseDict(request["query"], ListTasksRequest())
        return MessageToDict(await (await self.client(request)).list_tasks(query))

    async def push_set(self, request: Request) -> Any:
        config = push_config(request["push"], request["task"])
        return MessageToDict(await (await self.client(request)).create_task_push_notification_config(config))

    async def push_get(self, request: Request) -> Any:
        named = GetTaskPushNotificationConfigRequest(task_id=request["task"], id=request["config"])
        return MessageToDict(await (await self.client(request)).get_task_push_notification_config(named))

    async def push_list(self, request: Request) -> Any:
        named = ListTaskPushNotificationConfigsRequest(task_id=request["task"])
        return MessageToDict(await (await self.client(request)).list_task_push_notification_configs(named))

    async def push_delete(self, request: Request) -> Any:
        named = DeleteTaskPushNotificationConfigRequest(task_id=request["task"], id=request["config"])
        await (await self.client(request)).delete_task_push_notification_config(named)

    async def extended_card(self, request: Request) -> Any:
        """The SDK asks for it only where the card claims it: without a token it believes so."""
        card = await self.fetched(request)
        if "token" not in request:
            card.capabilities.extended_agent_card = True
        context = ClientCallContext(service_parameters=shown(request))
        client = self.factory(request, streaming=True).create(card)
        return MessageToDict(await client.get_extended_agent_card(GetExtendedAgentCardRequest(), context=context))


def shown(request: Request) -> dict[str, str]:
    """The headers that show `token`."""
    return {"Authorization": f"Bearer {request['token']}"} if "token" in request else {}


async def read(request: Request, answers: AsyncGenerator[Any]) -> None:
    """`take`: disconnect after that many."""
    seen = 0
    async with aclosing(answers):
        async for answer in answers:
            seen += 1
            write({"id": request["id"], "event": MessageToDict(answer)})
            if seen == request.get("take"):
                break


def write(line: Request) -> None:
    print(json.dumps(line), flush=True)


async def answer(sdk_client: SdkClient, request: Request) -> None:
    reply: Request = {"id": request["id"]}
    try:
        reply["result"] = await getattr(sdk_client, request["op"])(request)
    except Exception as error:  # noqa: BLE001  whatever the SDK raises is what the test wants to see
        code = JSON_RPC_ERROR_CODE_MAP.get(type(error))
        reply["error"] = {"type": type(error).__name__, "code": code, "message": str(error)}
    write(reply)


async def main() -> None:
    options = {"timeout": 20, "trust_env": False, "limits": httpx.Limits(max_connections=None)}
    async with httpx.AsyncClient(**options) as http, httpx.AsyncClient(**options) as plain, asyncio.TaskGroup() as under_way:
        ClientFactory(ClientConfig(httpx_client=http))  # which tells every call's version from now on
        sdk_client = SdkClient(http, plain)
        while line := await asyncio.to_thread(sys.stdin.readline):
            under_way.create_task(answer(sdk_client, json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main())
