"""Files that strangers wrote, as browsers get them: harmless names, one range, never shown."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from quart import Quart, Response

from hub.inbound.api.application import create_api
from hub.inbound.api.downloads import DOWNLOAD, disposition, download, safe_name
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import Conditions
from rolecall.model.content import Download

TEXT = b"0123456789"


@pytest.fixture
def app() -> Quart:
    api = create_api(1000, 10)

    @api.get("/file")
    @operation("A file.", answers=DOWNLOAD)
    async def file(query: Conditions) -> Response:
        return download(Download("a.html", "Text/HTML; Charset=Latin-1", TEXT), query, version="v1")

    return api


async def ask(app: Quart, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await app.test_client().open("/file", method=method, headers=names)
    body = await answer.get_data(as_text=False)
    return answer.status_code, body, {name.lower(): value for name, value in answer.headers.items()}


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
