"""The front of the hub: A2A's calls go straight to their dispatchers, everything else to Quart."""

from __future__ import annotations

from hub.model.command import Target
from hub.model.ids import is_instance, is_role, split_name
from hub.web.asgi import App, Receive, Scope, Send, answer
from hub.web.jsonrpc import JsonRpc
from hub.web.rest import Rest
from hub.wire.rest import read_place

_EVERY_ROLE = frozenset({"/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/v1/a2a"})
_OLD_STREAM = "/subscribe"
_ANY = Target()
_A_BROWSERS = frozenset({"GET", "HEAD"})
_ALLOWED = {"/": b"GET, HEAD, POST"}
_POST_ONLY = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"This address takes POST with a JSON-RPC request."}}'


class Edge:
    """The ASGI application that a server runs."""

    def __init__(self, rpc: JsonRpc, rest: Rest, pages: App) -> None:
        self._rpc = rpc
        self._rest = rest
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1002})
            return
        if scope["type"] == "http":
            path, verb = scope["path"], scope["method"]
            only = "tasks/sendSubscribe" if path == _OLD_STREAM else None
            target = rpc_target(path) if only is None else _ANY
            if target is not None and verb == "POST":
                await self._rpc(scope, receive, send, target, only=only)
                return
            if target is not None and not (path == "/" and verb in _A_BROWSERS):
                await answer(send, _POST_ONLY, status=405, headers=[(b"allow", _ALLOWED.get(path, b"POST"))])
                return
            place = read_place(scope["raw_path"].decode("ascii", "replace"), verb) if target is None else None
            if place is not None:
                await self._rest(scope, receive, send, place)
                return
        await self._pages(scope, receive, send)


def rpc_target(path: str) -> Target | None:
    """What a JSON-RPC address names, None where the path is no such address. A name that cannot be one is none."""
    if path in _EVERY_ROLE:
        return _ANY
    if not path.startswith("/agents/"):
        return None
    name, _, rest = path[8:].partition("/")
    if rest not in ("", "a2a"):
        return None
    role, instance = split_name(name)
    if not is_role(role) or (instance is not None and not is_instance(instance)):
        return None
    return Target(path_role=role, path_instance=instance)
