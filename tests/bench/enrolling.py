"""Thousands of workers in one hub. All of them are the same process under many names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import islice
from typing import Any, NamedTuple

from tests.bench.asking import ask
from tests.bench.proxies import Proxy

_LINES = 8
WORKERS_PER_TOKEN = 5000
"""Workers that the holder of one token may enrol."""


class Enrolled(NamedTuple):
    name: str
    epoch: int
    lease: str

    def beat(self) -> str:
        return json.dumps({"epoch": self.epoch, "lease": self.lease, "in_flight": 0})


def names(workers: int, roles: int) -> Iterator[tuple[str, str]]:
    """Pairs of role and instance. The first role gets the calls, and is as large as the others."""
    for number in range(workers):
        role = number % roles
        yield "bench" if role == 0 else f"role-{role}", f"i{number // roles}"


def enrol_many(hub: Proxy, worker: int, wanted: Sequence[tuple[str, str]], *, token: str) -> list[Enrolled]:
    """Enrol over a few connections at once. HTTPError or OSError if one is refused."""
    card = ask(worker, "/.well-known/agent-card.json")
    offer = json.dumps({"url": f"http://127.0.0.1:{worker}/", "boot": "bench", "card": card})
    shares = [list(islice(wanted, connection, None, _LINES)) for connection in range(_LINES)]
    with ThreadPoolExecutor(_LINES) as pool:
        done = pool.map(lambda share: _enrol_share(hub.port, share, offer, token), shares)
        return [enrolled for share in done for enrolled in share]


def _enrol_share(port: int, share: Sequence[tuple[str, str]], offer: str, token: str) -> list[Enrolled]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        return [_enrol(connection, role, instance, offer, headers) for role, instance in share]
    finally:
        connection.close()


def _enrol(connection: HTTPConnection, role: str, instance: str, offer: str, headers: dict[str, str]) -> Enrolled:
    connection.request("PUT", f"/registry/agents/{role}/{instance}", offer, headers)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 201:
        raise OSError(f"{role}:{instance} was not enrolled: {answer.status} {text[:200]!r}")
    lease: dict[str, Any] = json.loads(text)
    return Enrolled(lease["name"], lease["epoch"], lease["lease"])
