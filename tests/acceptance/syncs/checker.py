"""What a record of calls proves: that what was sent had been synced before, and what a power cut would have left."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.acceptance.syncs.record import NEVER, Call, Kind
from tests.acceptance.syncs.words import WORD


def said_too_early(calls: Sequence[Call]) -> list[str]:
    """Words that left the process before the write that holds them had been synced: write < sync < send, for each word.

    A sync counts for a write that had ended when the sync began, and for a send that began when it had ended.
    """
    written = _first_written(calls)
    syncs = [call for call in calls if call.kind is Kind.SYNC and call.result == 0 and call.ended < NEVER]
    found = []
    for word, sent in first_sent(calls).items():
        write = written.get(word)
        if write is None:
            found.append(f"{word} was sent and never written")
        elif not any(sync.file == write.file and write.ended < sync.begun and sync.ended < sent for sync in syncs):
            found.append(f"{word} was sent before it was synced")
    return found


def first_sent(calls: Sequence[Call]) -> dict[str, int]:
    """When the call began with which a word's first byte left for anybody. What was sent is read as a whole, connection by
    connection: a word may come in two pieces.
    """
    lines: dict[bytes, list[Call]] = {}
    for call in calls:
        if call.kind is Kind.SEND:
            lines.setdefault(call.file, []).append(call)
    sent: dict[str, int] = {}
    for line in lines.values():
        starts, text = [0], bytearray()
        for call in line:
            text += call.effect
            starts.append(len(text))
        for match in WORD.finditer(text):
            word, begun = match.group().decode(), line[bisect_right(starts, match.start()) - 1].begun
            sent[word] = min(begun, sent.get(word, NEVER))
    return sent


def _first_written(calls: Iterable[Call]) -> dict[str, Call]:
    """The write that was over first, of those that hold a word."""
    written: dict[str, Call] = {}
    for call in sorted((call for call in calls if call.kind is Kind.WRITE), key=lambda call: call.ended):
        for match in WORD.finditer(call.data):
            written.setdefault(match.group().decode(), call)
    return written


def replayed(calls: Iterable[Call]) -> dict[str, bytes]:
    """Files as these writes make them."""
    files: dict[str, bytearray] = {}
    for call in calls:
        if call.kind not in (Kind.WRITE, Kind.TRUNCATE):
            continue
        file = files.setdefault(Path(call.file.decode()).name, bytearray())
        end = call.place + len(call.effect)
        file.extend(bytes(max(0, end - len(file))))
        if call.kind is Kind.TRUNCATE:
            del file[call.place :]
        file[call.place : end] = call.effect
    return {name: bytes(file) for name, file in files.items()}


def after_power_cut(calls: Sequence[Call], at: int, rng: random.Random | None = None) -> dict[str, bytes]:
    """What is on the disk if the power fails just before number `at`: all that was synced, and of the rest nothing, or
    some of it as the dice will have it.
    """
    return replayed(_surviving([call for call in calls if call.begun < at], at, rng))


def _surviving(calls: Sequence[Call], at: int, rng: random.Random | None) -> Iterator[Call]:
    synced: dict[bytes, int] = {}
    for call in calls:
        if call.kind is Kind.SYNC and call.ended < at and call.result == 0:
            synced[call.file] = max(call.begun, synced.get(call.file, 0))
    for call in calls:
        if call.ended < synced.get(call.file, 0) or (rng is not None and rng.random() < 0.5):
            yield call
