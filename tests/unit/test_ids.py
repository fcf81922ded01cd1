"""Which hosts only this machine can reach."""

from __future__ import annotations

import pytest

from rolecall.model.ids import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_is_known_by_its_address_or_name(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "notlocalhost", "10.0.0.1", "::", "0.0.0.0", "fd00::1"])
def test_other_machines_can_reach_any_other_address(host: str) -> None:
    assert not is_loopback(host)
