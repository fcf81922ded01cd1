"""Runs in a network namespace of its own, where this machine also has an address that is not loopback. What reaches the hub
there comes from another machine, as far as the hub can tell.

`python -m tests.acceptance.private_network FOLDER SERVER`: starts a hub under that server on all addresses, and prints what it
answers on each.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import httpx

from tests.helpers.processes import Process, server_argv, status_of, wait_for

OUTSIDE = "192.0.2.1"
"""An address for documentation: nobody has it."""
PORT = 8420
_PATHS = ("/livez", "/registry/agents", "/.well-known/agent-card.json")
_SET_FLAGS, _SET_ADDRESS, _UP = 0x8914, 0x8916, 0x1


def namespace_command() -> list[str] | None:
    """The command that enters such a namespace; None: this user has no right to."""
    command = shutil.which("unshare")
    for options in (["-n"], ["-rn"]):
        if (
            command is not None
            and subprocess.run([command, *options, "true"], capture_output=True, check=False).returncode == 0
        ):
            return [command, *options]
    return None


def main(folder: Path, server: str) -> None:
    _add_address(OUTSIDE)
    env = {"ROLECALL_HOST": "127.0.0.1", "ROLECALL_DATA_DIR": str(folder), "ROLECALL_PORT": str(PORT)}
    with Process(server_argv(server, PORT, "0.0.0.0"), log=folder / "hub.log", env=env) as hub:
        wait_for(lambda: status_of(f"http://127.0.0.1:{PORT}/readyz") == 200, 15)
        answers = {host: {path: _asked(host, path) for path in _PATHS} for host in ("127.0.0.1", OUTSIDE)}
        hub.stop(10)
    sys.stdout.write(json.dumps(answers))


def _asked(host: str, path: str) -> tuple[int, str]:
    answer = httpx.get(f"http://{host}:{PORT}{path}", headers={"Host": "localhost"}, trust_env=False, timeout=5)
    return answer.status_code, answer.text


def _add_address(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, value in ((b"lo", "127.0.0.1"), (b"lo:1", address)):
            request = struct.pack("16sHH4s8x", name, socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(control, _SET_ADDRESS, request)
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH", name, _UP))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
