"""The Quart application: everything that is not the hot path. Errors become problem+json here, once."""

from __future__ import annotations

import logging
from typing import Any

from quart import Quart, Response, current_app, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from hub.inbound.middleware.refusal import retry_after_of
from rolecall.errors import BodyTooLarge, BodyTooSlow, HubError, InvalidParams, MediaTypeNotSupported
from rolecall.model.a2a import JsonObject
from rolecall.protocol.faults import fault_of
from rolecall.protocol.text.jsontext import dump, read_object

log = logging.getLogger(__name__)

_MAX_DEPTH = "MAX_JSON_DEPTH"


def create_api(max_body: int, max_depth: int) -> Quart:
    app = Quart("rolecall", static_folder=None)
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
            refused = _problem(405, error.name, f"This address takes {allowed}.", "METHOD_NOT_ALLOWED")
            refused.headers["Allow"] = allowed
            return refused
        documented = f"{request.method} {request.path[:200]} is not an address of this hub."
        return _problem(error.code or 500, error.name, documented, "NOT_FOUND")

    @app.errorhandler(Exception)
    async def on_bug(error: Exception) -> Response:
        log.exception("request failed", exc_info=error, extra={"event": "request_failed", "path": request.path[:200]})
        return _problem(500, "Internal error", "Something went wrong in the hub; its log has the details.", "INTERNAL")

    return app


def reply(document: Any, status: int = 200) -> Response:
    return Response(dump(document), status=status, content_type="application/json")


def briefly_kept() -> dict[str, str]:
    """Headers of a card or a catalog: for a moment it is as good as new. What a token opened is not for a proxy to hand on."""
    shown = "Authorization" in request.headers or "X-API-Key" in request.headers
    scope = "private" if shown else "public"
    return {"Cache-Control": f"{scope}, max-age=5", "Vary": "A2A-Version, Authorization, X-API-Key"}


async def json_object(*, required: bool = True) -> JsonObject:
    """The request's body as an object; an empty one is `{}` where the body may be left out."""
    body: Any = await request.get_data(as_text=False)
    if not body and not required:
        return {}
    if request.mimetype not in ("application/json", "application/merge-patch+json"):
        raise MediaTypeNotSupported
    return read_object(body, current_app.config[_MAX_DEPTH])


def whole_number(text: str, name: str, lowest: int, highest: int) -> int:
    """A number in a query or header, where `²` is a digit to Python and nobody else."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and lowest <= int(text) <= highest):
        raise InvalidParams(f'"{name}" must be a whole number from {lowest} to {highest}.')
    return int(text)


def problem(error: HubError, **members: Any) -> Response:
    fault = fault_of(error)
    response = _problem(fault.status, fault.reason.replace("_", " ").capitalize(), fault.message, fault.reason, **members)
    for name, value in retry_after_of(error):
        response.headers[name.decode()] = value.decode()
    return response


def _problem(status: int, title: str, detail: str, reason: str, **members: Any) -> Response:
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail, "reason": reason, **members}
    return Response(dump(document), status=status, content_type="application/problem+json")
