"""Handlers take and give files of any size: those of an event's size from memory, larger ones streamed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rolecall.errors import InvalidParams
from worker_sdk import Artifact, File, Message, NeedInput, RolecallError, Task, TooLarge, Worker
from worker_sdk.calling.reply import artifact_of
from worker_sdk.files.content import AtHub
from worker_sdk.files.parts import FETCHED

LARGE = 300_000
VERY_LARGE = FETCHED + 1


def worker_of(handler: Any, **options: Any) -> Worker:
    worker = Worker("w", instance="a", **options)
    worker.on_message(handler)
    return worker


def file_of(folder: Path, size: int, name: str = "f.bin") -> Path:
    """With no blocks on the disk but the last one."""
    path = folder / name
    with path.open("wb") as out:
        out.truncate(size - 1)
        out.seek(size - 1)
        out.write(b"!")
    return path


@pytest.mark.parametrize("size", [3, LARGE])
async def test_a_file_is_in_memory_before_the_handler_runs_and_comes_back(size: int, tmp_path: Path) -> None:
    async def handler(file: File) -> File:
        assert file.raw[-1:] == b"!" and len(file.raw) == file.size == size
        return File(f"{file.name}.copy", file.media_type, file.raw)

    async with worker_of(handler).test() as bench:
        reply = await bench.send("hi", files=[file_of(tmp_path, size, "a.txt")])
        (artifact,), (file,) = reply.artifacts, reply.files
        sent = (await bench.get(reply.task_id or "")).raw["history"][0]["parts"][1]["file"]
    assert ("uri" in sent, sent["name"], sent["mimeType"]) == (size == LARGE, "a.txt", "text/plain")
    assert (artifact.name, artifact.media_type, len(artifact.raw or b"")) == ("a.txt.copy", "text/plain", size)
    assert (file.name, file.raw) == ("a.txt.copy", artifact.raw)


async def test_a_huge_file_is_streamed_and_its_bytes_are_an_error_that_says_how(tmp_path: Path) -> None:
    async def handler(file: File, task: Task) -> AsyncGenerator[Any, Message]:
        try:
            _ = file.raw
        except ValueError as error:
            yield str(error)
        yield str(sum([len(chunk) async for chunk in file.chunks()]))
        yield file
        yield File(path=await file.save(tmp_path / "copy"))

    async with worker_of(handler).test() as bench:
        reply = await bench.send(File(path=file_of(tmp_path, VERY_LARGE)))
        assert "file.chunks()" in reply.text and reply.text.endswith(str(VERY_LARGE))
        passed_on, copied = reply.files
        assert (passed_on.size, copied.size) == (VERY_LARGE, VERY_LARGE)
        assert [artifact.url for artifact in reply.artifacts] == [None, passed_on.url, copied.url]
        assert (await copied.save(tmp_path / "back")).read_bytes()[-2:] == b"\0!"


async def test_files_are_taken_into_memory_as_long_as_they_fit(tmp_path: Path) -> None:
    async def handler(files: list[File]) -> dict[str, Any]:
        fetched = []
        for file in files:
            with suppress(ValueError):
                fetched.append(len(file.raw))
        return {"fetched": fetched}

    sizes = [LARGE, FETCHED - LARGE, LARGE + 1]
    paths = [file_of(tmp_path, size, str(size)) for size in sizes]
    async with worker_of(handler).test() as bench:
        assert (await bench.send("hi", files=paths)).data == {"fetched": sizes[:2]}


async def test_a_plain_function_reads_a_huge_file_in_its_thread(tmp_path: Path) -> None:
    def handler(file: File) -> str:
        with file.open() as opened:
            size = 0
            while piece := opened.read(1_000_000):
                size += len(piece)
        return str(size)

    async with worker_of(handler).test() as bench:
        assert (await bench.send(File(path=file_of(tmp_path, VERY_LARGE)))).text == str(VERY_LARGE)


async def test_a_message_has_its_files_and_so_has_the_answer_to_a_question(tmp_path: Path) -> None:
    async def handler(message: Message, task: Task) -> AsyncGenerator[Any, Message]:
        assert task.message.files == message.files
        answer = yield NeedInput("another?")
        yield {"sizes": [len(file.raw) for file in (*message.files, *answer.files)]}

    async with worker_of(handler).test() as bench:
        asked = await bench.send("hi", files=[file_of(tmp_path, LARGE, "one")])
        elsewhere = {"kind": "file", "file": {"uri": "https://elsewhere.example/f"}}
        paths = [file_of(tmp_path, LARGE + 1, "two"), File(raw=b"x")]
        reply = await bench.send([elsewhere], files=paths, task_id=asked.task_id)
        assert reply.data == {"sizes": [LARGE, LARGE + 1, 1]}


async def test_streamed_events_have_their_files(tmp_path: Path) -> None:
    async def handler(text: str) -> AsyncGenerator[Any, Message]:
        yield Artifact("a", raw=b"x" * LARGE, description="of x")

    async with worker_of(handler).test() as bench:
        events = [event async for event in bench.stream("hi")]
    (artifact,) = [event.artifact for event in events if event.artifact]
    assert (artifact.name, artifact.description, len(artifact.raw or b"")) == ("a", "of x", LARGE)
    assert [len(file.raw) for event in events for file in event.files] == [LARGE]


@pytest.mark.parametrize("options", [{"file_threshold": None}, {"max_event": 2**16, "file_threshold": None}])
async def test_without_a_store_a_file_has_to_fit_into_an_event(options: dict[str, Any], tmp_path: Path) -> None:
    path = file_of(tmp_path, 2**34)

    async def handler(text: str) -> AsyncGenerator[Any, Message]:
        try:
            yield File(path=path)
        except TooLarge as error:
            yield str(error)

    async with worker_of(handler, **options).test() as bench:
        assert "f.bin" in (text := (await bench.send("hi")).text) and "max_event of the Worker" in text


async def test_an_event_holds_no_file_that_is_too_large_for_it() -> None:
    async def handler(text: str) -> Artifact:
        return Artifact("a", raw=b"x" * 100_000)

    async with worker_of(handler, max_event=2**16).test() as bench:
        (part,) = (await bench.send("hi")).raw["artifacts"][0]["parts"]
    assert "uri" in part["file"]


async def test_a_path_that_is_not_there_is_an_error_at_the_yield(tmp_path: Path) -> None:
    async def handler(text: str) -> AsyncGenerator[Any, Message]:
        try:
            yield File(path=tmp_path / "nothing")
        except FileNotFoundError:
            yield "not there"

    async with worker_of(handler).test() as bench:
        assert (await bench.send("hi")).text == "not there"
        with pytest.raises(FileNotFoundError):
            await bench.send("hi", files=[tmp_path / "nothing"])


async def test_a_file_that_cannot_be_read_fails_the_task_before_the_handler_runs(tmp_path: Path) -> None:
    async def handler(file: File) -> str:
        return "it ran"

    path = file_of(tmp_path, LARGE)

    async def refuse(self: AtHub, limit: int) -> int:
        raise RolecallError("no such file")

    async with worker_of(handler).test() as bench:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AtHub, "fetch", refuse)
            reply = await bench.send(File(path=path))
    assert (reply.state, reply.text) == ("failed", "A file of the message could not be read: no such file")


async def test_a_file_goes_on_to_another_role_and_what_that_gives_comes_back(tmp_path: Path) -> None:
    async def copy(file: File) -> File:
        return File(f"copy of {file.name}", path=await file.save(tmp_path / "copied"))

    async def handler(file: File, task: Task) -> AsyncGenerator[Any, Message]:
        reply = await task.call("mirror", "this", files=[file])
        (copied,) = reply.files
        assert (copied.name, copied.raw[-1:]) == ("copy of f.bin", b"!")
        assert reply.artifacts[0].raw == copied.raw
        yield copied

    mirror = Worker("mirror", instance="a")
    mirror.on_message(copy)
    async with worker_of(handler).test(roles={"mirror": mirror}) as bench:
        reply = await bench.send("hi", files=[file_of(tmp_path, LARGE)])
        assert (reply.state, reply.files[0].name, reply.files[0].size) == ("completed", "copy of f.bin", LARGE)


async def test_a_url_elsewhere_is_no_file_of_a_handler() -> None:
    async def handler(files: list[File]) -> str:
        return "it ran"

    async with worker_of(handler).test() as bench:
        with pytest.raises(InvalidParams, match=r"message\.parts\[0\] is a file with a url that is no file of this hub"):
            await bench.send([{"kind": "file", "file": {"uri": "https://elsewhere.example/f"}}])


def test_the_pieces_of_a_file_in_an_older_log_are_joined() -> None:
    def piece(at: int, content: bytes) -> dict[str, Any]:
        mark = {"rolecall": {"piece": at, "pieces": 2}}
        return {"kind": "file", "file": {"bytes": b64encode(content).decode(), "name": "f"}, "metadata": mark}

    parts = [piece(1, b"abc"), piece(2, b"d")]
    assert artifact_of({"parts": parts}, {}).raw == b"abcd"
    assert artifact_of({"parts": parts[:1]}, {}).raw == b"abc"


def test_an_empty_text_beside_a_file_does_not_hide_it() -> None:
    empty = {"kind": "text", "text": ""}
    file = {"kind": "file", "file": {"bytes": "YWJj"}}
    assert artifact_of({"parts": [empty, file]}, {}).raw == artifact_of({"parts": [file, empty]}, {}).raw == b"abc"
    assert artifact_of({"parts": [empty]}, {}).text == ""
