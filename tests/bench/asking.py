"""Small questions over HTTP, in JSON, as anybody could ask them."""

from __future__ import annotations

import json
import socket
import urllib.request
from typing import Any

from tests.helpers.processes import wait_for

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(port: int, path: str, method: str = "GET", document: Any = None, *, token: str = "") -> Any:
    data = None if document is None else json.dumps(document).encode()
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method, headers=headers)
    with _OPENER.open(request, timeout=30) as answer:
        return json.loads(answer.read())


def until_answering(port: int, seconds: float = 20.0) -> None:
    try:
        wait_for(lambda: _answers(port), seconds)
    except TimeoutError as error:
        raise SystemExit(f"Nothing answers on port {port} within {seconds:g} s. See the logs.") from error


def _answers(port: int) -> bool:
    try:
        ask(port, "/.well-known/agent-card.json")
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
