"""The middleware on the Quart application: A2A calls go directly to their dispatchers, everything else to Quart."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import lru_cache

from hub.core.observe import Observer
from hub.core.shares.table import Shares
from hub.core.token_watch import OpenUses
from hub.inbound.a2a.jsonrpc import JsonRpc
from hub.inbound.a2a.rest import Rest
from hub.inbound.api.leases import Leases
from hub.inbound.files.addresses import PATH as FILES_PATH
from hub.inbound.files.addresses import FileAddresses
from hub.inbound.middleware.audit import record_refusal
from hub.inbound.middleware.authentication import Authenticator, is_role_address, reads_card
from hub.inbound.middleware.call_turns import CallTurns
from hub.inbound.middleware.fair_scheduler import FairScheduler
from hub.inbound.middleware.origins import answer_preflight, is_preflight, with_cors
from hub.inbound.middleware.rate_limiter import RateLimiter, counted_caller
from hub.inbound.middleware.refusal import retry_after_of
from hub.inbound.middleware.request import Request
from hub.inbound.middleware.unsent_answers import UnsentAnswer
from hub.server.asgi import JSON, PROBLEM, App, Receive, Scope, Send
from rolecall.errors import AccessError, BodyTooLarge, HubError, Overloaded, TooManyAtOnce, TooManyRequests
from rolecall.model.command import Target
from rolecall.model.ids import Caller, is_instance, is_role, split_name
from rolecall.protocol.faults import Fault, fault_of
from rolecall.protocol.jsonrpc import NULL, write_error
from rolecall.protocol.problem import problem_body
from rolecall.protocol.rest import read_route

_HUB_PATHS = frozenset({"/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/v1/a2a"})
_V0_1_STREAM_PATH = "/subscribe"
_NO_ROLE = Target()
_MAX_PATH = 256
_BROWSER_METHODS = frozenset({"GET", "HEAD"})
_POST_ONLY = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"This address takes POST with a JSON-RPC request."}}'


class AsgiMiddleware:
    """Admits each request, then dispatches it by path and method. `quart`: the application below, for the rest."""

    def __init__(
        self,
        authenticator: Authenticator,
        rate_limiter: RateLimiter,
        rpc: JsonRpc,
        leases: Leases,
        files: FileAddresses,
        rest: Rest,
        quart: App,
        observer: Observer,
        shares: Shares,
        call_turns: CallTurns,
        uses: OpenUses,
        *,
        max_body: int,
    ) -> None:
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._rpc = rpc
        self._leases = leases
        self._files = files
        self._rest = rest
        self._quart = quart
        self._observer = observer
        self._max_body = max_body
        self._call_turns = call_turns
        self._scheduler = FairScheduler(shares.starts)
        self._messages = shares.messages
        self._unsent = shares.unsent
        self._uses = uses

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            return self._handle(Request(scope, receive, send, self._uses))
        if scope["type"] == "websocket":
            return send({"type": "websocket.close", "code": 1002})
        return self._quart(scope, receive, send)

    async def _handle(self, request: Request) -> None:
        path = request.path
        only = "tasks/sendSubscribe" if path == _V0_1_STREAM_PATH else None
        if only is not None:
            target: Target | None = _NO_ROLE
        else:
            # Nearly all calls are POST.
            target = rpc_target(path) if request.method == "POST" or not reads_card(path, request.method) else None
        counted: Caller | None = None
        try:
            caller = counted_caller(self._authenticator.admit(request))
            if request.cors and is_preflight(request):
                await answer_preflight(request)
                return
            if caller is not None:
                self._rate_limiter.enter(caller)
                counted = caller
            body_memory = 0 if path.startswith(FILES_PATH) else request.body_memory(self._max_body)
            if not body_memory:
                await self._serve(request, target, only)
            else:
                with self._messages.hold(_workspace(request), body_memory):
                    await self._serve(request, target, only)
        except (AccessError, BodyTooLarge, Overloaded, TooManyRequests, TooManyAtOnce) as error:
            record_refusal(request.scope, error)
            fault = fault_of(error)
            self._observer.refused(fault.reason.lower(), _workspace(request))
            await _refuse(request, error, fault, rpc=target is not None)
        finally:
            request.close()
            if counted is not None:
                self._rate_limiter.leave(counted)

    async def _serve(self, request: Request, target: Target | None, only: str | None) -> None:
        path, method = request.path, request.method
        if target is not None and method == "POST":
            if (turn := self._call_turns.take(_workspace(request))) is not None:
                await turn
            await self._rpc(request, target, only=only)
            return
        if target is not None and not (path == "/" and method in _BROWSER_METHODS):
            allowed = b"GET, HEAD, POST" if path == "/" or is_role_address(path) else b"POST"
            await request.answer(_POST_ONLY, status=405, headers=[(b"allow", allowed)])
            return
        lease_call = self._leases.match(path, method)
        if lease_call is not None:
            await self._scheduler.turn(_workspace(request))
            await self._leases(request, lease_call)
            return
        file_call = self._files.match(path, method)
        if file_call is not None:
            await self._scheduler.turn(_workspace(request))
            await self._files(request, file_call)
            return
        place = read_route(request.scope["raw_path"].decode("ascii", "replace"), method) if target is None else None
        if place is not None:
            if (turn := self._call_turns.take(_workspace(request))) is not None:
                await turn
            await self._rest(request, place)
        else:
            request.check_length(self._max_body)
            await self._scheduler.turn(_workspace(request))
            send = with_cors(request.send, request.cors) if request.cors else request.send
            answer = UnsentAnswer(send, self._unsent, _workspace(request))
            await self._quart(request.scope, request.receive, answer)
            answer.check()


def _workspace(request: Request) -> str:
    """Requests without a token share one place in the rotation."""
    return request.principal.caller.workspace if request.principal is not None else ""


async def _refuse(request: Request, error: HubError, fault: Fault, *, rpc: bool) -> None:
    """Answers without reading the body: JSON-RPC on its paths, problem+json elsewhere."""
    headers = [*retry_after_of(error)]
    if fault.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="rolecall"'))
    body, media = (write_error(NULL, fault), JSON) if rpc else (problem_body(fault), PROBLEM)
    await request.answer_unread(body, status=fault.status, media=media, headers=headers)


def rpc_target(path: str) -> Target | None:
    """What a JSON-RPC path names; None: not a JSON-RPC path, or an invalid name."""
    if path in _HUB_PATHS:
        return _NO_ROLE
    return _role_target(path) if path.startswith("/agents/") and len(path) < _MAX_PATH else None


@lru_cache(maxsize=4096)
def _role_target(path: str) -> Target | None:
    name, _, rest = path[8:].partition("/")
    if rest not in ("", "a2a"):
        return None
    role, instance = split_name(name)
    if not is_role(role) or (instance is not None and not is_instance(instance)):
        return None
    return Target(path_role=role, path_instance=instance)
