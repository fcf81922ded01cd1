"""An error at the request edge lets go of the request that it refuses."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from hub.inbound.middleware.refusal import translate
from rolecall.errors import HubError, InvalidParams, NoLiveWorker


class Body:
    """Something large that the frames of a failed call refer to."""


class Holder:
    """Holds an error that was raised while it was in use, as a call does that others wait for."""

    error: HubError | None = None


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _refused(freed: list[weakref.ref[Body]], *, cause: bool) -> None:
    body, holder = Body(), Holder()
    freed.append(weakref.ref(body))
    try:
        if cause:
            try:
                raise InvalidParams
            except InvalidParams as error:
                raise NoLiveWorker("echo") from error
        raise NoLiveWorker("echo")
    except HubError as error:
        holder.error = error
        raise


@pytest.mark.parametrize("cause", [False, True])
def test_a_refused_call_is_freed_without_the_garbage_collector(cause: bool) -> None:
    freed: list[weakref.ref[Body]] = []
    try:
        _refused(freed, cause=cause)
    except HubError as error:
        assert translate(error).reason == "NO_LIVE_WORKER"
    assert freed[0]() is None


def test_without_it_the_call_would_stay() -> None:
    freed: list[weakref.ref[Body]] = []
    with pytest.raises(NoLiveWorker):
        _refused(freed, cause=False)
    assert freed[0]() is not None
