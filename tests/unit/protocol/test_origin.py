"""The origin of a web page."""

from __future__ import annotations

import pytest

from rolecall.protocol.text.origin import read_origin


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://app.example.com", ("https", "app.example.com", 443)),
        ("HTTPS://App.Example.COM:443", ("https", "app.example.com", 443)),
        ("http://localhost", ("http", "localhost", 80)),
        ("http://localhost:5173", ("http", "localhost", 5173)),
        ("http://localhost.:80", ("http", "localhost.", 80)),
        ("http://[::1]:8420", ("http", "[::1]", 8420)),
        ("http://[0:0:0::0001]", ("http", "[::1]", 80)),
        ("chrome-extension://abcdef", ("chrome-extension", "abcdef", None)),
    ],
)
def test_an_origin_is_a_scheme_a_host_and_a_port(text: str, origin: tuple[str, str, int | None]) -> None:
    assert read_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "*",
        "https://*",
        "https://*.example.com",
        "localhost:5173",
        "https://",
        "https://app.example.com/",
        "https://app.example.com/page",
        "https://app.example.com?x",
        "https://me@app.example.com",
        "https://app.example.com\\@evil.example",
        "https://app.example.com https://evil.example",
        "https://app.example.com, https://evil.example",
        "https://app.example.com:",
        "https://app.example.com:99999999",
        "https://app.example.com:443:443",
        "https://[::1",
        "https://[1.2.3]",
        "https://" + "a" * 600,
    ],
)
def test_what_a_browser_would_not_send_is_no_origin(text: str) -> None:
    assert read_origin(text) is None
