"""Parts of refusals that all dispatchers share, and the problem+json for requests that reach none."""

from __future__ import annotations

from hub.server.asgi import Headers, Refusal
from rolecall.errors import HubError, RouteError
from rolecall.protocol.faults import Fault, fault_of
from rolecall.protocol.problem import problem_body

BODY_UNREAD = frozenset({408, 413, 415})
"""Statuses of refusals before the body was read to its end: see `Request.answer_unread`."""


def translate(error: BaseException, dialect: str | None = None) -> Fault:
    """The error on the wire, at the request edge. Whoever raised it may hold it, so its frames would hold the whole request
    until the garbage collector runs: it drops them.
    """
    fault = fault_of(error, dialect)
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return fault


def refusal_of(error: BaseException) -> Refusal:
    fault = translate(error)
    reason = fault.reason.lower() if isinstance(error, HubError) else ""
    return Refusal(fault.status, reason, problem_body(fault), retry_after_of(error))


def retry_after_of(error: BaseException) -> Headers:
    """The Retry-After header, if the error has a time."""
    wait = error.retry_after if isinstance(error, RouteError) else None
    return [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else ()
