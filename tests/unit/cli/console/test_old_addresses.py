"""Ports of workers that have gone with an earlier console."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rolecall.cli.console.old_addresses import old_addresses_refused
from rolecall.cli.console.programs import Program
from worker_sdk import AgentInfo

WORKER = Program("shouter:1", (), Path(), {}, instance="shouter:1", enrols=True)


def left_at(url: str, name: str = "shouter:1") -> list[AgentInfo]:
    return [AgentInfo(name, *name.split(":", 1), url=url)]


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def is_free(port: int) -> bool:
    """Whether the system would give it to somebody."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_nobody_gets_them_and_connections_are_refused(port: int) -> None:
    with old_addresses_refused(left_at(f"http://127.0.0.1:{port}/"), [WORKER]):
        assert (is_free(port), answers(port)) == (False, False)
    assert is_free(port)


def test_a_worker_that_is_still_there_keeps_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with old_addresses_refused(left_at(f"http://127.0.0.1:{port}/"), [WORKER]):
            assert answers(port)


@pytest.mark.parametrize(
    "program",
    [
        Program("shouter:1", (), Path(), {"PORT": "9"}, instance="shouter:1", enrols=True),
        Program("shouter:1", (), Path(), {}, instance="shouter:1"),
        Program("other:1", (), Path(), {}, instance="other:1", enrols=True),
    ],
)
def test_a_program_that_may_need_the_port_itself_can_have_it(program: Program, port: int) -> None:
    with old_addresses_refused(left_at(f"http://127.0.0.1:{port}/"), [program]):
        assert is_free(port)


@pytest.mark.parametrize(
    "url", ["http://agents.example.com:9/", "http://192.0.2.7:9/", "http://127.0.0.1/", "no url", "http://[::"]
)
def test_what_is_not_on_this_machine_or_no_address_is_passed_over(url: str) -> None:
    with old_addresses_refused(left_at(url), [WORKER]):
        pass
