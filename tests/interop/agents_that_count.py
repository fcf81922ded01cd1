"""An agent as users of a2a-sdk write it, on 0.3 and on 1.x: nothing in it knows of Rolecall.

`agents_that_count.py PORT [VERSION…]`: on 1.x, the versions of the protocol that its card lists.

A message says `numbers|ha COUNT PAUSE [SILENCE]`: so many chunks of one artifact, seconds between them, and before the first
word. Each execution is noted in the file that RUNS names: when it began and when it ended, by its message's id.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill
from starlette.applications import Starlette

try:
    from a2a.helpers import new_task_from_user_message as new_task
    from a2a.helpers import new_text_part as text_part

    ON_1_X = True
except ImportError:
    from a2a.types import Part, TextPart
    from a2a.utils import new_task

    ON_1_X = False

    def text_part(words: str) -> Part:
        return Part(root=TextPart(text=words))


def note(what: str, context: RequestContext) -> None:
    with Path(os.environ["RUNS"]).open("a") as runs:
        runs.write(f"{what} {context.message.message_id}\n")


class CountAgent(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        note("began", context)
        kind, many, pause, *silence = context.get_user_input().split()
        await asyncio.sleep(float(silence[0]) if silence else 0)
        await event_queue.enqueue_event(new_task(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        for number in range(int(many)):
            chunk = [text_part("ha" if kind == "ha" else f"{number} ")]
            await updater.add_artifact(chunk, artifact_id="said", append=number > 0)
            await asyncio.sleep(float(pause))
        await updater.complete()
        note("ended", context)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


ABOUT = {
    "name": "Counting agent",
    "description": "Counts, or says ha, as often as it is told.",
    "version": "1.0.0",
    "capabilities": AgentCapabilities(streaming=True),
    "default_input_modes": ["text/plain"],
    "default_output_modes": ["text/plain"],
    "skills": [AgentSkill(id="count", name="Count", description="Counts.", tags=["test"])],
}


def app_on_0_3(url: str) -> Starlette:
    from a2a.server.apps import A2AStarletteApplication
    from a2a.server.request_handlers import DefaultRequestHandler

    handler = DefaultRequestHandler(agent_executor=CountAgent(), task_store=InMemoryTaskStore())
    return A2AStarletteApplication(agent_card=AgentCard(url=url, **ABOUT), http_handler=handler).build()


def app_on_1_x(url: str, versions: list[str]) -> Starlette:
    """The SDK speaks 0.3 at the same address if it is told to."""
    from a2a.server.request_handlers import DefaultRequestHandlerV2
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.types import AgentInterface

    interfaces = [AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version) for version in versions]
    card = AgentCard(supported_interfaces=interfaces, **ABOUT)
    handler = DefaultRequestHandlerV2(agent_executor=CountAgent(), task_store=InMemoryTaskStore(), agent_card=card)
    calls = create_jsonrpc_routes(handler, "/", enable_v0_3_compat="0.3" in versions)
    return Starlette(routes=[*create_agent_card_routes(card), *calls])


if __name__ == "__main__":
    port, *versions = sys.argv[1:]
    url = f"http://127.0.0.1:{port}/"
    app = app_on_1_x(url, versions) if ON_1_X else app_on_0_3(url)
    uvicorn.run(app, port=int(port), log_level="warning")
