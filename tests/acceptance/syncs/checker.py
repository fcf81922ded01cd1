"""Checks a record of calls: was everything synced before it was sent, and what would a power failure have left?"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.acceptance.syncs.record import NEVER, Call, Kind
from tests.acceptance.syncs.words import WORD


def sent_before_sync(calls: Sequence[Call]) -> dict[str, str]:
    """Words that were sent before the write that holds them was synced, and what is wrong. For each word: write < sync < send.

    A sync counts only for a write that ended before the sync began, and for a send that began after the sync ended.
    """
    written = _first_written(calls)
    sync_calls = [call for call in calls if call.kind is Kind.SYNC and call.result == 0 and call.ended < NEVER]
    problems = {}
    for word, sent in first_sent(calls).items():
        write = written.get(word)
        if write is None:
            problems[word] = "never written"
        elif not any(sync.file == write.file and write.ended < sync.begun and sync.ended < sent for sync in sync_calls):
            problems[word] = "sent before it was synced"
    return problems


def first_sent(calls: Sequence[Call]) -> dict[str, int]:
    """For each word, when the call began that sent its first byte. The bytes of a connection are joined, because a word may be
    split between two calls.
    """
    by_peer: dict[bytes, list[Call]] = {}
    for call in calls:
        if call.kind is Kind.SEND:
            by_peer.setdefault(call.file, []).append(call)
    sent: dict[str, int] = {}
    for sends in by_peer.values():
        starts, text = [0], bytearray()
        for call in sends:
            text += call.effect
            starts.append(len(text))
        for match in WORD.finditer(text):
            word, begun = match.group().decode(), sends[bisect_right(starts, match.start()) - 1].begun
            sent[word] = min(begun, sent.get(word, NEVER))
    return sent


def _first_written(calls: Iterable[Call]) -> dict[str, Call]:
    """For each word, the first completed write that holds it."""
    written: dict[str, Call] = {}
    for call in sorted((call for call in calls if call.kind is Kind.WRITE), key=lambda call: call.ended):
        for match in WORD.finditer(call.data):
            written.setdefault(match.group().decode(), call)
    return written


def files_after(calls: Iterable[Call]) -> dict[str, bytes]:
    """The file contents that these writes produce."""
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


def files_after_failure(calls: Sequence[Call], at: int, rng: random.Random | None = None) -> dict[str, bytes]:
    """The files on disk if the power fails just before number `at`: everything that was synced, and of the rest nothing, or
    a random part if `rng` is given.
    """
    return files_after(_kept_calls([call for call in calls if call.begun < at], at, rng))


def _kept_calls(calls: Sequence[Call], at: int, rng: random.Random | None) -> Iterator[Call]:
    synced: dict[bytes, int] = {}
    for call in calls:
        if call.kind is Kind.SYNC and call.ended < at and call.result == 0:
            synced[call.file] = max(call.begun, synced.get(call.file, 0))
    for call in calls:
        if call.ended < synced.get(call.file, 0) or (rng is not None and rng.random() < 0.5):
            yield call
