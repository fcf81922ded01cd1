"""The settings, as the limits that the rooms take."""

from __future__ import annotations

from datetime import timedelta

from hub.core.files.files import FileLimits
from hub.core.hub import HubLimits
from hub.core.shares.table import ShareLimits
from hub.core.tasks.trees import TreeLimits
from hub.outbound.answers import AnswerLimits
from hub.outbound.client import ClientLimits
from hub.settings.model import Settings


def hub_limits(settings: Settings, file_addresses: str) -> HubLimits:
    """`file_addresses`: what the URLs of the hub's files begin with."""
    grace = timedelta(seconds=settings.file_grace)
    return HubLimits(
        keep_alive=timedelta(seconds=settings.keep_alive),
        retention=timedelta(seconds=settings.retention),
        keep_summaries=timedelta(seconds=settings.keep_summaries),
        max_pause=timedelta(seconds=settings.max_pause),
        same_message=timedelta(seconds=settings.same_message),
        keep_usage=timedelta(seconds=settings.keep_usage),
        tree=TreeLimits(settings.max_call_depth, settings.max_tree_calls),
        files=FileLimits(settings.max_file, grace, file_addresses),
    )


def share_limits(settings: Settings, worker_connections: int) -> ShareLimits:
    per_workspace = _part(settings.max_worker_connections_per_workspace, settings, worker_connections)
    return ShareLimits(
        open_tasks=settings.max_open_tasks,
        open_tasks_per_workspace=settings.max_open_tasks_per_workspace,
        streams=settings.max_streams,
        streams_per_workspace=settings.max_streams_per_workspace,
        waiting=settings.max_waiting,
        waiting_per_workspace=settings.max_waiting_per_workspace,
        message_memory=settings.max_message_memory,
        message_memory_per_workspace=settings.max_message_memory_per_workspace,
        worker_connections=worker_connections,
        worker_connections_per_workspace=per_workspace,
        at_once=settings.max_at_once,
        disk=settings.max_disk,
        disk_per_workspace=settings.max_disk_per_workspace,
        transfers=settings.max_transfers,
        transfers_per_workspace=settings.max_transfers_per_workspace,
        unsent=settings.max_unsent,
        unsent_per_workspace=settings.max_unsent_per_workspace,
    )


def answer_limits(settings: Settings) -> AnswerLimits:
    """A worker's whole task may be as large as the log that it is compared with."""
    return AnswerLimits(max_answer=settings.max_log, max_event=settings.max_event)


def worker_limits(settings: Settings, worker_connections: int) -> ClientLimits:
    return ClientLimits(
        per_origin=_part(settings.max_connections_per_worker, settings, worker_connections),
        overall=worker_connections,
        connect=settings.connect_timeout,
    )


def _part(part: int, settings: Settings, worker_connections: int) -> int:
    """A part of the connections to workers, where fewer fit than the setting says."""
    return max(1, part * worker_connections // settings.max_worker_connections)
