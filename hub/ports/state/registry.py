"""The registry port: leases with a time to live, and the feed of their changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

from rolecall.model.ids import Caller, WorkerId
from rolecall.model.worker import Beat, EndedLease, Health, LeaseProof, Offer, Registration, RegistryChange


class RegistryFeed(Protocol):
    """Changes as they happen. An empty batch if none came for `idle`. Ends after `stop`."""

    @property
    def revision(self) -> int:
        """Of the newest change that the reader has; of all workspaces: how many changes there have been."""

    def __aiter__(self) -> RegistryFeed: ...
    async def __anext__(self) -> Sequence[RegistryChange]: ...
    def stop(self) -> None: ...


class Registry(Protocol):
    """Leases with a TTL, in memory for fast reads and in the store for restarts.

    `live`, `get` and `roles` are plain calls, cheap enough for every request, and never return an expired lease. Their
    `Registration`s are shared objects: only the registry changes their health and lease, only the hub what it counts of their
    calls.
    """

    async def enrol(
        self,
        workspace: str,
        offer: Offer,
        *,
        owner: str = "",
        token: str = "",
        boot: str,
        ttl: timedelta,
        supersede: bool = False,
    ) -> Registration:
        """Take or renew a lease; durable on return. The same `boot` keeps its epoch and secret, so a repeat is harmless, and
        a changed offer replaces the old one. Another boot gets the next epoch (epochs of a name never repeat, not even after
        expiry) if the old lease has ended, names the same URL, or `supersede` is set; else InstanceConflict.
        A live lease of another `owner` is never taken over. A zero ttl never expires. `token`: the id of the owner's token.
        """

    async def beat(
        self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, *, token: str | None = None
    ) -> Registration:
        """Renew for the ttl of the enrolment. A suspect worker is ready again, and `was_away`. LeaseUnknown (never seen,
        expired, withdrawn), LeaseSuperseded (older epoch or other secret). May become durable up to a second later. `token`
        None: the lease keeps the one that it has.
        """

    async def withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> None:
        """End the lease. Errors as for `beat`; an old epoch changes nothing."""

    async def mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> None:
        """Set health. No effect if that epoch is not live, or has this health already. Only `undrain` and
        another boot end a DRAINING that was marked, for which `reason` is not empty: a beat gives none, and any enrolment ends
        it. SUSPECT does not replace FAILING, which only a mark, another boot, or reopening the store ends.
        """

    async def undrain(self, workspace: str, worker: WorkerId, epoch: int) -> None:
        """A worker that was marked as DRAINING is ready again, with the same epoch. No effect if that epoch is not live, or if
        its own beat said that it drains.
        """

    async def change_offer(self, workspace: str, worker: WorkerId, epoch: int, change: Callable[[Offer], Offer]) -> None:
        """Replace the offer by what `change`, a plain function, makes of it; durable on return. Neither the lease's end nor its
        health changes. No effect if that epoch is not live, or the offer stays equal. An enrolment of the same boot with a URL
        alone keeps what the offer has of the card.
        """

    def live(self, workspace: str, role: str | None = None) -> Sequence[Registration]:
        """All live leases, or a role's. The sequence must not be kept across an await."""

    def get(self, workspace: str, worker: WorkerId) -> Registration | None: ...

    def roles(self, workspace: str) -> Sequence[str]:
        """Roles with at least one live lease, sorted."""

    def everyone(self) -> Iterator[Sequence[Registration]]:
        """All live leases of all workspaces, role by role. A role's sequence stays the same object as long as the same leases
        are live and none of them ends sooner than it would have: a caller that has checked it need not check it again.
        """

    def revision(self) -> int:
        """Rises with each change of any workspace. Only for comparison within this process."""

    def __len__(self) -> int:
        """The number of leases, including those that are being taken, or have expired and are not swept yet."""

    def count_of(self, owner: Caller) -> int:
        """The number of leases that one principal enrolled. Constant time."""

    def tokens(self) -> Collection[str]:
        """The ids of the tokens of all leases. Not to be kept across an await."""

    def expire(self, token: str) -> None:
        """The leases with that token end now: from here on they count as expired. The next `sweep` stores that."""

    def hold(self, workspace: str, worker: WorkerId, epoch: int, lasts: timedelta) -> None:
        """Extend a lease to at least that long from now without a beat. No effect if it is not live."""

    def expires_in(self, registration: Registration) -> timedelta | None:
        """None: never."""

    def last_of(self, workspace: str, role: str) -> RegistryChange | None:
        """The newest change of a role, live or not, for the error when no worker serves it. None: never seen."""

    async def ended(self, workspace: str, worker: WorkerId) -> EndedLease | None:
        """The newest lease of that name that has ended, also because another boot took its place. It is kept as long as the
        feed has its end; in a durable store also as long as tasks are paused at that worker. None: not known.
        """

    async def sweep(self) -> Sequence[Registration]:
        """End the expired leases, write them to the feed, return them. Called about once a second."""

    def changes(self, workspace: str | None, *, after: int | None, idle: timedelta) -> RegistryFeed:
        """A workspace's changes with a revision above `after`, stored then live, no gap, no repeat; None: from now on.
        A workspace's revisions tell nothing of others. `workspace` None: all workspaces, only from now on. The newest
        10,000 of the hub are kept; an older `after` gets those that are left.
        """
