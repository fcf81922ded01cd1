"""The peer of agent.py on the SDK's 0.3 line, in its own environment (`.tools/a2a-0.3`): `python agent03.py WORKER_URL`.

The same configuration: one shared HTTP client with raised limits, tasks in memory, no logs, and the plain call to the
worker where the caller made a plain call.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import httpx
import uvicorn
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Task

_CONNECTIONS = 1000


class Forwarder(AgentExecutor):
    def __init__(self, plain, streaming) -> None:
        self._plain = plain
        self._streaming = streaming

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message.model_copy(update={"task_id": None})
        client = self._streaming if context.call_context.state.get("method") == "message/stream" else self._plain
        async for task, update in client.send_message(message):
            event = update or task.model_copy()
            if isinstance(event, Task):
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
        url=url,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="forward", name="forward", description="Forwards.", tags=["bench"])],
    )


async def main(worker: str) -> None:
    # The protocol is named because asyncio sets TCP_NODELAY only then; without it every call waits 40 ms for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as http:
        found = await A2ACardResolver(http, worker).get_agent_card()
        plain = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(found)
        streaming = ClientFactory(ClientConfig(streaming=True, httpx_client=http)).create(found)
        handler = DefaultRequestHandler(agent_executor=Forwarder(plain, streaming), task_store=InMemoryTaskStore())
        app = A2AStarletteApplication(agent_card=card(url), http_handler=handler).build()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, backlog=2048))
        print(url, flush=True)
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
