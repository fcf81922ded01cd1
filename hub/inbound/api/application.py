"""The Quart application: everything that is not on the hot path. Its errors become problem+json here."""

from __future__ import annotations

import logging
from typing import Any

from quart import Quart, Response, current_app, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from hub.inbound.middleware.refusal import retry_after_of
from hub.server.asgi import PROBLEM
from rolecall.errors import BodyTooLarge, BodyTooSlow, HubError, MediaTypeNotSupported
from rolecall.model.a2a import JsonObject
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body, problem_document
from rolecall.protocol.text.jsontext import dump, read_object

log = logging.getLogger(__name__)

_MAX_DEPTH = "MAX_JSON_DEPTH"


class HubApplication(Quart):
    def log_exception(self, *about: Any) -> None:
        """Called when the start or the end fails. Errors of our own are for people: whoever runs the application shows them.
        `about`: the exception as `sys.exc_info` gives it; since Quart 0.23, which needs Python 3.13, behind the context.
        """
        if not isinstance(about[-1][1], HubError):
            super().log_exception(*about)


def create_api(max_body: int, max_depth: int) -> Quart:
    app = HubApplication("rolecall", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body
    app.config["BODY_TIMEOUT"] = 10
    app.config[_MAX_DEPTH] = max_depth
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False

    @app.errorhandler(HubError)
    async def on_hub_error(error: HubError) -> Response:
        return problem(error)

    @app.errorhandler(HTTPException)
    async def on_http_error(error: HTTPException) -> Response:
        if error.code == 413:
            return problem(BodyTooLarge(max_body))
        if error.code == 408:
            return problem(BodyTooSlow())
        if isinstance(error, MethodNotAllowed):
            allowed = ", ".join(sorted(error.valid_methods or ()))
            refused = _problem(problem_document(405, error.name, f"This address takes {allowed}.", "METHOD_NOT_ALLOWED"), 405)
            refused.headers["Allow"] = allowed
            return refused
        detail = f"{request.method} {request.path[:200]} is not an address of this hub."
        return _problem(problem_document(error.code or 500, error.name, detail, "NOT_FOUND"), error.code or 500)

    @app.errorhandler(Exception)
    async def on_bug(error: Exception) -> Response:
        log.exception("request failed", exc_info=error, extra={"event": "request_failed", "path": request.path[:200]})
        detail = "Something went wrong in the hub; its log has the details."
        return _problem(problem_document(500, "Internal error", detail, "INTERNAL"), 500)

    return app


def reply(document: Any, status: int = 200) -> Response:
    return Response(dump(document), status=status, content_type="application/json")


def cache_headers() -> dict[str, str]:
    """Headers of a card or a catalog: fresh for 5 seconds. Proxies must not share an answer to a request with a token."""
    has_token = "Authorization" in request.headers or "X-API-Key" in request.headers
    scope = "private" if has_token else "public"
    return {"Cache-Control": f"{scope}, max-age=5", "Vary": "A2A-Version, Authorization, X-API-Key"}


async def json_object(*, required: bool = True) -> JsonObject:
    """The request's body as an object; an empty body is `{}` unless one is required."""
    body: Any = await request.get_data(as_text=False)
    if not body and not required:
        return {}
    if request.mimetype not in ("application/json", "application/merge-patch+json"):
        raise MediaTypeNotSupported
    return read_object(body, current_app.config[_MAX_DEPTH])


def problem(error: HubError, **members: Any) -> Response:
    fault = fault_of(error)
    response = _problem(problem_body(fault, **members), fault.status)
    for name, value in retry_after_of(error):
        response.headers[name.decode()] = value.decode()
    return response


def _problem(body: bytes, status: int) -> Response:
    return Response(body, status=status, content_type=PROBLEM.decode())
