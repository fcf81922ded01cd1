"""A hub in quarantine is there to be looked at: what would change it is refused before it reaches the hub."""

from __future__ import annotations

from hub.core.token_watch import OpenUses
from hub.inbound.middleware.request import Request
from hub.server.asgi import PROBLEM, App, Receive, Scope, Send
from rolecall.errors import Quarantined
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body

_OWN_API = "/registry"
"""A2A's operations are refused where they are known: to read is a POST there, too."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class Quarantine:
    """ASGI middleware. `below`: what answers the other requests."""

    def __init__(self, below: App, uses: OpenUses) -> None:
        self._below = below
        self._uses = uses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _READING or not scope["path"].startswith(_OWN_API):
            await self._below(scope, receive, send)
            return
        request, fault = Request(scope, receive, send, self._uses), fault_of(Quarantined())
        try:
            await request.answer_unread(problem_body(fault), status=fault.status, media=PROBLEM)
        finally:
            request.close()
