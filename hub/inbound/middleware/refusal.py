"""Parts of refusals that all dispatchers share, and the problem+json for requests that reach none."""

from __future__ import annotations

from hub.server.asgi import Headers, Refusal
from rolecall.errors import HubError, RouteError
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body

BODY_UNREAD = frozenset({408, 413, 415})
"""Statuses of refusals before the body was read to its end: see `Request.answer_unread`."""


def refusal_of(error: BaseException) -> Refusal:
    fault = fault_of(error)
    reason = fault.reason.lower() if isinstance(error, HubError) else ""
    return Refusal(fault.status, reason, problem_body(fault), retry_after_of(error))


def retry_after_of(error: BaseException) -> Headers:
    """The Retry-After header, if the error has a time."""
    wait = error.retry_after if isinstance(error, RouteError) else None
    return [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else ()
