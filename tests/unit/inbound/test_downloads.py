"""Files that strangers wrote, as browsers get them: harmless names, one range, never shown."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from quart import Quart, Response

from hub.core.files.files import Files
from hub.core.shares.share import HeldShare, WorkspaceShare
from hub.core.token_watch import OpenUses, TokenUse
from hub.inbound.api.application import create_api
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import Conditions
from hub.inbound.files.downloads import DOWNLOAD, disposition, download, download_stored, safe_name
from rolecall.errors import FileLost
from rolecall.model.content import Download
from rolecall.model.ids import Caller, FileId
from rolecall.model.task import StoredFile

TEXT = b"0123456789"


@pytest.fixture
def app(files: StoredFiles) -> Quart:
    api = create_api(1000, 10)

    @api.get("/file")
    @operation("A file.", answers=DOWNLOAD)
    async def file(query: Conditions) -> Response:
        return download(Download("a.html", "Text/HTML; Charset=Latin-1", TEXT), query, version="v1")

    @api.get("/stored")
    @operation("A file that is stored.", answers=DOWNLOAD)
    async def stored(query: Conditions) -> Response:
        return download_stored(STORED, query, files, OWNER, TokenUse(files.uses, "t"))

    return api


OWNER = Caller("default", "anna")
STORED = StoredFile(FileId("0" * 32), OWNER, "a.html", "Text/HTML; Charset=Latin-1", 10, 10, "ab" * 32, 0.0)


class StoredFiles(Files):
    """`fails_at`: its bytes are missing from there on. `revoked_at`: there its reader's token ends."""

    def __init__(self) -> None:
        self.share = WorkspaceShare("downloads", "max_transfers", 1, 1)
        self.fails_at = self.revoked_at = 10**9
        self.uses = OpenUses()

    async def content(self, file: StoredFile, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes, None]:
        assert self.share.held("default") == 1
        for at in range(start, file.offset if stop is None else stop):
            if at >= self.fails_at:
                raise FileLost
            if at == self.revoked_at:
                self.uses.end("t")
            yield TEXT[at : at + 1]

    def transfer(self, caller: Caller) -> HeldShare:
        return self.share.hold(caller.workspace)


@pytest.fixture
def files() -> StoredFiles:
    return StoredFiles()


async def ask(app: Quart, method: str = "GET", path: str = "/file", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    untyped: Any = app
    transport = httpx.ASGITransport(app=untyped, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        answer = await http.request(method, path, headers=names)
    return answer.status_code, answer.content, dict(answer.headers)


async def test_a_file_is_stored_and_never_shown_and_its_type_is_not_guessed(app: Quart) -> None:
    status, body, headers = await ask(app)
    assert (status, body) == (200, TEXT)
    assert headers["content-disposition"] == 'attachment; filename="a.html"'
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("sandbox;")
    assert headers["content-type"] == "text/html; charset=latin-1"
    assert headers["cache-control"] == "private, no-cache"


async def test_head_has_the_headers_alone(app: Quart) -> None:
    status, _, headers = await ask(app, "HEAD", Range="bytes=1-2")
    assert (status, headers["content-length"], headers["accept-ranges"]) == (200, "10", "bytes")


@pytest.mark.parametrize(
    ("wanted", "content", "content_range"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=8-", b"89", "bytes 8-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=-99", TEXT, "bytes 0-9/10"),
    ],
)
async def test_one_range(app: Quart, wanted: str, content: bytes, content_range: str) -> None:
    status, body, headers = await ask(app, Range=wanted)
    assert (status, body, headers["content-range"]) == (206, content, content_range)
    assert headers["content-disposition"] == 'attachment; filename="a.html"'


@pytest.mark.parametrize("wanted", ["bytes=0-1,3-4", "lines=0-1", "bytes=x", "", "bytes=5-2", "bytes"])
async def test_other_ranges_are_ignored(app: Quart, wanted: str) -> None:
    assert (await ask(app, Range=wanted))[:2] == (200, TEXT)


async def test_a_range_behind_the_end_is_refused(app: Quart) -> None:
    status, body, headers = await ask(app, Range="bytes=10-")
    assert (status, headers["content-range"], headers["content-type"]) == (416, "bytes */10", "application/problem+json")
    assert b"RANGE_NOT_SATISFIABLE" in body


async def test_a_file_that_changed_is_not_continued(app: Quart) -> None:
    _, _, headers = await ask(app)
    assert (await ask(app, Range="bytes=8-", If_Range=headers["etag"]))[:2] == (206, b"89")
    assert (await ask(app, Range="bytes=8-", If_Range='"old"'))[:2] == (200, TEXT)
    assert (await ask(app, If_None_Match=headers["etag"]))[:2] == (304, b"")
    assert (await ask(app, If_None_Match='"old"'))[:2] == (200, TEXT)


# --- names


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\x.exe", "x.exe"),
        ("/", "download"),
        ("..", "download"),
        (" .bashrc. ", "bashrc"),
        ('a"b;c.txt', "a_b;c.txt"),
        ("a\r\nSet-Cookie: x=1.txt", "aSet-Cookie_ x=1.txt"),
        ("a\0b\x7f.txt", "ab.txt"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("zero\u200bwidth\ufeff.txt", "zerowidth.txt"),
        ("line\u2028end.txt", "lineend.txt"),
        ("cafe\u0301 ☕.txt", "café ☕.txt"),
        ("\ud800.txt", "txt"),
        ("<script>.html", "_script_.html"),
        ("x" * 300 + ".tar", "x" * 196 + ".tar"),
        ("☕" * 300 + ".tar", "☕" * 65 + ".tar"),
        ("a." + "b" * 300, "a." + "b" * 198),
    ],
)
def test_a_hostile_name_becomes_a_harmless_one(name: str, safe: str) -> None:
    assert safe_name(name) == safe
    assert len(safe.encode()) <= 200


@pytest.mark.parametrize(
    "name", ["a.txt", 'q"u\\o.txt', "100%.txt", "%41.txt", "naïve ☕.txt", "a'b*c;d=e.txt", "a\r\nX: y", "\ud800"]
)
def test_a_header_has_the_name_for_old_readers_and_for_new_ones(name: str) -> None:
    header = disposition(name)
    assert re.fullmatch("[ -~]+", header)
    (plain,) = re.findall(r'filename="([^"\\%]*)"', header)
    if "filename*" in header:
        assert unquote(header.partition("UTF-8''")[2]) == safe_name(name)
    else:
        assert plain == safe_name(name)


# --- what is stored


@pytest.mark.parametrize(
    "headers", [{}, {"Range": "bytes=2-5"}, {"Range": "bytes=99-"}, {"If_None_Match": f'"{STORED.sha256}"'}]
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_stored_file_is_answered_as_any_other(
    app: Quart, files: StoredFiles, method: str, headers: dict[str, str]
) -> None:
    status, body, found = await ask(app, method, "/stored", **headers)
    expected_status, expected, other = await ask(app, method, **headers) if "If_None_Match" not in headers else (304, b"", {})
    assert (status, body if method == "GET" else b"") == (expected_status, expected if method == "GET" else b"")
    for name in ("content-length", "content-range", "content-type", "content-disposition", "content-security-policy"):
        assert found.get(name) == other.get(name) or status == 304, name
    assert status == 416 or found["etag"] == f'"{STORED.sha256}"'
    assert files.share.held("default") == 0


async def test_a_download_above_the_share_is_refused_before_its_head_is_sent(app: Quart, files: StoredFiles) -> None:
    files.share.take("default")
    status, body, _ = await ask(app, path="/stored")
    assert (status, b"max_transfers" in body.lower()) == (503, True)


async def test_a_stored_file_is_sent_as_long_as_its_readers_token_is_valid(app: Quart, files: StoredFiles) -> None:
    files.revoked_at = 4
    _, body, headers = await ask(app, path="/stored")
    assert (body, headers["content-length"]) == (TEXT[:4], "10")
    assert (files.share.held("default"), files.uses.tokens) == (0, [])
    files.revoked_at = 10**9
    assert (await ask(app, path="/stored"))[1] == TEXT
    assert not files.uses.tokens


async def test_a_file_that_ends_too_early_is_seen_to_be_not_whole(app: Quart, files: StoredFiles) -> None:
    files.fails_at = 4
    status, body, headers = await ask(app, path="/stored")
    assert (status, body, headers["content-length"]) == (200, TEXT[:4], "10")
    assert files.share.held("default") == 0
