"""The limit on file descriptors: what fits below it, and what is told when it is reached."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource

import pytest

from hub.core.shares.descriptors import Descriptors
from hub.descriptors import Connections, fit, out_of_descriptors, raise_limit, watch
from tests.helpers.clock import ManualClock

USUAL = Connections(20_000, 12_000)


@pytest.mark.parametrize("limit", [0, 40_000, 1_048_576])
def test_what_fits_is_not_lowered(limit: int, caplog: pytest.LogCaptureFixture) -> None:
    assert fit(USUAL, limit) == USUAL
    assert not caplog.records


@pytest.mark.parametrize("limit", [64, 256, 1_024, 20_000, 33_000])
def test_what_does_not_fit_is_lowered_and_leaves_a_reserve(limit: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lower = fit(USUAL, limit)
    assert 0.74 * limit - 15 <= lower.descriptors <= limit - min(512, limit // 4)
    assert lower.workers >= lower.callers or lower.workers == USUAL.workers
    (logged,) = [record.__dict__ for record in caplog.records]
    assert (logged["event"], logged["limit"], logged["connections"]) == ("few_descriptors", limit, lower.callers)


@pytest.mark.parametrize(
    ("wanted", "lower"),
    [
        (Connections(20_000, 200), Connections(18_324, 200)),
        (Connections(100, 50_000), Connections(100, 19_378)),
        (Connections(30_000, 30_000), Connections(9_257, 9_769)),
    ],
)
def test_what_needs_little_is_not_lowered_because_of_the_other(wanted: Connections, lower: Connections) -> None:
    assert fit(wanted, 20_000) == lower
    assert lower.descriptors <= 20_000 - 512


def test_the_limit_of_the_process_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_024, 5_000))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: made.append((kind, limits)))
    assert raise_limit() == 5_000
    assert made == [(resource.RLIMIT_NOFILE, (5_000, 5_000))]


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, limits: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1_024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 1_024


@pytest.mark.parametrize(("current", "raised"), [(256, 10_240), (20_000, 20_000)])
def test_where_the_highest_is_refused_it_is_that_of_macos(current: int, raised: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_much(kind: int, limits: tuple[int, int]) -> None:
        if not 0 <= limits[0] <= 24_576:
            raise ValueError("invalid argument")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (current, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse_much)
    assert raise_limit() == raised


def test_no_limit_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert raise_limit() == 0


def test_a_lack_is_shown_for_a_while_counted_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    descriptors = Descriptors(100, monotonic=clock.monotonic)
    assert descriptors.enough
    for pause in (0, 1, 30, 28):
        clock.advance(pause)
        descriptors.none_left("a call")
        assert not descriptors.enough
    assert len(caplog.records) == 1
    clock.advance(9)
    assert not descriptors.enough
    clock.advance(2)
    assert descriptors.enough
    descriptors.none_left("a call")
    assert len(caplog.records) == 2
    assert (descriptors.use.thing, descriptors.use.limit, descriptors.use.refused) == ("file descriptors", 100, 5)


async def test_the_watch_notices_when_none_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def none(path: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    for opens, enough in ((os.open, True), (none, False)):
        descriptors = Descriptors()
        with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
            patch.setattr(os, "open", opens)
            running = asyncio.create_task(watch(descriptors))
            await asyncio.sleep(0.01)
            running.cancel()
        assert (descriptors.enough, descriptors.used > 0) == (enough, enough)


def test_only_a_lack_of_descriptors_is_one() -> None:
    assert out_of_descriptors(OSError(errno.EMFILE, "x")) and out_of_descriptors(OSError(errno.ENFILE, "x"))
    assert not out_of_descriptors(OSError(errno.ECONNREFUSED, "x")) and not out_of_descriptors(None)
