"""The addresses of workers that have gone with an earlier console, and that the hub still has under their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from urllib.parse import urlsplit

from rolecall.cli.console.programs import Program
from rolecall.system.sockets import bound_socket
from worker_sdk import AgentInfo


@contextmanager
def old_addresses_refused(before: Sequence[AgentInfo], programs: Sequence[Program]) -> Iterator[None]:
    """While it is open, nobody gets the ports of these workers. Without tokens, a hub gives a name to another process only if
    the address of the one before refuses connections: a new worker with the port of another's old one would be taken for that.
    """
    with ExitStack() as stack:
        for agent in before:
            if any(program.is_worker(agent.name) and _takes_any_port(program) for program in programs):
                _hold(agent.url, stack)
        yield


def _takes_any_port(program: Program) -> bool:
    """Another one may need the port itself."""
    return program.enrols and "PORT" not in program.env


def _hold(url: str, stack: ExitStack) -> None:
    """Bind the port without listening there."""
    try:
        parts = urlsplit(url)
        address, port = ip_address(parts.hostname or ""), parts.port
    except ValueError:
        return  # it has a name: that of another machine
    if port is None:
        return
    try:
        stack.enter_context(bound_socket(str(address), port))
    except OSError:
        pass  # it is another machine's, or still in use
