"""The one table of what is scarce: SECURITY.md says of each thing its share, its setting and what a refused caller sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hub.core.shares.rotation import Rotation
from hub.core.shares.share import WorkspaceShare
from hub.core.shares.slots import WorkspaceSlots
from rolecall.model.share import ShareUse


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """How much there is of each thing, and how much of it one workspace may hold. The settings explain them."""

    open_tasks: int = 100_000
    open_tasks_per_workspace: int = 50_000
    streams: int = 10_000
    streams_per_workspace: int = 5_000
    message_memory: int = 256 * 1024 * 1024
    message_memory_per_workspace: int = 128 * 1024 * 1024
    waiting: int = 10_000
    waiting_per_workspace: int = 5_000
    at_once: int = 2_000


class Shares:
    """`open_tasks`: calls that have not ended. `messages`: bytes of large requests and of the messages that wait for their
    worker's answer. `streams`: answers that are streamed to callers. `feeds`: open feeds of the registry. `waiting`: calls
    that wait for a worker. `starts`: requests other than A2A calls; a few of them start per iteration of the loop.
    `folding`: the thread that folds long logs.
    """

    def __init__(self, limits: ShareLimits | None = None) -> None:
        limits = limits or ShareLimits()
        self.open_tasks = WorkspaceShare("open tasks", "max_open_tasks", limits.open_tasks, limits.open_tasks_per_workspace)
        self.messages = WorkspaceShare(
            "bytes of messages", "max_message_memory", limits.message_memory, limits.message_memory_per_workspace
        )
        self.streams = WorkspaceShare("open streams", "max_streams", limits.streams, limits.streams_per_workspace)
        self.feeds = WorkspaceShare("open feeds", "max_streams", limits.streams, limits.streams_per_workspace)
        self.waiting = WorkspaceShare("waiting calls", "max_waiting", limits.waiting, limits.waiting_per_workspace)
        self.starts = Rotation("starts of requests")
        self.folding = WorkspaceSlots("reads of long tasks", 1, queue=limits.at_once, setting="max_at_once")

    def __iter__(self) -> Iterator[WorkspaceShare | WorkspaceSlots | Rotation]:
        yield from (self.open_tasks, self.messages, self.streams, self.feeds, self.waiting, self.starts, self.folding)

    def uses(self) -> Iterator[ShareUse]:
        return (share.use for share in self)
