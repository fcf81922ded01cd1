"""Reads a history and lists broken promises. An empty list: all were kept."""

from __future__ import annotations

from collections.abc import Iterator

from tests.acceptance.faults.history import History, Record
from tests.helpers.client import texts

_TERMINAL = ("completed", "failed", "canceled", "rejected")


def problems_in(history: History) -> list[str]:
    problems = [f"{record.message_id} ({record.role}): {wrong}" for record in history.records for wrong in _of_call(record)]
    problems += [f"{message}: executed {count} times" for message, count in history.run_counts.items() if count > 1]
    return problems


def _of_call(record: Record) -> Iterator[str]:
    if record.refusal:
        if record.frames:
            yield f"refused with {record.refusal} after events had come"
        return
    if not record.ended:
        yield "it never ended"
        return
    if not record.answer:
        yield f"the hub does not know task {record.task or 'without an id'}"
        return
    if record.state not in _TERMINAL:
        yield f"ended in state {record.state!r}"
    stored = texts(record.answer)
    if record.state == "completed" and stored != record.expected:
        yield f"completed with {_difference(stored, record.expected)}"
    if record.state != "completed" and stored != record.expected[: len(stored)]:
        yield f"{record.state} with {_difference(stored, record.expected)}"
    if record.streamed:
        yield from _of_stream(record, stored)


def _of_stream(record: Record, stored: list[str]) -> Iterator[str]:
    cursors = [cursor for cursor, _ in record.frames]
    if cursors != list(range(1, len(cursors) + 1)):
        yield f"cursors are not 1, 2, 3, …: {cursors}"
    kinds = [event["kind"] for _, event in record.frames]
    if kinds[:1] != ["task"] or "task" in kinds[1:]:
        yield f"a stream is one Task and then updates, not {kinds[:5]}"
    if record.chunks != stored:
        yield f"the client received events that the log does not hold: {_difference(record.chunks, stored)}"
    final_events = [event for _, event in record.frames if event.get("final")]
    if len(final_events) != 1 or final_events[0] is not record.frames[-1][1]:
        yield f"{len(final_events)} final events, or an event after one"


def _difference(got: list[str], expected: list[str]) -> str:
    at = next(
        (n for n, pair in enumerate(zip(got, expected, strict=False)) if pair[0] != pair[1]), min(len(got), len(expected))
    )
    return f"{len(got)} chunks of {len(expected)}, different from chunk {at} on: {got[at : at + 3]} for {expected[at : at + 3]}"
