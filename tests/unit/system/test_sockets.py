"""Sockets that listen."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from rolecall.system import sockets
from rolecall.system.sockets import bound_socket


@pytest.mark.parametrize(("platform", "shared"), [("linux", True), ("darwin", True), ("win32", False)])
def test_a_port_that_connections_have_left_is_free_and_on_windows_it_is_not_shared(
    platform: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "sys", SimpleNamespace(platform=platform))
    with bound_socket("127.0.0.1", 0) as bound:
        assert bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)) == shared
        assert bound.proto == socket.IPPROTO_TCP


def test_all_addresses_are_those_of_both_versions() -> None:
    with bound_socket("::", 0) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        for host in ("::1", "127.0.0.1"):
            socket.create_connection((host, port), 2).close()
