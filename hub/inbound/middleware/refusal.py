"""What a caller gets whose request is refused before it reaches a dispatcher: problem+json, the same wherever it happens."""

from __future__ import annotations

from hub.server.asgi import Headers, Refusal
from rolecall.errors import HubError, RouteError
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body


def refusal_of(error: BaseException) -> Refusal:
    fault = fault_of(error)
    reason = fault.reason.lower() if isinstance(error, HubError) else ""
    return Refusal(fault.status, reason, problem_body(fault), retry_after_of(error))


def retry_after_of(error: BaseException) -> Headers:
    """The header that tells when to try again, where an error has that."""
    wait = error.retry_after if isinstance(error, RouteError) else None
    return [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else ()
