"""The shares port: what is scarce in the hub, divided among workspaces."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Share(Protocol):
    """Something that its user keeps for as long as it wants: a stream, a connection, bytes in memory.

    A workspace gets at most its cap. When the whole is used up, whoever asks is refused, and from then on a workspace gets
    nothing above an equal share while another one that was refused may come back. Nothing that is held is taken away.
    """

    def take(self, workspace: str, amount: int = 1) -> None:
        """Overloaded, with the setting that bounds it. Each success must be followed by `give_back` of the same amount."""

    def check(self, workspace: str) -> None:
        """Overloaded, if one of it could not be taken now."""

    def fill(self, workspace: str, amount: int = 1) -> None:
        """Count what is there already, even above the limits."""

    def give_back(self, workspace: str, amount: int = 1) -> None: ...


class Unlimited:
    """A Share without limits, which counts nothing."""

    def take(self, workspace: str, amount: int = 1) -> None: ...
    def check(self, workspace: str) -> None: ...
    def fill(self, workspace: str, amount: int = 1) -> None: ...
    def give_back(self, workspace: str, amount: int = 1) -> None: ...


class Descriptors(Protocol):
    """The file descriptors of the hub's process."""

    def none_left(self, where: str) -> None:
        """The system had none for that, or no room for it. It is logged, and shown to operators for a while."""


class Slots(Protocol):
    """Something that its user gives back at once: a thread, a database connection, a place among running requests.

    Free slots go to the waiting workspaces in rotation, and within one first come, first served.
    """

    def slot(self, workspace: str) -> AbstractAsyncContextManager[None]:
        """Wait for a slot, and have it within the block. Overloaded: too many of that workspace wait already."""
