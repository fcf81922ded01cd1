"""The peer: an agent on the official SDK that forwards each call to another agent and returns its answer.

Runs in its own environment (`.tools/a2a-1.x`): `python agent.py WORKER_URL`. It has the best configuration that the SDK
offers: one shared HTTP client with raised limits, tasks in memory, no logs, and the
plain call to the worker where the caller made a plain call.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import httpx
import uvicorn
from a2a.client import ClientConfig, ClientFactory
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Message, SendMessageRequest
from starlette.applications import Starlette

_CONNECTIONS = 1000
_STREAMING_METHODS = frozenset({"message/stream", "SendStreamingMessage"})


class Forwarder(AgentExecutor):
    def __init__(self, plain, streaming) -> None:
        self._plain = plain
        self._streaming = streaming

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = Message()
        message.CopyFrom(context.message)
        message.ClearField("task_id")
        client = self._streaming if context.call_context.state.get("method") in _STREAMING_METHODS else self._plain
        async for answer in client.send_message(SendMessageRequest(message=message, configuration=context.configuration)):
            event = getattr(answer, answer.WhichOneof("payload"))
            if event.DESCRIPTOR.name == "Task":
                event.id = context.task_id
            else:
                event.task_id = context.task_id
            event.context_id = context.context_id
            await event_queue.enqueue_event(event)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("The benchmark cancels nothing.")


def card(url: str) -> AgentCard:
    return AgentCard(
        name="forwarder",
        description="Forwards to a worker.",
        version="1",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="0.3")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="forward", name="forward", description="Forwards.", tags=["bench"])],
    )


async def main(worker: str) -> None:
    # The protocol is named because asyncio sets TCP_NODELAY only then. Without it every call waits 40 ms for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as http:
        plain = await ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create_from_url(worker)
        streaming = await ClientFactory(ClientConfig(streaming=True, httpx_client=http)).create_from_url(worker)
        own = card(url)
        handler = DefaultRequestHandler(
            agent_executor=Forwarder(plain, streaming), task_store=InMemoryTaskStore(), agent_card=own
        )
        routes = [*create_agent_card_routes(own), *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)]
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning", access_log=False, backlog=2048))
        print(url, flush=True)
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
