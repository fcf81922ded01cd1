"""One caller's connection: HTTP/1.1 in, one request after the other to the application.

What the intake cannot read in one way only is refused, and the line closed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from hub.server.asgi import BODY_COMPLETE, ON_DISCONNECT, App, Refusal, Scope
from hub.server.cycle import MOST_UNREAD, RequestCycle, whole_answer
from hub.server.parser import RequestParser
from rolecall.errors import HubError

if sys.platform != "win32":
    import fcntl
    import termios

log = logging.getLogger(__name__)

NEVER = float("inf")
_MOST_WAITING = 16
"""Requests that are here before the one before them is answered."""
_PIECE = 4 * 1024
"""Bytes that are read before it is looked how many requests that made: one can be as short as twenty."""
_MOST_UNSENT = 32 * 1024
"""Bytes of an answer that the caller has not taken; then whoever writes it waits."""
_LEAST_TAKEN = 16 * 1024
"""Bytes that a caller has to take within the house's patience. Fewer count as nothing."""
_LAST_WORDS = 1.0
"""Seconds for what is still coming after the last answer: a line that is closed with unread bytes is reset, and it is lost."""


class ConnectionOwner(Protocol):
    """Who has opened the line. Times in seconds. `most_head`: bytes of a request's head, its address included."""

    app: App
    max_head: int
    head_within: float
    idle_for: float
    patience: float

    def opened(self, line: ServerConnection) -> HubError | None:
        """The error why there is no room for it."""

    def refuse(self, error: Exception) -> Refusal:
        """What to answer where no request was understood, or none is taken. It is counted."""

    def closed(self, line: ServerConnection) -> None: ...


class TookNothing(TimeoutError):
    """The caller has not taken what he is answered. His line has been cut."""


class ServerConnection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.due = NEVER
        """When the caller has kept us waiting for too long. The house looks now and then."""
        self.task: asyncio.Task[None] | None = None
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser: RequestParser | None = None
        self._waiting: deque[RequestCycle] = deque()
        self._serving: RequestCycle | None = None
        self._next: asyncio.Future[None] | None = None
        self._taken = asyncio.Event()
        self._full = False
        self._paused = False
        self._unsent = 0
        self._held = b""
        """What has come and is not yet looked at: enough is waiting."""
        self._wrong: HubError | None = None
        """Why nothing more can be read. It is said when all that came before it is answered."""
        self._closing = False
        """No further request."""
        self._ignore_input = False
        """What comes is not looked at."""
        self._over = False
        """The last words are said."""

    # --- the house's side

    def expire(self) -> None:
        """The caller has had his time."""
        if self._transport is None:
            return
        if not self._transport.is_closing():
            self._leave()
        elif self._unsent - self._still_unsent() >= _LEAST_TAKEN:
            self._last_chance()
        else:
            self._transport.abort()  # he does not even take what is left for him

    def close(self) -> None:
        """No further request. What has been asked is answered."""
        self._closing = True
        if self._serving is None and not self._waiting and not self._over:
            self._leave()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- the exchange's side

    @property
    def peers(self) -> bool:
        return self._closing and not self._waiting and self._wrong is None

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        while self._full:
            unsent = self._still_unsent()
            try:
                async with asyncio.timeout(self._owner.patience):
                    await self._taken.wait()
            except TimeoutError:
                if unsent - self._still_unsent() < _LEAST_TAKEN:
                    log.info("line cut", extra={"event": "line_cut", "why": "its other end took nothing for too long"})
                    self.abort()
                    raise TookNothing from None

    def want_more(self) -> None:
        if self._ignore_input or self._stuffed():
            return
        if self._held:
            self._loop.call_soon(self._go_on)
        elif self._paused:
            self._listen()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_MOST_UNSENT)
        peers = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._parser = RequestParser(self._asked, peers, max_head=self._owner.max_head)
        self.due = self._loop.time() + self._owner.head_within
        full = self._owner.opened(self)
        if full is not None:
            self._refuse(full)

    def data_received(self, data: bytes) -> None:
        if not self._ignore_input:
            self._parse(data)

    def eof_received(self) -> bool:
        """A caller who has said all may still be listening for its answer, and has as long as one who takes nothing. In the
        middle of a stream he has left: to find out by writing to him would take until the stream's next word.
        """
        self._closing = True
        self._cut_short()
        self.due = self._loop.time() + self._owner.patience
        if self._serving is not None and self._serving.streams:
            self._serving.leave()
        return bool(self._waiting) or (self._serving is not None and not self._serving.gone)

    def pause_writing(self) -> None:
        self._full = True
        self._taken.clear()

    def resume_writing(self) -> None:
        self._full = False
        self._taken.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.closed(self)
        self._closing = self._ignore_input = self._over = True
        self.due = NEVER
        # The parser holds its owner's methods: without this the two would wait for the cycle collector.
        if self._parser is not None:
            self._parser.end()
        self._parser = self._transport = None
        self._waiting.clear()
        self._held = b""
        if self._serving is not None:
            self._serving.leave()
        self.resume_writing()
        self._wake()

    # --- reading

    def _asked(self, scope: Scope, *, keeps: bool, expects: bool) -> RequestCycle:
        cycle = RequestCycle(self, self._loop, scope, keeps=keeps, expects=expects)
        self._waiting.append(cycle)
        self.due = NEVER
        if self.task is None:
            self.task = self._loop.create_task(self._serve(), name="line")
        else:
            self._wake()
        return cycle

    def _parse(self, data: bytes) -> None:
        """As much of it as may wait; the rest when there is room again."""
        intake = self._parser
        if intake is None:
            return
        knew_head, at, stuffed = intake.in_head, 0, self._stuffed()
        while at < len(data) and not stuffed:
            wrong = intake.feed(data[at : at + _PIECE])
            if wrong is not None:
                self._misread(wrong)
                return
            at += _PIECE
            stuffed = self._stuffed()
        self._held = data[at:]
        if stuffed:
            self._pause()
        elif self._paused:
            self._listen()
        if intake.in_head and not knew_head and self._serving is None and not self._waiting:
            self.due = self._loop.time() + self._owner.head_within

    def _go_on(self) -> None:
        """With what was held, in a turn of its own: however much that is, others are served in between."""
        data, self._held = self._held, b""
        if data and not self._ignore_input:
            self._parse(data)

    def _stuffed(self) -> bool:
        """Of who is being served only his own body counts, and only while it comes: he must be able to get all of it."""
        if self._waiting:
            return len(self._waiting) >= _MOST_WAITING or sum([one.unread for one in self._waiting]) > MOST_UNREAD
        reading = self._parser.reading if self._parser is not None else None
        return reading is not None and reading.unread > MOST_UNREAD

    def _in_head(self) -> bool:
        return self._parser is not None and self._parser.in_head

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _listen(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _misread(self, error: HubError) -> None:
        """What came before it is answered as it would have been."""
        self._closing = self._ignore_input = True
        self._wrong = error
        self._cut_short()
        self._listen()
        if self._serving is None and not self._waiting:
            self._end()

    def _cut_short(self) -> None:
        """The body that is on its way will never be whole."""
        cut = self._parser.reading if self._parser is not None else None
        if cut is not None and not cut.gone:
            cut.leave()
            if self._waiting and self._waiting[-1] is cut:
                self._waiting.pop()

    # --- serving

    async def _serve(self) -> None:
        """One request after the other, until there will be none."""
        try:
            while await self._another():
                await self._answer(self._waiting.popleft())
                if self._full:
                    await self.drained()
        except TookNothing:
            pass
        finally:
            if self._serving is not None:
                self.abort()

    async def _another(self) -> bool:
        while not self._waiting:
            if self._closing:
                self._end()
                return False
            self.due = self._loop.time() + (self._owner.head_within if self._in_head() else self._owner.idle_for)
            self._next = self._loop.create_future()
            try:
                await self._next
            finally:
                self._next = None
        return True

    async def _answer(self, cycle: RequestCycle) -> None:
        self._serving = cycle
        cycle.scope[BODY_COMPLETE] = cycle.complete
        cycle.scope[ON_DISCONNECT] = self._when_gone
        failed = False
        try:
            await self._owner.app(cycle.scope, cycle.receive, cycle.send)
        except TookNothing:
            pass
        except Exception:
            failed = True
            log.exception("request failed", extra={"event": "request_failed", "path": cycle.scope["path"][:200]})
        self._serving = None
        if cycle.answered and cycle.keeps and cycle.complete:
            self.want_more()
        else:
            self._break_off(cycle, failed=failed)

    def _when_gone(self, tell: Callable[[], None]) -> None:
        """By way of the line: a scope that knew its exchange would be left to the garbage collector."""
        if self._serving is not None:
            self._serving.when_gone(tell)

    def _break_off(self, cycle: RequestCycle, *, failed: bool) -> None:
        """There can be no answer after this one, so whatever else is asked must not be done."""
        self._closing = self._ignore_input = True
        self._held = b""
        self._waiting.clear()
        if cycle.answered:
            self._wrong = None
            if self._paused or not cycle.complete:  # there is more to come
                self._linger()
        elif cycle.begun:
            self._over = True
            self.abort()  # an answer that was cut has to look cut
        elif failed:
            self._refuse(RuntimeError())

    def _end(self) -> None:
        if self._over:
            return
        if self._wrong is not None:
            self._refuse(self._wrong)
        else:
            self._leave()

    def _refuse(self, error: Exception) -> None:
        """The last words on this line."""
        refusal = self._owner.refuse(error)
        self.write(whole_answer(refusal.status, refusal.body, refusal.headers))
        self._linger()

    def _linger(self) -> None:
        """Nothing more is said; what still comes is thrown away for a moment."""
        self._closing = self._ignore_input = self._over = True
        self._held = b""
        self.due = self._loop.time() + _LAST_WORDS
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._listen()

    def _leave(self) -> None:
        self._closing = self._over = True
        if self._transport is not None:
            self._last_chance()
            self._transport.close()

    def _last_chance(self) -> None:
        self._unsent = self._still_unsent()
        self.due = self._loop.time() + self._owner.patience

    def _still_unsent(self) -> int:
        """With what the system holds: it takes megabytes, and asks for more only when a large part has gone."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + _held_by_system(self._transport)

    def _wake(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)


def _held_by_system(transport: asyncio.Transport) -> int:
    if sys.platform == "win32":
        return 0
    try:
        size = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(size, sys.byteorder)
