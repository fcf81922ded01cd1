"""A hub without tokens, and one that requires tokens: the docs must work with both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hub.identity.tokens import FILE_NAME, new
from rolecall.model.principal import Kind, Principal
from tests.helpers.processes import HubProcess, is_live, start_hub


@dataclass
class ReachableHub:
    hub: HubProcess
    caller: str | None = None
    worker: str | None = None

    @property
    def url(self) -> str:
        return self.hub.url

    @property
    def for_callers(self) -> dict[str, str]:
        """Environment variables for a caller."""
        return _environment(self.url, self.caller)

    @property
    def for_workers(self) -> dict[str, str]:
        return _environment(self.url, self.worker)

    def shows(self, name: str) -> bool:
        """Whether `role:instance` is live."""
        return is_live(self.url, name, self.caller)


@contextmanager
def _open(folder: Path) -> Iterator[ReachableHub]:
    with start_hub(folder) as hub:
        yield ReachableHub(hub)


@contextmanager
def _locked(folder: Path) -> Iterator[ReachableHub]:
    holders = Principal("anna", Kind.CLIENT), Principal("farm", Kind.WORKER, roles=("*",))
    caller, worker = (new(folder / FILE_NAME, holder, lasts=None, now=0.0)[0] for holder in holders)
    with start_hub(folder) as hub:
        yield ReachableHub(hub, caller, worker)


def reachable_hubs() -> list[object]:
    """For a fixture's `params`: each starts a hub in a folder."""
    hubs: dict[str, Callable[[Path], AbstractContextManager[ReachableHub]]] = {"without tokens": _open, "with tokens": _locked}
    return [pytest.param(opener, id=name) for name, opener in hubs.items()]


def _environment(url: str, token: str | None) -> dict[str, str]:
    return {"ROLECALL_HUB": url, **({"ROLECALL_TOKEN": token} if token is not None else {})}
