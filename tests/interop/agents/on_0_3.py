"""An agent as a user of a2a-sdk 0.3 writes it: nothing in it knows of Rolecall. `on_0_3.py PORT [no-streaming]`.

The first word of a message is the command; the words are those of the project's own worker beside this file.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Iterable
from pathlib import Path

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentSkill,
    Artifact,
    DataPart,
    FilePart,
    FileWithBytes,
    Part,
    TaskState,
    TaskStatus,
    TextPart,
    UnsupportedOperationError,
)
from a2a.utils import new_agent_text_message, new_task
from a2a.utils.errors import ServerError

EXTENSION = "https://example.com/extensions/loud/v1"
USAGE = "https://rolecall.dev/ext/usage/v1"
REPORT = {"model": "small", "inputTokens": 1200, "outputTokens": 80, "cost": {"amount": 0.5, "currency": "USD"}}


def text(words: str) -> list[Part]:
    return [Part(root=TextPart(text=words))]


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
            await event_queue.enqueue_event(new_agent_text_message("Hello yourself"))
            return
        task = context.current_task
        if task is None and command != "untold":
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if task is not None and task.status.state in (TaskState.input_required, TaskState.auth_required):
            await updater.start_work()
            await updater.add_artifact(text(f"You said {context.get_user_input()}"), name="answer")
            await updater.complete()
        elif command in ("count", "untold"):
            await self.count(updater, int(words[0]), *words[1:])
        elif command == "ask":
            await updater.requires_input(updater.new_agent_message(text("Which colour?")), final=True)
        elif command == "report":
            await self.report(updater)
        elif command == "wait":
            await updater.start_work(updater.new_agent_message(text("waiting")))
            await asyncio.sleep(60)
        elif command == "echo":
            await updater.add_artifact(context.message.parts, name="echo")
            await updater.complete()
        elif command == "fail":
            await updater.failed(updater.new_agent_message(text("It broke")))
        elif command == "reject":
            await updater.reject(updater.new_agent_message(text("Not mine")))
        else:
            await self.run_other(command, updater, event_queue, context)

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
        figures = DataPart(data={"answer": 42, "exact": 0.5, "name": "Käthe"})
        await updater.add_artifact([Part(root=figures)], name="figures")
        content = base64.b64encode(b"\x00\x01\xff").decode()
        file = FileWithBytes(bytes=content, name="picture.bin", mime_type="application/octet-stream")
        await updater.add_artifact([Part(root=FilePart(file=file))], name="picture.bin")
        await updater.complete()

    async def run_other(self, command: str, updater: TaskUpdater, event_queue: EventQueue, context: RequestContext) -> None:
        """What the SDK lets agents do, and what some do."""
        if command == "use":
            await updater.update_status(TaskState.working, metadata={USAGE: REPORT})
            await asyncio.sleep(0.05)
            await updater.add_artifact(text("done"))
            await updater.complete()
        elif command == "ask-openly":
            await updater.requires_input(updater.new_agent_message(text("Which colour?")))
        elif command == "say":
            await updater.complete(updater.new_agent_message(text("Just so")))
        elif command == "stubborn":
            await updater.start_work()
            await asyncio.sleep(1)
            await updater.complete()
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
        elif command == "whole":
            done = new_task(context.message)
            done.status = TaskStatus(state=TaskState.completed)
            done.artifacts = [Artifact(artifact_id="sum", parts=text("all at once"))]
            await event_queue.enqueue_event(done)
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
        if context.current_task.history[0].parts[0].root.text == "stubborn":
            raise ServerError(UnsupportedOperationError())
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main() -> None:
    port, *words = sys.argv[1:]
    card = AgentCard(
        name="Stock agent",
        description="Does what the first word of a message says.",
        url=f"http://127.0.0.1:{port}/",
        version="1.0.0",
        capabilities=AgentCapabilities(streaming="no-streaming" not in words, extensions=[AgentExtension(uri=EXTENSION)]),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="obey", name="Obey", description="Does what it is told.", tags=["test"])],
    )
    handler = DefaultRequestHandler(agent_executor=TestAgent(), task_store=InMemoryTaskStore())
    uvicorn.run(A2AStarletteApplication(agent_card=card, http_handler=handler).build(), port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
