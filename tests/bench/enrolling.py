"""Thousands of workers in one hub. All of them are the one worker there is, under many names."""

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
EACH_FARM = 5000
"""As many workers as the holder of one token may enrol."""


class Enrolled(NamedTuple):
    name: str
    epoch: int
    lease: str

    def beat(self) -> str:
        return json.dumps({"epoch": self.epoch, "lease": self.lease, "in_flight": 0})


def names(workers: int, roles: int) -> Iterator[tuple[str, str]]:
    """Role and instance. The first role is the one that is called, and as large as the others."""
    for number in range(workers):
        role = number % roles
        yield "bench" if role == 0 else f"role-{role}", f"i{number // roles}"


def enrol_many(hub: Proxy, worker: int, wanted: Sequence[tuple[str, str]], *, token: str) -> list[Enrolled]:
    """Over a few connections at once. HTTPError or OSError where one does not get in."""
    card = ask(worker, "/.well-known/agent-card.json")
    offer = json.dumps({"url": f"http://127.0.0.1:{worker}/", "boot": "bench", "card": card})
    shares = [list(islice(wanted, line, None, _LINES)) for line in range(_LINES)]
    with ThreadPoolExecutor(_LINES) as pool:
        done = pool.map(lambda share: _enrol_share(hub.port, share, offer, token), shares)
        return [enrolled for share in done for enrolled in share]


def _enrol_share(port: int, share: Sequence[tuple[str, str]], offer: str, token: str) -> list[Enrolled]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    line = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        return [_enrol(line, role, instance, offer, headers) for role, instance in share]
    finally:
        line.close()


def _enrol(line: HTTPConnection, role: str, instance: str, offer: str, headers: dict[str, str]) -> Enrolled:
    line.request("PUT", f"/registry/agents/{role}/{instance}", offer, headers)
    answer = line.getresponse()
    text = answer.read()
    if answer.status != 201:
        raise OSError(f"{role}:{instance} was not enrolled: {answer.status} {text[:200]!r}")
    lease: dict[str, Any] = json.loads(text)
    return Enrolled(lease["name"], lease["epoch"], lease["lease"])
