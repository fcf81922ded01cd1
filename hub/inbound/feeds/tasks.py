"""The feed of tasks over HTTP. docs/reference/http.md describes it."""

from __future__ import annotations

from datetime import timedelta

from msgspec import UNSET
from quart import Quart, Response

from hub.core.tasks.feeds import ChangeQuery, TaskFeeds, Words
from hub.inbound.api.answers import TaskChangeItem
from hub.inbound.api.operation import EVENTS, operation
from hub.inbound.api.requests import TaskFeedQuery
from hub.inbound.api.tasks import task_item
from hub.inbound.feeds.stream import Feeds
from hub.inbound.middleware.authentication import caller
from rolecall.errors import HubError, Overloaded
from rolecall.model.task import Question, TaskChange
from rolecall.protocol.sse import write_frame
from rolecall.protocol.text.jsontext import dump

_FRAMES = 256


def add_task_feed(app: Quart, task_feeds: TaskFeeds, feeds: Feeds, *, keep_alive: timedelta) -> None:
    frames = _SharedFrames(task_feeds)

    @app.get("/registry/tasks/events")
    @operation("What changes in the caller's tasks, as SSE.", Overloaded, answers={200: {EVENTS: TaskChangeItem}})
    async def task_feed(query: TaskFeedQuery) -> Response:
        wanted = ChangeQuery(query.resume_after, query.role, query.state)
        return feeds.answer(lambda: task_feeds.open(caller(), wanted, idle=keep_alive), frames.of)


class _SharedFrames:
    """What is sent of each change. Several readers watch the same tasks, so the newest frames are kept."""

    def __init__(self, task_feeds: TaskFeeds) -> None:
        self._task_feeds = task_feeds
        self._kept: dict[int, bytes] = {}

    async def of(self, change: TaskChange) -> bytes:
        known = self._kept.get(change.revision)
        if known is not None:
            return known
        try:
            frame = self._kept[change.revision] = _frame(change, await self._task_feeds.words(change))
        except HubError:
            return _frame(change, Words())  # the change itself is not lost
        if len(self._kept) > _FRAMES:
            del self._kept[next(iter(self._kept))]
        return frame


def _frame(change: TaskChange, words: Words) -> bytes:
    item = TaskChangeItem(
        revision=change.revision,
        event=change.kind,
        task=task_item(change, (), Question(words.question) if words.question is not None else None),
        parent=change.parent,
        holder=change.caller.name,
        reason=UNSET if words.reason is None else words.reason,
        detail=UNSET if words.detail is None else words.detail,
    )
    return write_frame(dump(item), cursor=change.revision, event=change.kind)
