"""A call to a worker: tells its listener what the worker answers, as fast as the listener takes it."""

from __future__ import annotations

import asyncio

from hub.outbound.answers import Answer, AnswerForm, ErrorAnswer, open_answer
from hub.outbound.connection import NO_HEADERS, Response
from hub.ports.forwarder import AnswerListener
from hub.ports.shares import Slots
from rolecall.errors import HubError, WorkerBroke
from rolecall.model.value import replace

LARGE = 1024 * 1024
"""Bytes that every event may hold in memory before it is complete. For more it needs a place."""


class Call(Response):
    """Implements ports.OpenCall. A listener may pause, resume and hang up whenever it likes, also while it is told something:
    `_silent` is asked after everything that it is told.
    """

    __slots__ = ("_answer", "_form", "_has_place", "_listener", "_paused", "_scheduled", "_slots", "_taking", "_workspace")

    def __init__(self, form: AnswerForm, listener: AnswerListener, slots: Slots | None = None, workspace: str = "") -> None:
        """`slots`: for large events on their way to this hub: so many arrive at once, and others are held by back-pressure."""
        super().__init__(form.worker)
        self._slots = slots
        self._workspace = workspace
        self._taking: asyncio.Task[None] | None = None
        """Waits for a place, then holds it."""
        self._has_place = False
        self._form = form
        self._listener: AnswerListener | None = listener
        """None: it has hung up, or has been told the end."""
        self._answer: Answer | None = None
        self._paused = False
        self._scheduled = False
        """The rest is told on the next turn of the loop."""

    def shows_credential(self) -> None:
        """A worker that refuses the call refuses this credential."""
        self._form = replace(self._form, credential=True)

    # --- the port

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._listener is not None and self._is_pending():
            self._schedule()

    def hang_up(self) -> None:
        if self._answer is not None and self._answer.finished:
            self.discard()
        else:
            self.close()
        self._forget()

    # --- pieces

    def changed(self) -> None:
        """Tell what has arrived, at most a piece of it."""
        listener, answer = self._listener, self._answer
        if listener is None or self._silent:
            return
        if answer is None:
            answer = self._open(listener)
            if answer is None:
                return
        chunks = self.chunks
        if chunks or self.complete:
            piece = self.take(answer.piece_size)
            batch = answer.read(piece, last=self.complete and not chunks)
            if answer.failure is not None:
                self._break_off(answer.failure)
            if batch is not None:
                listener.received(batch)
            if self._taking is not None or answer.held > LARGE:
                self._check_place(answer.held)
        if (chunks or self.complete or self.failure is not None) and not self._silent:
            if chunks:
                self._schedule()
            else:
                self._end(self.failure)

    @property
    def _silent(self) -> bool:
        return self._paused or self._scheduled or self._listener is None or (self._taking is not None and not self._has_place)

    def _check_place(self, held: int) -> None:
        """A large event that is not complete needs a place; one that is complete needs none any more."""
        if held <= LARGE or self._listener is None:
            self._leave_place()
        elif self._taking is None and self._slots is not None:
            self._taking = asyncio.create_task(self._take_place(self._slots), name=f"place for an event of {self.worker}")

    def _leave_place(self) -> None:
        taking, self._taking = self._taking, None
        self._has_place = False
        if taking is not None:
            taking.cancel()

    async def _take_place(self, slots: Slots) -> None:
        """Cancelled when the event is complete, or when nobody waits for it any more."""
        seconds = self._form.limits.large_timeout
        signs = asyncio.create_task(self._give_signs(), name=f"signs of life of {self.worker}")
        try:
            async with slots.slot(self._workspace):
                signs.cancel()
                self._has_place = True
                self._schedule()
                await asyncio.sleep(seconds)
        finally:
            signs.cancel()
        self._taking = None
        self._break_off(WorkerBroke(self.worker, f"the rest of a large event has not come within {seconds:g} s"))
        self._end(self.failure)

    async def _give_signs(self) -> None:
        """The worker is not silent, but held."""
        while self._listener is not None:
            await asyncio.sleep(self._form.limits.sign_every)
            if self._listener is not None:
                self._listener.received(())

    def _open(self, listener: AnswerListener) -> Answer | None:
        """Tell that the head has arrived. None: nothing more can be told now."""
        if not self.status:
            self._end(self.failure)
            return None
        try:
            answer = self._answer = open_answer(self._form, self.status, self.headers)
        except HubError as error:
            self._end(error)
            return None
        self.headers = NO_HEADERS
        if isinstance(answer, ErrorAnswer):
            self.limit(self._form.limits.reply_timeout, f"HTTP {self.status}, and no end to it")
        elif not self.chunks:  # else they are the sign of life
            listener.received(())
            if self._silent:
                return None
        return answer

    def _is_pending(self) -> bool:
        opened = self._answer is not None or not self.status
        return bool(self.chunks or self.complete or self.failure is not None or not opened)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self.changed()

    def _break_off(self, failure: HubError) -> None:
        """What follows does not count."""
        self.close()
        self.failure = failure
        self.chunks.clear()

    def _end(self, error: HubError | None) -> None:
        listener = self._listener
        # A complete one has no connection any more.
        if not self.complete:
            self.close()
        self._forget()
        if listener is not None:
            listener.closed(error)

    def _forget(self) -> None:
        if self._taking is not None:
            self._leave_place()
        self._listener = self._answer = None
        self.chunks.clear()
