"""Artifacts of a task as files, as of its last event."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hub.core.tasks.folding import FoldingThread
from rolecall.errors import AnswerNotSent, ArtifactNotFound, ArtifactUnreadable, InvalidParams, TaskNotFound
from rolecall.model.a2a import WorkerEvent
from rolecall.model.content import Download
from rolecall.model.ids import Caller, TaskId
from rolecall.protocol.v0_3.events import read_result
from tests.flow.callers import OTHER, enrol
from tests.flow.conftest import CALLER, System, shares
from tests.helpers.scripted import chunk, status, task


def artifact(name: str, *parts: dict[str, Any], append: bool = False) -> WorkerEvent:
    document = {"taskId": "wt", "contextId": "wc", "artifact": {"artifactId": name, "parts": [*parts]}, "append": append}
    return read_result({"kind": "artifact-update", **document})


async def ended(system: System, *steps: WorkerEvent, dialect: str = "0.3") -> TaskId:
    await enrol(system, "echo:a", dialect)
    system.forwarder.plan("echo:a", task(), *steps, status("completed"))
    return TaskId((await system.send())["id"])


async def content(system: System, task_id: TaskId, number: int, part: int | None = None, caller: Caller = CALLER) -> bytes:
    found, _ = await system.hub.download(caller, task_id, number, part)
    assert isinstance(found, Download)
    return found.content


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
async def test_artifacts_count_from_one_in_the_order_in_which_they_came(system: System, dialect: str) -> None:
    file = {"kind": "file", "file": {"bytes": "AP8=", "name": "a.png", "mimeType": "image/png"}}
    steps = [chunk("a", append=False), artifact("b", file), chunk("b"), artifact("c", file, {"kind": "data", "data": {"x": 1}})]
    task_id = await ended(system, *steps, dialect=dialect)
    assert [await content(system, task_id, number) for number in (1, 2)] == [b"ab", b"\x00\xff"]
    with pytest.raises(InvalidParams, match="2 parts of different kinds"):
        await content(system, task_id, 3)
    assert await content(system, task_id, 3, 2) == b'{"x":1}'
    found, at = await system.hub.download(CALLER, task_id, 2, None)
    assert isinstance(found, Download)
    assert (found.name, found.media_type, at) == ("a.png", "image/png", 6)
    for wrong in (0, 4):
        with pytest.raises(ArtifactNotFound, match=f"The task has 3 artifacts, and no artifact {wrong}"):
            await content(system, task_id, wrong)


async def test_a_long_task_is_folded_beside_the_loop_and_counts_as_an_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.with_bounds(shares=shares(unsent=500_000, unsent_per_workspace=500_000))
    task_id = await ended(system, chunk("x" * 300_000, append=False), chunk("y"))
    jobs, run = list[Any](), FoldingThread.run

    def recorded(thread: FoldingThread, caller: Caller, job: Any, *arguments: Any) -> Any:
        jobs.append(job)
        return run(thread, caller, job, *arguments)

    monkeypatch.setattr(FoldingThread, "run", recorded)
    assert await content(system, task_id, 1) == b"x" * 300_000 + b"y"
    assert len(jobs) == 2
    with system.deps.shares.unsent.hold(CALLER.workspace, 300_000), pytest.raises(AnswerNotSent):
        await content(system, task_id, 1)
    assert system.deps.shares.unsent.use.used == 0


async def test_an_artifact_that_cannot_be_read_is_the_workers_fault(system: System) -> None:
    task_id = await ended(system, artifact("a", {"kind": "file", "file": {"bytes": "not base64"}}))
    with pytest.raises(ArtifactUnreadable, match=r'"artifact.parts\[0\].file.bytes" must be base64'):
        await content(system, task_id, 1)


async def test_an_artifact_of_another_caller_looks_like_that_of_an_unknown_task(system: System) -> None:
    task_id = await ended(system, chunk("x", append=False))
    errors = []
    for name in (task_id, TaskId("x" * len(task_id))):
        with pytest.raises(TaskNotFound) as raised:
            await content(system, name, 1, caller=OTHER)
        errors.append(str(raised.value).replace(name, "~"))
    assert errors[0] == errors[1]


async def test_a_task_without_an_answer_has_no_artifact(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", 5.0, task("completed"))
    sent = asyncio.create_task(system.send())
    for cursor in (0, 1):  # before and after the task is shown to its caller
        await asyncio.sleep(0.1)
        row = await system.row()
        assert row.at == cursor
        with pytest.raises(ArtifactNotFound):
            await content(system, row.id, 1)
        await asyncio.sleep(5)
    await sent
