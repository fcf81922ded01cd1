"""What a request says of its body before it is read."""

from __future__ import annotations

from typing import Any

import pytest

from hub.inbound.middleware.request import Request

LIMIT = 1_000_000


def a_request(**headers: str) -> Request:
    async def never(*_: Any) -> Any:
        raise AssertionError("the body must not be read")

    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "path": "/", "method": "POST", "headers": pairs}, never, never)


@pytest.mark.parametrize(
    ("headers", "memory"),
    [
        ({}, 0),
        ({"content_length": "0"}, 0),
        ({"content_length": "65536"}, 0),
        ({"content_length": "65537"}, 65_537),
        ({"content_length": "1000000"}, LIMIT),
        ({"content_length": "1000001"}, 0),
        ({"content_length": "-70000"}, 0),
        ({"content_length": "seventy thousand"}, 0),
        ({"content_length": "9" * 5000}, 0),
        ({"transfer_encoding": "chunked"}, LIMIT),
    ],
)
def test_a_large_body_that_will_be_read_is_counted_before_it_is_read(headers: dict[str, str], memory: int) -> None:
    assert a_request(**headers).body_memory(LIMIT) == memory
