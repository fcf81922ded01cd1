"""The one table of what is scarce: SECURITY.md says of each thing its share, its setting and what a refused caller sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hub.core.observe import ShareUse
from hub.core.shares.answers import AnswerShare
from hub.core.shares.descriptors import Descriptors
from hub.core.shares.rotation import Rotation
from hub.core.shares.share import WorkspaceShare
from hub.core.shares.slots import WorkspaceSlots

_UNSENT = "bytes of answers that clients have not taken"
_LISTS = 2
"""A thread each while they read."""
_FEED_PAGES = 2
_PROBES_AT_ONCE = 200
"""Fewer than the connections to one worker that are not for streams."""
_LOOKUPS_AT_ONCE = 16
_CARDS_AT_ONCE = 50
_LARGE_EVENTS = 16
_PIECES_AT_ONCE = 4
"""As many as the store has threads for them."""
DELIVERIES_AT_ONCE = 50
DELIVERIES_PER_WORKSPACE = 25


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """How much there is of each thing, and how much of it one workspace may hold. The settings explain them."""

    open_tasks: int = 100_000
    open_tasks_per_workspace: int = 50_000
    streams: int = 10_000
    streams_per_workspace: int = 5_000
    message_memory: int = 256 * 1024 * 1024
    message_memory_per_workspace: int = 128 * 1024 * 1024
    waiting: int = 8_000
    waiting_per_workspace: int = 4_000
    worker_connections: int = 12_000
    worker_connections_per_workspace: int = 6_000
    at_once: int = 2_000
    disk: int = 200 * 1024**3
    disk_per_workspace: int = 100 * 1024**3
    transfers: int = 256
    transfers_per_workspace: int = 128
    unsent: int = 64 * 1024 * 1024
    unsent_per_workspace: int = 32 * 1024 * 1024


class Shares:
    """First what is held, then what is given back at once."""

    def __init__(self, limits: ShareLimits | None = None, descriptors: Descriptors | None = None) -> None:
        limits = limits or ShareLimits()

        self.open_tasks = WorkspaceShare("open tasks", "max_open_tasks", limits.open_tasks, limits.open_tasks_per_workspace)
        """Calls that have not ended."""
        self.messages = WorkspaceShare(
            "bytes of messages", "max_message_memory", limits.message_memory, limits.message_memory_per_workspace
        )
        """Of large requests, and of the messages that wait for their worker's answer."""
        self.streams = WorkspaceShare("open streams", "max_streams", limits.streams, limits.streams_per_workspace)
        """Answers that are streamed to callers."""
        self.feeds = WorkspaceShare("open feeds", "max_streams", limits.streams, limits.streams_per_workspace)
        """Of the registry, and of tasks."""
        self.waiting = WorkspaceShare("waiting calls", "max_waiting", limits.waiting, limits.waiting_per_workspace)
        """Calls that wait for a worker."""
        self.worker_connections = WorkspaceShare(
            "connections to workers",
            "max_worker_connections",
            limits.worker_connections,
            limits.worker_connections_per_workspace,
        )
        """Those that a call has or opens: an idle one belongs to nobody."""
        self.deliveries = WorkspaceShare("deliveries to webhooks", "", DELIVERIES_AT_ONCE, DELIVERIES_PER_WORKSPACE)
        """They wait, and are not refused."""
        self.disk = WorkspaceShare("bytes on disk", "max_disk", limits.disk, limits.disk_per_workspace)
        """Of the tasks, messages, logs and files that are stored."""
        self.transfers = WorkspaceShare(
            "uploads and downloads", "max_transfers", limits.transfers, limits.transfers_per_workspace
        )
        """Of files, each with a few hundred KiB of memory."""
        self.unsent = AnswerShare(_UNSENT, "max_unsent", limits.unsent, limits.unsent_per_workspace)
        """Of large answers that are being made, or wait for their clients."""
        self.descriptors = descriptors or Descriptors()
        """Of the process. The limits on connections leave a reserve of them."""

        self.calls = Rotation("starts of calls")
        """A2A calls; several of them start per iteration of the loop."""
        self.starts = Rotation("starts of requests")
        """Requests other than A2A calls; a few of them start per iteration of the loop."""
        self.folding = WorkspaceSlots("reads of long tasks", 1, queue=limits.at_once, setting="max_at_once")
        """The thread that folds long logs."""
        self.documents = WorkspaceSlots("cards being made", 1, queue=limits.at_once, setting="max_at_once")
        """Cards and catalogs are made in pieces on the loop."""
        self.lists = WorkspaceSlots("lists of tasks", _LISTS, queue=limits.at_once, setting="max_at_once")
        self.feed_pages = WorkspaceSlots("pages of task feeds", _FEED_PAGES, queue=0, setting="")
        """Stored changes, for readers that lag. A page takes less than a millisecond."""
        self.probes = WorkspaceSlots("questions to silent workers", _PROBES_AT_ONCE, queue=0, setting="")
        self.card_reads = WorkspaceSlots(
            "reads of cards", _CARDS_AT_ONCE, queue=0, setting="", per_workspace=_CARDS_AT_ONCE // 2
        )
        """Of agents that enrolled with a URL alone, and of those that are configured."""
        self.large_events = WorkspaceSlots(
            "large events of workers", _LARGE_EVENTS, queue=0, setting="", per_workspace=_LARGE_EVENTS // 2
        )
        """Events above 1 MiB on their way to the hub. The others are held at their workers."""
        self.file_pieces = WorkspaceSlots(
            "pieces of files", _PIECES_AT_ONCE, queue=0, setting="", per_workspace=_PIECES_AT_ONCE // 2
        )
        """Threads that read or write one."""
        self.lookups = WorkspaceSlots(
            "lookups of names",
            _LOOKUPS_AT_ONCE,
            queue=limits.at_once,
            setting="max_at_once",
            per_workspace=_LOOKUPS_AT_ONCE // 2,
        )
        """Threads that resolve names of workers and webhooks."""

    def __iter__(self) -> Iterator[WorkspaceShare | WorkspaceSlots | Rotation | Descriptors]:
        yield from vars(self).values()

    def uses(self) -> Iterator[ShareUse]:
        return (share.use for share in self)
