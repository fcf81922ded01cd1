"""The addresses of files. They bypass Quart, which only lists and describes them: it would keep bodies in memory."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from msgspec import UNSET
from quart import Quart

from hub.core.files.files import Files, NewFile
from hub.core.tasks.trees import Trees
from hub.inbound.api.answers import FileItem
from hub.inbound.api.leases import seconds
from hub.inbound.api.operation import documented, operation_of
from hub.inbound.api.requests import Conditions, FileInPath, UploadPiece, UploadStart
from hub.inbound.api.validation import Query, members_of, validate
from hub.inbound.files.downloads import DOWNLOAD, Selection, select
from hub.inbound.files.sending import send_content
from hub.inbound.files.upload_body import UploadBody
from hub.inbound.middleware.audit import outcome_of, record, recorded, required
from hub.inbound.middleware.authentication import require
from hub.inbound.middleware.headers import PARENT, read_parent_call
from hub.inbound.middleware.refusal import retry_after_of
from hub.inbound.middleware.request import Request
from hub.server.asgi import PROBLEM, Headers
from rolecall.errors import (
    BodyTooSlow,
    ClientDisconnected,
    FileBound,
    FileIncomplete,
    FileLost,
    FileNotFound,
    FileTooLarge,
    HubDraining,
    HubError,
    InvalidParams,
    MediaTypeNotSupported,
    NoFiles,
    NoRoomForFile,
    Overloaded,
    RangeInvalid,
    TooManyBytes,
    UploadElsewhere,
    UploadTakenOver,
)
from rolecall.model.a2a import JsonObject
from rolecall.model.command import ParentCall
from rolecall.model.ids import Caller, FileId, TaskId, is_file_id
from rolecall.model.principal import Principal, Right
from rolecall.model.task import StoredFile
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body
from rolecall.protocol.text.jsontext import dump

PATH = "/registry/files"
_WITH_BODY = frozenset({"POST", "PATCH"})
_SENT = (
    NoFiles,
    FileTooLarge,
    InvalidParams,
    MediaTypeNotSupported,
    BodyTooSlow,
    HubDraining,
    Overloaded,
    NoRoomForFile,
    TooManyBytes,
)
_Handler = Callable[..., Awaitable[None]]


class FileCall(NamedTuple):
    """An address that matches a request. `file`: as the path has it; empty: the path names none."""

    handler: _Handler
    file: str


class FileAddresses:
    def __init__(self, files: Files, trees: Trees) -> None:
        self._files = files
        self._trees = trees
        self._of_all: dict[str, _Handler] = {"POST": self.create}
        self._of_one: dict[str, _Handler] = {
            "GET": self.download,
            "HEAD": self.download,
            "PATCH": self.add,
            "DELETE": self.delete,
        }

    def add_to(self, app: Quart) -> None:
        """Lists the addresses in Quart's map, for the OpenAPI description and for 405. `match` finds them before Quart."""
        for rule, handlers in ((PATH, self._of_all), (f"{PATH}/<file>", self._of_one)):
            for method, handler in handlers.items():
                if method != "HEAD":  # Quart adds it
                    view: Any = handler
                    app.add_url_rule(rule, endpoint=f"{method} {rule}", view_func=view, methods=[method])

    def match(self, path: str, method: str) -> FileCall | None:
        """None: not an address of files."""
        if not path.startswith(PATH):
            return None
        file = path[len(PATH) :].removesuffix("/")
        if not file:
            handler = self._of_all.get(method)
        else:
            handler = self._of_one.get(method) if file[0] == "/" and "/" not in file[1:] else None
        return FileCall(handler, file[1:]) if handler is not None else None

    async def __call__(self, request: Request, call: FileCall) -> None:
        try:
            required(request.scope, request.principal, _right(request))
            own = operation_of(call.handler)
            given: dict[str, Any] = {"file": _file_id(call.file)} if call.file else {}
            if own.query is not None:
                given["query"] = validate(own.query, _query(request, own.query))
            await call.handler(request, **given)
        except ClientDisconnected:
            return
        except HubError as error:
            await _refuse(request, error)

    @documented("Upload a file, or its beginning.", *_SENT, answers={201: FileItem}, takes_bytes=True)
    async def create(self, request: Request, query: UploadStart) -> None:
        owner, task = await self._sender(request)
        body, whole, sent = UploadBody(request), query.complete != "?0", _length(request)
        if query.length is not None and sent is not None and sent > query.length:
            raise TooManyBytes(query.length)
        length = sent if query.length is None and whole else query.length
        new = NewFile(owner, query.name, query.media_type, length, task)
        try:
            stored = await self._files.create(new, body, whole=whole)
        except HubError as error:
            record(request.scope, "upload", "", outcome_of(error), caller=owner)
            raise
        record(request.scope, "upload", stored.id, caller=owner)
        headers = [(b"location", self._files.url_of(stored.id).encode("ascii")), *self._state(stored)]
        await self._answer(request, stored, 201, headers)

    @documented(
        "Go on with an upload, behind what has come of it.",
        *_SENT,
        FileNotFound,
        FileLost,
        UploadElsewhere,
        UploadTakenOver,
        answers={200: FileItem},
        takes_bytes=True,
    )
    async def add(self, request: Request, file: FileInPath, query: UploadPiece) -> None:
        owner, task = await self._sender(request)
        _length(request)
        body, whole = UploadBody(request), query.complete != "?0"
        with recorded(request.scope, "upload", file, caller=owner):
            stored = await self._files.add(owner, FileId(file), body, offset=query.offset, whole=whole, task=task)
        await self._answer(request, stored, 200, self._state(stored))

    @documented("A file.", FileNotFound, FileLost, FileIncomplete, RangeInvalid, Overloaded, answers=DOWNLOAD)
    async def download(self, request: Request, file: FileInPath, query: Conditions) -> None:
        """HEAD also tells how far an upload has come."""
        caller, stored = await self._readable(request, FileId(file))
        if request.method == "HEAD" and not stored.complete:
            await _send_head(request, 200, [(b"content-length", b"0"), (b"cache-control", b"no-store"), *self._state(stored)])
            return
        if not stored.complete:
            raise FileIncomplete(self._files.offset_of(stored))
        chosen = select(stored.name, stored.media_type, stored.offset, query, version=stored.sha256, method=request.method)
        headers = [*_headers(chosen), (b"repr-digest", _digest(stored)), *self._state(stored)]
        if request.method == "HEAD" or chosen.status == 304:
            await _send_head(request, chosen.status, headers)
            return
        with self._files.transfer(caller):
            pieces = self._files.content(stored, chosen.start, chosen.stop)
            await send_content(request, chosen.status, headers, pieces)

    @documented("Delete a file that no task has.", FileNotFound, FileBound, answers={204: None})
    async def delete(self, request: Request, file: FileInPath) -> None:
        owner = require(request.principal, _right(request)).caller
        with recorded(request.scope, "delete file", file):
            await self._files.delete(owner, FileId(file))
        await _send_head(request, 204, ())

    # --- details

    async def _sender(self, request: Request) -> tuple[Caller, TaskId | None]:
        """Whose the file is, and the task that has it if a worker sends it for one. LeaseUnknown, ParentOver, CallerGone,
        InvalidParams.
        """
        holder, parent = require(request.principal, _right(request)), _parent(request)
        return (holder.caller, None) if parent is None else (await self._owner(holder, parent), parent.task)

    async def _readable(self, request: Request, file: FileId) -> tuple[Caller, StoredFile]:
        """A worker that names its task gets what the caller of that task may read, and no other caller's files."""
        holder, parent = require(request.principal, _right(request)), _parent(request)
        if parent is None:
            return holder.caller, await self._files.readable(holder, file)
        owner = await self._owner(holder, parent)
        return owner, await self._files.of_caller(owner, file)

    async def _owner(self, holder: Principal, parent: ParentCall) -> Caller:
        await self._trees.recall(holder, parent)
        return self._trees.caller_of(holder, parent)

    async def _answer(self, request: Request, file: StoredFile, status: int, headers: Headers) -> None:
        await request.answer(dump(self._item(file)), status=status, headers=headers)

    def _item(self, file: StoredFile) -> FileItem:
        return FileItem(
            id=file.id,
            url=self._files.url_of(file.id),
            name=file.name,
            media_type=file.media_type,
            size=file.length,
            offset=file.offset,
            complete=file.complete,
            expires_in=seconds(self._files.expires_in(file)),
            sha256=file.sha256 or UNSET,
        )

    def _state(self, file: StoredFile) -> list[tuple[bytes, bytes]]:
        """The headers of an upload."""
        found = [(b"upload-offset", b"%d" % self._files.offset_of(file)), (b"upload-complete", b"?%d" % file.complete)]
        return [*found, (b"upload-length", b"%d" % file.length)] if file.length is not None else found


def _right(request: Request) -> Right:
    if request.method in ("GET", "HEAD"):
        return Right.READ
    return Right.ENROL if PARENT in request.headers and request.method in _WITH_BODY else Right.CALL


def _parent(request: Request) -> ParentCall | None:
    """InvalidParams. None: no call within a task."""
    return read_parent_call(request) if PARENT in request.headers else None


def _file_id(text: str) -> FileId:
    if not is_file_id(text):
        raise FileNotFound
    return FileId(text)


def _query(request: Request, kind: type[Query]) -> JsonObject:
    """The members that the request has."""
    text = request.scope["query_string"].decode("ascii", "replace")
    args = dict(parse_qsl(text, keep_blank_values=True))
    found: JsonObject = {}
    for name, member in members_of(kind).items():
        if member.header is not None:
            value = request.headers.get(member.header.lower().encode())
            if value is not None:
                found[str(name)] = value.decode("latin-1")
        elif name in args:
            found[str(name)] = args[str(name)]
    return found


def _length(request: Request) -> int | None:
    """What the body's Content-Length is. MediaTypeNotSupported: the body is not as the file is."""
    headers = request.headers
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise MediaTypeNotSupported("Send the bytes of the file as they are, without Content-Encoding.")
    value = headers.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidParams("Content-Length must be a whole number.")
    return int(value)


def _digest(file: StoredFile) -> bytes:
    """RFC 9530."""
    return b"sha-256=:%b:" % b64encode(bytes.fromhex(file.sha256))


def _headers(chosen: Selection) -> list[tuple[bytes, bytes]]:
    found = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in chosen.headers.items()]
    return found if chosen.status == 304 else [*found, (b"content-length", b"%d" % (chosen.stop - chosen.start))]


async def _send_head(request: Request, status: int, headers: Headers) -> None:
    await request.send({"type": "http.response.start", "status": status, "headers": [*headers, *request.cors]})
    await request.send({"type": "http.response.body", "body": b""})


async def _refuse(request: Request, error: HubError) -> None:
    """The rest of a body is not read."""
    fault = fault_of(error)
    headers = [*retry_after_of(error)]
    if isinstance(error, UploadElsewhere):
        headers += [(b"upload-offset", b"%d" % error.offset), (b"upload-complete", b"?%d" % error.complete)]
    if isinstance(error, RangeInvalid):
        headers.append((b"content-range", b"bytes */%d" % error.size))
    body = problem_body(fault)
    if request.method in _WITH_BODY:
        await request.answer_unread(body, status=fault.status, media=PROBLEM, headers=headers)
    else:
        await request.answer(body, status=fault.status, media=PROBLEM, headers=headers)
