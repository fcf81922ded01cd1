"""An agent as a user of a2a-sdk 1.x writes it: nothing in it knows of Rolecall. `on_1_x.py PORT [rest] [no-streaming]`.

It speaks 1.0 and nothing older: in JSON-RPC, or only as REST. The first word of a message is the command; the words are
those of the other agents beside this file.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path

import uvicorn
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, Part, TaskState
from starlette.applications import Starlette

EXTENSION = "https://example.com/extensions/loud/v1"
USAGE = "https://rolecall.dev/ext/usage/v1"
REPORT = {"model": "small", "inputTokens": 1200, "outputTokens": 80, "cost": {"amount": 0.5, "currency": "USD"}}


def text(words: str) -> list[Part]:
    return [new_text_part(words)]


def is_there(file: str) -> bool:
    return Path(file).exists()


async def wait(pause: str) -> None:
    """Wait that many seconds, or until the file of that name exists."""
    if not pause.startswith("/"):
        await asyncio.sleep(float(pause))
        return
    while not is_there(pause):  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(0.01)


class TestAgent(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, *words = context.get_user_input().split()
        if command == "hello":
            await event_queue.enqueue_event(new_text_message("Hello yourself"))
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        # A message that names its task alone gets a context made up by the SDK: the task's own is the right one.
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if task.status.state in (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED):
            await updater.start_work()
            await updater.add_artifact(text(f"You said {context.get_user_input()}"), name="answer")
            await updater.complete()
        elif command == "count":
            await self.count(updater, int(words[0]), *words[1:])
        elif command == "ask":
            await updater.requires_input(updater.new_agent_message(text("Which colour?")))
        elif command == "report":
            await self.report(updater)
        elif command == "wait":
            await updater.start_work(updater.new_agent_message(text("waiting")))
            await asyncio.sleep(60)
        elif command == "echo":
            await updater.add_artifact(list(context.message.parts), name="echo")
            await updater.complete()
        elif command == "fail":
            await updater.failed(updater.new_agent_message(text("It broke")))
        elif command == "reject":
            await updater.reject(updater.new_agent_message(text("Not mine")))
        else:
            await self.run_other(command, updater, context)

    async def count(self, updater: TaskUpdater, many: int, pause: str = "0") -> None:
        await updater.start_work(updater.new_agent_message(text("counting")))
        for number in range(1, many + 1):
            await updater.add_artifact(
                text(f"{number} "), artifact_id="numbers", name="numbers", append=number > 1, last_chunk=number == many
            )
            await wait(pause)
        await updater.complete()

    async def report(self, updater: TaskUpdater) -> None:
        await updater.start_work()
        figures = new_data_part({"answer": 42, "exact": 0.5, "name": "Käthe"})
        await updater.add_artifact([figures], name="figures")
        file = new_raw_part(b"\x00\x01\xff", filename="picture.bin", media_type="application/octet-stream")
        await updater.add_artifact([file], name="picture.bin")
        await updater.complete()

    async def run_other(self, command: str, updater: TaskUpdater, context: RequestContext) -> None:
        """What the SDK lets agents do, and what some do."""
        if command == "use":
            await updater.update_status(TaskState.TASK_STATE_WORKING, metadata={USAGE: REPORT})
            await asyncio.sleep(0.05)
            await updater.add_artifact(text("done"))
            await updater.complete()
        elif command == "say":
            await updater.complete(updater.new_agent_message(text("Just so")))
        elif command == "crash":
            await updater.start_work()
            raise RuntimeError("a secret of the agent")
        elif command == "vanish":
            await updater.start_work()
        elif command == "revise":
            await updater.add_artifact(text("draft"), artifact_id="paper", name="paper")
            await updater.add_artifact(text("notes"), artifact_id="notes", name="notes")
            await updater.add_artifact(text("final"), artifact_id="paper", name="paper")
            await updater.complete()
        elif command == "sign-in":
            await updater.requires_auth(updater.new_agent_message(text("Who are you?")))
        elif command == "extensions":
            await self.tell(updater, context.requested_extensions)
        elif command == "whoami":
            await self.tell(updater, [context.task_id])
        elif command == "references":
            await self.tell(updater, context.message.reference_task_ids)
        elif command == "big":
            await updater.add_artifact(text("ü" * 200_000), artifact_id="big")
            await updater.complete()

    async def tell(self, updater: TaskUpdater, words: Iterable[str]) -> None:
        await updater.add_artifact(text(" ".join(words)))
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        await TaskUpdater(event_queue, task.id, task.context_id).cancel()


def main() -> None:
    port, *words = sys.argv[1:]
    url, rest = f"http://127.0.0.1:{port}", "rest" in words
    interface = AgentInterface(url=url, protocol_binding="HTTP+JSON" if rest else "JSONRPC", protocol_version="1.0")
    card = AgentCard(
        name="Stock agent",
        description="Does what the first word of a message says.",
        supported_interfaces=[interface],
        version="1.0.0",
        capabilities=AgentCapabilities(streaming="no-streaming" not in words, extensions=[AgentExtension(uri=EXTENSION)]),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="obey", name="Obey", description="Does what it is told.", tags=["test"])],
    )
    handler = DefaultRequestHandlerV2(agent_executor=TestAgent(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = create_rest_routes(handler) if rest else create_jsonrpc_routes(handler, "/")
    uvicorn.run(Starlette(routes=[*create_agent_card_routes(card), *routes]), port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
