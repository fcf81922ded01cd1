"""A worker that wraps a command-line agent.

The agent writes one JSON event per line. The tests check what callers get for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from worker_sdk import Artifact, Message, NeedInput, Reply, Status, UserError, Worker

HandlerStream = AsyncGenerator[str | Status | Artifact | NeedInput, Message]

# Prints each event of its argument; a number is a pause, "answer" reads a line and prints it, "stubborn" ignores SIGTERM.
AGENT = """
import json, signal, sys, time
def put(**event): print(json.dumps(event), flush=True)
for event in json.loads(sys.argv[1]):
    if isinstance(event, dict): put(**event)
    elif event == "answer": put(kind="thinking", text=sys.stdin.readline().strip())
    elif event == "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif event == "fail": sys.exit(3)
    else: time.sleep(event)
"""
_LONGEST_RESULT = 200


@asynccontextmanager
async def running(script: str) -> AsyncGenerator[Process]:
    """Terminate the agent when the handler ends, and kill it if it still runs after two seconds."""
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", AGENT, script, stdin=PIPE, stdout=PIPE)
    try:
        yield agent
    finally:
        if agent.returncode is None:
            agent.terminate()
            try:
                async with asyncio.timeout(2):
                    await agent.wait()
            except TimeoutError:
                agent.kill()
                await agent.wait()


def wrapper(timeout: float = 10.0) -> Worker:
    worker = Worker("coder")

    @worker.on_message
    async def run(message: Message) -> HandlerStream:
        async with running(message.text) as agent:
            assert agent.stdout is not None
            while True:
                try:
                    async with asyncio.timeout(timeout):
                        line = await agent.stdout.readline()
                except TimeoutError:
                    raise UserError(f"The agent was silent for {timeout:g} s.") from None
                if not line:
                    break
                for value in values_of(json.loads(line)):
                    reply = yield value
                    if isinstance(value, NeedInput):
                        assert agent.stdin is not None
                        agent.stdin.write(reply.text.encode() + b"\n")
            if await agent.wait():
                raise UserError(f"The agent ended with {agent.returncode}.")

    return worker


def values_of(event: dict[str, Any]) -> Sequence[str | Status | Artifact | NeedInput]:
    kind = event.pop("kind")
    if kind == "init":
        return [Status("started"), *([Artifact("session", data=event)] if event else [])]
    if kind == "thinking":
        return [event["text"]]
    if kind == "tool_use":
        return [Status(f"Using tool: {event['name']}")]
    if kind == "tool_result":
        return [Status(event["output"][:_LONGEST_RESULT])]
    if kind == "approval_required":
        return [NeedInput(event["question"])]
    if kind == "error":
        raise UserError(event["text"])
    return [Artifact("result", data=event)] if event else []


async def events_of(*script: Any) -> list[tuple[str, str]]:
    async with wrapper().test() as t:
        return [(event.kind, event.text) async for event in t.stream(json.dumps(script))]


def status_text(reply: Reply) -> str:
    return reply.message.text if reply.message else ""


async def test_its_start_is_a_status_and_its_session_an_artifact() -> None:
    assert await events_of({"kind": "init"}) == [("task", ""), ("status", "started"), ("done", "")]
    async with wrapper().test() as t:
        reply = await t.send(json.dumps([{"kind": "init", "model": "m", "sessionId": "s"}]))
    assert reply.state == "completed"
    assert reply.data == {"model": "m", "sessionId": "s"}


async def test_its_thoughts_are_chunks_of_one_text_and_empty_ones_are_skipped() -> None:
    events = [{"kind": "thinking", "text": text} for text in ("I ", "", "read")]
    assert await events_of(*events) == [("task", ""), ("text", "I "), ("text", "read"), ("text", ""), ("done", "")]


async def test_its_tool_calls_are_progress_with_shortened_results() -> None:
    events = await events_of({"kind": "tool_use", "name": "grep"}, {"kind": "tool_result", "output": "x" * 1000})
    assert events[1:3] == [("status", "Using tool: grep"), ("status", "x" * _LONGEST_RESULT)]


async def test_its_end_ends_the_task_with_a_result_or_a_reason() -> None:
    async with wrapper().test() as t:
        done = await t.send(json.dumps([{"kind": "done", "summary": "all is well"}]))
        failed = await t.send(json.dumps([{"kind": "error", "text": "no such file"}]))
    assert (done.state, done.data) == ("completed", {"summary": "all is well"})
    assert (failed.state, status_text(failed)) == ("failed", "no such file")


async def test_its_question_pauses_the_task_and_the_answer_goes_to_its_input() -> None:
    script = [{"kind": "approval_required", "question": "Run it?"}, "answer"]
    async with wrapper().test() as t:
        question = await t.send(json.dumps(script))
        assert (question.state, status_text(question)) == ("input-required", "Run it?")
        answered = await t.send("y", task_id=question.task_id)
    assert (answered.state, answered.text) == ("completed", "y")


@pytest.mark.parametrize(("script", "timeout", "reason"), [(["fail"], 10.0, "ended with 3"), ([60], 0.3, "silent for 0.3 s")])
async def test_its_failure_and_its_silence_fail_the_task(script: list[Any], timeout: float, reason: str) -> None:
    async with wrapper(timeout).test() as t:
        failed = await t.send(json.dumps(script))
    assert failed.state == "failed"
    assert reason in status_text(failed)


@pytest.mark.parametrize(("ignore_signal", "least", "limit"), [(False, 0.0, 1.9), (True, 1.9, 8.0)])
async def test_canceling_terminates_the_agent_and_then_kills_it(ignore_signal: bool, least: float, limit: float) -> None:
    script = [*(["stubborn"] if ignore_signal else []), {"kind": "thinking", "text": "…"}, 60]
    async with wrapper().test() as t, asyncio.timeout(20):
        async for event in t.stream(json.dumps(script)):
            if event.kind == "text":
                break
        began = time.monotonic()
        canceled = await t.cancel(event.raw["taskId"])
    assert canceled.state == "canceled"
    assert least <= time.monotonic() - began < limit
