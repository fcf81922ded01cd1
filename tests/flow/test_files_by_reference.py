"""Messages and events that name files: who may, which task has them, and who gets the bytes in place of the URL."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from hub.core.shares.share import SMALL
from hub.ports.forwarder import Dispatch
from rolecall.errors import FileLost, WorkerBroke, WorkerRefused
from rolecall.model.a2a import JsonObject, WorkerEvent
from rolecall.model.card import FILES_EXTENSION, JSONRPC, Interface
from rolecall.model.command import Target
from rolecall.model.content import Download
from rolecall.model.ids import Caller, FileId, TaskId, new_file_id
from rolecall.model.task import StoredFile
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.extensions.files import FileUrls
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3.events import read_result
from rolecall.protocol.workers import requests as calls
from tests.flow.callers import OTHER
from tests.flow.conftest import CALLER, FILE_URLS, System, shares
from tests.flow.test_files import begun, stored
from tests.helpers.scripted import chunk, status, task
from tests.protocol.transcripts import HttpRequest, app_of, exchange

ACTIVE = (("a2a-extensions", FILES_EXTENSION),)
CONTENT = b"content of a file"
BASE64 = b64encode(CONTENT).decode()
METHODS = {
    "0.1": ("tasks/send", "tasks/sendSubscribe", "tasks/get"),
    "0.3": ("message/send", "message/stream", "tasks/get"),
    "1.0": ("SendMessage", "SendStreamingMessage", "GetTask"),
}


def url(file: StoredFile | FileId) -> str:
    return f"{FILE_URLS}{file.id if isinstance(file, StoredFile) else file}"


def part(dialect: str, *, at: str = "", inline: bytes = b"", name: str = "n") -> JsonObject:
    """A file part in that dialect."""
    content = b64encode(inline).decode()
    if dialect == "1.0":
        return {**({"url": at} if at else {"raw": content}), "filename": name}
    return {
        "type" if dialect == "0.1" else "kind": "file",
        "file": {**({"uri": at} if at else {"bytes": content}), "name": name},
    }


def message(dialect: str, *parts: JsonObject, **members: Any) -> JsonObject:
    own = {} if dialect == "0.1" else {"messageId": members.pop("messageId", "m")}
    return {"role": "ROLE_USER" if dialect == "1.0" else "user", "parts": list(parts), **own, **members}


async def ask(
    system: System, method: str, params: JsonObject, *, dialect: str = "0.3", headers: Sequence[tuple[str, str]] = ()
) -> list[JsonObject]:
    """The results or the error, of JSON-RPC or of a stream."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    request = HttpRequest("POST", "/agents/echo/", body, (("a2a-version", dialect), *headers))
    _, _, text = await exchange(app_of(system), request)
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
    return [one.get("result") or one["error"] for one in map(parse, (line.encode() for line in lines))]


def artifact(*parts: JsonObject, name: str = "file") -> WorkerEvent:
    document = {"artifactId": name, "parts": list(parts)}
    return read_result({"kind": "artifact-update", "taskId": "wt", "contextId": "wc", "artifact": document, "append": False})


def delivered(system: System, number: int = -1) -> JsonObject:
    """A message as its worker gets it."""
    dispatch: Dispatch = [asked for kind, _, asked in system.forwarder.calls if kind == "deliver"][number]
    params = calls.send_params(dispatch.send, dispatch.ids, dispatch.references, stream=True)
    if dispatch.contents:
        FileUrls(FILE_URLS).fill(params["message"], dispatch.ids.log_dialect, dispatch.contents)
    sent: JsonObject = params["message"]
    return sent


def contents(document: Any) -> list[str]:
    """The base64 and URLs of the file parts, wherever they are, in the order of their places."""
    if isinstance(document, list):
        return [found for one in document for found in contents(one)]
    if not isinstance(document, dict):
        return []
    file = document.get("file", document)
    own = [str(file[name]) for name in ("bytes", "raw", "uri", "url") if isinstance(file, dict) and name in file]
    return own or [found for name, one in document.items() if name not in ("data", "metadata") for found in contents(one)]


async def has(system: System, task_id: str, file: StoredFile) -> bool:
    return await system.engine.files.has(TaskId(task_id), file.id)


# --- messages


@pytest.mark.parametrize("worker_dialect", ["0.3", "1.0"])
@pytest.mark.parametrize("dialect", METHODS)
async def test_a_worker_gets_bytes_unless_it_reads_files(system: System, dialect: str, worker_dialect: str) -> None:
    interfaces = (Interface("http://w/", JSONRPC, worker_dialect),)
    file = await stored(system, CONTENT)
    for instance, reads_files in (("a", False), ("b", True)):
        await system.enrol(f"echo:{instance}", interfaces=interfaces, reads_files=reads_files)
        system.forwarder.plan(f"echo:{instance}", task("completed"))
        sent = message(dialect, part(dialect, at=url(file)), messageId=instance)
        named = {"id": instance} if dialect == "0.1" else {}
        role = {"metadata": {"role": f"echo:{instance}"}}
        answer, *_ = await ask(system, METHODS[dialect][1], {"message": sent, **named, **role}, dialect=dialect)
        assert "code" not in answer, answer
        got = delivered(system)["parts"]
        assert got == [part(worker_dialect, **({"at": url(file)} if reads_files else {"inline": CONTENT}))]
    for row in await system.rows():
        assert await has(system, row.id, file)
        (turn,) = await system.engine.tasks.turns(row.id)
        assert url(file).encode() in turn.params, "what is stored is small"


@pytest.mark.parametrize("dialect", METHODS)
async def test_a_caller_gets_bytes_unless_it_activated_the_extension(system: System, dialect: str) -> None:
    await system.enrol("echo:a", interfaces=(Interface("http://w/", JSONRPC, "0.3"),))
    file = await stored(system, CONTENT)
    reference = {FILES_EXTENSION: {"size": len(CONTENT)}}
    own = {**part("0.3", at=url(file)), "metadata": {**reference, "k": 1}}
    send, stream, get = METHODS[dialect]
    for headers, expected, metadata in ((ACTIVE, url(file), {**reference, "k": 1}), ((), BASE64, {"k": 1})):
        for method in (send, stream):
            system.forwarder.plan("echo:a", task(), artifact(own), status("completed"))
            text = {"text": "hi"} if dialect == "1.0" else {"type" if dialect == "0.1" else "kind": "text", "text": "hi"}
            name = f"{method}{len(headers)}"
            params = {"message": message(dialect, text, messageId=name), **({"id": name} if dialect == "0.1" else {})}
            answers = await ask(system, method, params, dialect=dialect, headers=headers)
            if (dialect, method) != ("0.1", send):  # it does not wait
                assert contents(answers) == [expected]
            task_id = name if dialect == "0.1" else (await system.rows())[0].id
            await asyncio.sleep(1)
            (found,) = await ask(system, get, {"id": task_id}, dialect=dialect, headers=headers)
            assert contents(found) == [expected]
            (artifact_of_task,) = found["artifacts"]
            assert artifact_of_task["parts"][0]["metadata"] == metadata
    assert len([row for row in await system.rows() if await has(system, row.id, file)]) == 4


async def refused(system: System, *parts: JsonObject, headers: Sequence[tuple[str, str]] = ()) -> JsonObject:
    (error,) = await ask(system, "message/send", {"message": message("0.3", *parts)}, headers=headers)
    assert await system.rows() == [] and system.forwarder.calls == []
    return error


async def test_a_message_cannot_name_the_file_of_another_nor_learn_of_it(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    text = {"kind": "text", "text": "hi"}
    theirs = await stored(system, CONTENT, owner=OTHER)
    elsewhere = await stored(system, CONTENT, owner=Caller("other", CALLER.name))
    open_upload = await begun(system, b"a", length=5)
    own = part("0.3", at=url(await stored(system, CONTENT)))
    errors = [
        await refused(system, text, own, part("0.3", at=url(file)))
        for file in (theirs.id, elsewhere.id, open_upload.id, new_file_id())
    ]
    assert errors == [errors[0]] * 4
    assert errors[0]["code"] == -32602
    assert errors[0]["message"].startswith('"message.parts[2]" names a file that the hub does not have')


async def test_an_answer_to_a_question_brings_files_too(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    file, theirs = await stored(system, CONTENT), await stored(system, CONTENT, owner=OTHER)
    system.forwarder.plan("echo:a", task("input-required"))
    asked = await system.send()
    (error,) = await ask(
        system, "message/send", {"message": message("0.3", part("0.3", at=url(theirs)), taskId=asked["id"], messageId="m1")}
    )
    assert error["code"] == -32602
    system.forwarder.plan("echo:a", status("completed"))
    sent = message("0.3", part("0.3", at=url(file)), taskId=asked["id"], messageId="m2")
    (done,) = await ask(system, "message/send", {"message": sent})
    assert done["status"]["state"] == "completed"
    assert delivered(system)["parts"] == [part("0.3", inline=CONTENT)]
    assert contents(done["history"]) == [BASE64]
    assert await has(system, asked["id"], file)


@pytest.mark.parametrize(
    "at", ["https://elsewhere.example/registry/files/{}", FILE_URLS + "{}#x", FILE_URLS + "../files/{}", "{}"]
)
async def test_another_url_goes_through_as_it_is(system: System, at: str) -> None:
    await system.enrol("echo:a")
    theirs = await stored(system, CONTENT, owner=OTHER)
    system.forwarder.plan("echo:a", task("completed"))
    sent = part("0.3", at=at.format(theirs.id))
    (done,) = await ask(system, "message/send", {"message": message("0.3", sent)})
    assert delivered(system)["parts"] == [sent]
    assert not await has(system, done["id"], theirs)


async def test_a_url_in_data_is_data(system: System) -> None:
    await system.enrol("echo:a")
    theirs = await stored(system, CONTENT, owner=OTHER)
    data = {"kind": "data", "data": {"parts": [part("0.3", at=url(theirs))], "file": {"uri": url(theirs)}}}
    system.forwarder.plan("echo:a", task(), artifact(data), status("completed"))
    (done,) = await ask(system, "message/send", {"message": message("0.3", data, metadata=data)})
    assert delivered(system)["parts"] == [data]
    assert done["artifacts"][0]["parts"] == [data]
    assert not await has(system, done["id"], theirs)


@pytest.mark.parametrize("first", ["a", "b"])
async def test_the_next_worker_gets_what_it_reads(system: System, first: str) -> None:
    file = await stored(system, CONTENT)
    for instance, reads_files in (("a", False), ("b", True)):
        registration = await system.enrol(f"echo:{instance}", reads_files=reads_files)
        registration.other_in_flight = int(instance != first)
        is_first = instance == first
        system.forwarder.plan(f"echo:{instance}", WorkerRefused(f"echo:{instance}") if is_first else task("completed"))
    await ask(system, "message/send", {"message": message("0.3", part("0.3", at=url(file)))})
    got = [(worker, bool(asked.contents)) for kind, worker, asked in system.forwarder.calls if kind == "deliver"]
    assert got == [(f"echo:{instance}", instance == "a") for instance in (first, "b" if first == "a" else "a")]


async def test_a_hub_that_was_killed_sends_the_bytes_again(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    file = await stored(system, CONTENT)
    system.forwarder.plan("echo:a", 10.0, task("completed"))
    call = asyncio.create_task(ask(system, "message/send", {"message": message("0.3", part("0.3", at=url(file)))}))
    await asyncio.sleep(1)
    call.cancel()
    system.forwarder.plan("echo:a", task("completed"))
    await system.restart()
    await asyncio.sleep(1)
    assert len(system.forwarder.asked("deliver")) == 2
    assert delivered(system)["parts"] == [part("0.3", inline=CONTENT)]


async def test_a_call_that_is_cancelled_while_its_files_are_read_reaches_no_worker(system: System) -> None:
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    reading = system.engine.hold("files.read")
    call = asyncio.create_task(ask(system, "message/send", {"message": message("0.3", part("0.3", at=url(file)))}))
    await reading.reached.wait()
    assert system.deps.shares.messages.held("default") == 2 * len(BASE64)
    row = await system.row()
    await system.hub.relays.open(row, ()).show()
    await system.cancel(row.id)
    reading.release()
    (done,) = await call
    assert done["status"]["state"] == "canceled"
    assert system.forwarder.calls == []
    assert system.deps.shares.messages.held("default") == 0


async def test_a_message_whose_files_find_no_room_in_memory_was_not_run(system: System) -> None:
    system.with_bounds(shares=shares(message_memory=2 * len(BASE64) - 1))
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    error = await refused(system, part("0.3", at=url(file)))
    assert error["data"][0]["reason"] == "OVERLOADED" and "max_message_memory" in error["message"].lower()


async def test_the_memory_of_files_in_a_message_is_free_when_the_answer_is_over(system: System) -> None:
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    for steps in ((task("completed"),), (task(), WorkerBroke("echo:a", "cut"))):
        system.forwarder.plan("echo:a", *steps)
        name = f"m{len(steps)}"
        await ask(system, "message/send", {"message": message("0.3", part("0.3", at=url(file)), messageId=name)})
        assert system.deps.shares.messages.held("default") == 0


# --- events


async def finished(system: System, *worker_events: WorkerEvent, headers: Sequence[tuple[str, str]] = ()) -> JsonObject:
    """The task that ends after these."""
    system.forwarder.plan("echo:a", *worker_events, status("completed"))
    text = {"kind": "text", "text": "hi"}
    name = f"m{len(await system.rows())}"
    (done,) = await ask(system, "message/send", {"message": message("0.3", text, messageId=name)}, headers=headers)
    return done


async def test_a_task_has_the_files_that_its_events_name_if_its_caller_may_read_them(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    file, nested, theirs = [await stored(system, CONTENT, owner=owner) for owner in (CALLER, CALLER, OTHER)]
    open_upload = await begun(system, b"a", length=5)
    own = [part("0.3", at=url(one)) for one in (file, theirs, open_upload.id, new_file_id())]
    shown = {"kind": "message", "role": "agent", "messageId": "a1", "parts": [part("0.3", at=url(nested))]}
    first = read_result(
        {"kind": "task", "id": "wt", "contextId": "wc", "status": {"state": "working", "message": shown}, "history": [shown]}
    )
    done = await finished(system, first, artifact(*own))
    assert contents(done["artifacts"]) == [BASE64, *[url(one) for one in (theirs, open_upload.id)], own[3]["file"]["uri"]]
    assert contents(done["history"]) == [BASE64]
    assert [await has(system, done["id"], one) for one in (file, nested, theirs, open_upload)] == [True, True, False, False]


async def test_a_task_has_the_files_that_its_worker_is_asked_for_after_a_cut(system: System) -> None:
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    artifacts = [{"artifactId": "x", "parts": [part("0.3", at=url(file))]}]
    system.forwarder.plan("echo:a", task(), WorkerBroke("echo:a", "cut"))
    system.forwarder.plan_fetch("echo:a", task("completed", artifacts=artifacts))
    (done,) = await ask(system, "message/send", {"message": message("0.3", {"kind": "text", "text": "hi"})})
    assert contents(done["artifacts"]) == [BASE64]
    assert await has(system, done["id"], file)


async def test_a_bare_message_has_its_files(system: System) -> None:
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    answer = {"kind": "message", "role": "agent", "messageId": "a1", "parts": [part("0.3", at=url(file))]}
    system.forwarder.plan("echo:a", read_result(answer))
    (got,) = await ask(system, "message/send", {"message": message("0.3", {"kind": "text", "text": "hi"})})
    assert contents(got) == [BASE64]


async def test_files_are_put_in_as_long_as_they_fit_and_the_rest_are_urls(system: System) -> None:
    system.with_bounds(max_inline=3_000)
    await system.enrol("echo:a")
    sizes = [600, 1500, 900, 30]  # 800, 2000, 1200 and 40 as base64
    files = [await stored(system, bytes(size)) for size in sizes]
    done = await finished(system, artifact(*[part("0.3", at=url(one)) for one in files]))
    inline = [b64encode(bytes(size)).decode() for size in sizes]
    assert contents(done["artifacts"]) == [inline[0], url(files[1]), inline[2], inline[3]]
    twice = await finished(system, artifact(*[part("0.3", at=url(files[2]))] * 3))
    assert contents(twice["artifacts"]) == [url(files[2])] * 3, "all or none of a file"


@pytest.mark.parametrize("offset", [-1, 0])
async def test_a_document_with_its_files_is_no_larger_than_an_event(system: System, offset: int) -> None:
    await system.enrol("echo:a")
    file = await stored(system, bytes(3_000))
    plain = await finished(system, artifact(part("0.3", at=url(file))), headers=ACTIVE)
    (answer,) = [await system.hub.get(CALLER, command_of(plain["id"]))]
    system.with_bounds(max_inline=len(answer.body) + 4_000 + offset)
    (found,) = await ask(system, "tasks/get", {"id": plain["id"]})
    assert contents(found) == [url(file) if offset else b64encode(bytes(3_000)).decode()]


def command_of(task_id: str) -> Any:
    return DIALECTS["0.3"].requests.read_get({"id": task_id}, Target(), ("0.3",))


async def test_where_it_is_turned_off_everybody_gets_urls(system: System) -> None:
    system.with_bounds(max_inline=0)
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    system.forwarder.plan("echo:a", task(), artifact(part("0.3", at=url(file))), status("completed"))
    answers = await ask(system, "message/stream", {"message": message("0.3", part("0.3", at=url(file)))})
    assert contents(answers) == [url(file)] * 2
    assert delivered(system)["parts"] == [part("0.3", at=url(file))]


async def test_a_live_reader_gets_the_bytes_in_their_place(system: System) -> None:
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    own = part("0.3", at=url(file))
    steps = [
        task(),
        chunk("one ", append=False),
        1.0,
        artifact(own),
        chunk("two"),
        1.0,
        artifact(own, name="b"),
        chunk("three"),
    ]
    system.forwarder.plan("echo:a", *steps, status("completed"))
    events = await ask(system, "message/stream", {"message": message("0.3", {"kind": "text", "text": "hi"})})
    shown = [contents(event) or [one.get("text") for one in (event.get("artifact") or {}).get("parts", ())] for event in events]
    assert [one for one in shown if one] == [["one "], [BASE64], ["two"], [BASE64], ["three"]]
    assert events[-1]["status"]["state"] == "completed"


async def test_a_reader_whose_files_find_no_room_goes_on_later(system: System) -> None:
    content = bytes(SMALL)
    system.with_bounds(shares=shares(unsent=200_000))
    await system.enrol("echo:a")
    file = await stored(system, content)
    done = await finished(system, artifact(part("0.3", at=url(file))), headers=ACTIVE)
    with system.deps.shares.unsent.hold("default", 150_000):
        *events, error = await ask(system, "tasks/resubscribe", {"id": done["id"]}, headers=(("last-event-id", "1"),))
        assert (len(events), error["data"][0]["reason"]) == (1, "OVERLOADED")
        (answer,) = await ask(system, "tasks/get", {"id": done["id"]})
        assert answer["data"][0]["reason"] == "OVERLOADED"
    events = await ask(system, "tasks/resubscribe", {"id": done["id"]}, headers=(("last-event-id", "1"),))
    assert contents(events) == [b64encode(content).decode()]
    assert system.deps.shares.unsent.held("default") == 0


async def test_a_file_whose_bytes_are_lost_stays_a_url(system: System) -> None:
    await system.enrol("echo:a")
    file = await stored(system, CONTENT)
    done = await finished(system, artifact(part("0.3", at=url(file))))
    assert contents(done["artifacts"]) == [BASE64]
    await lose(system, file)
    (found,) = await ask(system, "tasks/get", {"id": done["id"]})
    assert contents(found["artifacts"]) == [url(file)]


async def lose(system: System, file: StoredFile) -> None:
    system.engine.fail("files.read", FileLost())


async def test_an_artifact_by_reference_is_downloaded_as_its_file(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a")
    file, theirs = await stored(system, CONTENT, name="a.txt"), await stored(system, CONTENT, owner=OTHER)
    done = await finished(system, artifact(part("0.3", at=url(file))), artifact(part("0.3", at=url(theirs)), name="b"))
    found, _ = await system.hub.download(CALLER, TaskId(done["id"]), 1, None)
    assert isinstance(found, StoredFile) and (found.id, found.name) == (file.id, "a.txt")
    link, _ = await system.hub.download(CALLER, TaskId(done["id"]), 2, None)
    assert isinstance(link, Download) and link.content == f"{url(theirs)}\r\n".encode(), (
        "of another file there is only the link"
    )


async def test_a_list_has_room_for_one_answer(system: System) -> None:
    await system.enrol("echo:a", interfaces=(Interface("http://w/", JSONRPC, "1.0"),))
    file = await stored(system, bytes(3_000))
    for _ in range(3):
        await finished(system, artifact(part("0.3", at=url(file))))
    system.with_bounds(max_inline=10_000)
    (page,) = await ask(system, "ListTasks", {"includeArtifacts": True}, dialect="1.0")
    inline = b64encode(bytes(3_000)).decode()
    assert contents(page) == [inline, inline, url(file)]
