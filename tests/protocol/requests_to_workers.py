"""Every request that the hub makes to a worker, byte for byte: for each binding, and each caller's dialect.

`python -m tests.protocol.requests_to_workers` rewrites the files.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from hub.outbound.client import Client
from hub.outbound.forwarder import HttpForwarder
from hub.outbound.worker_guard import Guard
from hub.ports.forwarder import Attach, Dispatch
from rolecall.errors import WorkerError
from rolecall.model import value
from rolecall.model.a2a import Ids
from rolecall.model.card import FILES_EXTENSION, HTTP_JSON, JSONRPC, Interface
from rolecall.model.command import Send, Target
from rolecall.model.ids import FileId, TaskId, WorkerId
from rolecall.model.worker import Offer
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.extensions.files import FileUrls
from tests.helpers.listening import collect_events
from tests.helpers.raw_server import RawServer, Request, always, answer
from tests.protocol.golden_files import write_transcript

INTERFACES = {
    "jsonrpc-0.3": Interface("", JSONRPC, "0.3"),
    "jsonrpc-1.0": Interface("", JSONRPC, "1.0", "tenant-1"),
    "rest-1.0": Interface("", HTTP_JSON, "1.0", "tenant-1"),
}
_KEPT = (
    "accept",
    "content-type",
    "a2a-version",
    "a2a-extensions",
    "x-a2a-extensions",
    "idempotency-key",
    "last-event-id",
    "traceparent",
)
_FILE = FileId("0" * 31 + "1")
_METADATA = {"role": "echo", "order": 7}
_HOOK = {"url": "https://example.org/hook", "token": "t"}
_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _send_in(dialect: str, **members: Any) -> Send:
    """A message with every option."""
    modes = ["text/plain"]
    if dialect == "0.1":
        message = {"role": "user", "parts": [{"type": "text", "text": "hi"}, {"type": "data", "data": {"a": 1}}]}
        more = {"acceptedOutputModes": modes, "historyLength": 2, "pushNotification": _HOOK, "metadata": _METADATA}
        params = {"id": "mine", "sessionId": "session-1", "message": message, **more}
    else:
        new = dialect == "1.0"
        parts = (
            [{"text": "hi"}, {"data": {"a": 1}}]
            if new
            else [{"kind": "text", "text": "hi"}, {"kind": "data", "data": {"a": 1}}]
        )
        message = {"messageId": "m-1", "role": "ROLE_USER" if new else "user", "parts": parts, "contextId": "c-1", **members}
        hook = {"taskPushNotificationConfig" if new else "pushNotificationConfig": _HOOK}
        configuration = {"acceptedOutputModes": modes, "historyLength": 2, **hook}
        params = {
            "message": message,
            "configuration": configuration,
            "metadata": _METADATA,
            **({"tenant": "echo"} if new else {}),
        }
    send = DIALECTS[dialect].requests.read_send(params, Target(), trace=_TRACE, extensions=("urn:one", "urn:two"))
    return value.replace(send, message_id="m-1")


def _with_file(send: Send) -> Send:
    own = {"metadata": {FILES_EXTENSION: {"size": 7}}}
    if send.dialect == "1.0":
        part: dict[str, Any] = {"url": f"http://hub/registry/files/{_FILE}", "filename": "a.txt", "mediaType": "text/plain"}
    else:
        file = {"uri": f"http://hub/registry/files/{_FILE}", "name": "a.txt", "mimeType": "text/plain"}
        part = {"type" if send.dialect == "0.1" else "kind": "file", "file": file}
    return value.replace(send, params={**send.params, "message": {**send.params["message"], "parts": [part | own]}})


async def made(interface: Interface) -> dict[str, str]:
    """The requests, by their purpose."""
    sections: dict[str, str] = {}
    async with RawServer(always(answer(b"{}"))) as server, Client(Guard([], [], allow_loopback=True)) as client:
        forwarder = HttpForwarder(client, file_urls=FileUrls("http://hub/registry/files/"))
        offer = Offer(WorkerId("echo", "1"), server.url, streaming=True, interfaces=(interface._replace(url=server.url),))
        first = Ids(TaskId("t-hub"), "c-1", log_dialect=interface.dialect)
        known = Ids(TaskId("t-hub"), "c-hub", "t-worker", "c-worker", interface.dialect)

        async def note(name: str, call: Any) -> None:
            try:
                await call
            except WorkerError:
                pass  # the server's answers make no sense
            sections[name] = _written(server.requests[-1])

        async def deliver(offer: Offer, dispatch: Dispatch) -> None:
            await collect_events(partial(forwarder.deliver, "default", offer, dispatch))

        async def attach(offer: Offer, position: str | None) -> None:
            await collect_events(partial(forwarder.attach, "default", offer, Attach(known, position)))

        for dialect in ("0.1", "0.3", "1.0"):
            await note(f"a stream, asked in {dialect}", deliver(offer, Dispatch(_send_in(dialect), first, {})))
            still = replace(offer, streaming=False)
            await note(
                f"a worker that cannot stream, asked in {dialect}", deliver(still, Dispatch(_send_in(dialect), first, {}))
            )
            if dialect != "0.1":
                later = _send_in(dialect, taskId="t-hub", referenceTaskIds=["t-other"])
                dispatch = Dispatch(later, known, {"t-other": "t-theirs"})
                await note(f"an answer with a reference, asked in {dialect}", deliver(offer, dispatch))
            with_file = _with_file(_send_in(dialect))
            await note(f"a file for a worker that reads it, asked in {dialect}", deliver(offer, Dispatch(with_file, first, {})))
            dispatch = Dispatch(with_file, first, {}, contents={_FILE: "Y29udGVudA=="})
            await note(f"a file for another worker, asked in {dialect}", deliver(offer, dispatch))
        ours = replace(offer, replays=True)
        await note("a worker that recognises a message", deliver(ours, Dispatch(_send_in("0.3"), first, {})))
        await note("coming back to a worker that replays", attach(ours, "boot.7"))
        await note("its task", forwarder.fetch("default", offer, known))
        await note("its cancelling", forwarder.cancel("default", offer, known))
    return sections


def _written(request: Request) -> str:
    head = "".join(f"{name}: {request.headers[name]}\n" for name in _KEPT if name in request.headers)
    return f"{request.line.removesuffix(' HTTP/1.1')}\n{head}\n{request.body.decode()}\n"


async def _write() -> None:
    for name, interface in INTERFACES.items():
        write_transcript(f"workers/{name}", await made(interface))


if __name__ == "__main__":
    asyncio.run(_write())
