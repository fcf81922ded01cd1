"""Store addresses: which engine and which file they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.storage import FILE_NAME, open_engine
from rolecall.errors import HubError
from tests.helpers.clock import ManualClock


@pytest.mark.parametrize("url", ["postgres://db/hub", "mysql:", "", "memory:somewhere", "hub.db"])
def test_an_unknown_store_is_refused_with_a_list_of_the_known_ones(url: str, tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"Unknown store .*memory:.*sqlite:"):
        open_engine(url, data_dir=tmp_path, clock=ManualClock())


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:", f"home/{FILE_NAME}"),
        ("sqlite:other.db", "home/other.db"),
        ("sqlite://{tmp}/deep/down/own.db", "deep/down/own.db"),
    ],
)
async def test_a_sqlite_address_names_its_file(url: str, file: str, tmp_path: Path) -> None:
    async with open_engine(url.format(tmp=tmp_path), data_dir=tmp_path / "home", clock=ManualClock()) as engine:
        await engine.ping()
        assert (tmp_path / file).stat().st_size > 0


def test_a_relative_file_without_a_data_directory_is_refused() -> None:
    with pytest.raises(HubError, match="no data directory"):
        open_engine("sqlite:hub.db", clock=ManualClock())
