"""Record a real run in a terminal as a picture that moves: docs/recording.svg. `scripts/record.py` starts a hub of its own.

No library does it: the usual recorders need a server to draw, or write video.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "docs" / "recording.svg"
BIN = Path(sys.executable).parent
PORT = 18633
_COLUMN, _LINE, _MARGIN = 8.4, 20, 16
_PER_KEY = 0.04
"""Seconds for each character of a command."""
_HOLD = 1.2
"""Seconds between two commands."""


class Piece(NamedTuple):
    at: float
    """Seconds from the beginning."""
    text: str
    kind: str


class Recording:
    def __init__(self, env: dict[str, str]) -> None:
        self.pieces: list[Piece] = []
        self._env = env
        self._now = 0.5

    def note(self, text: str) -> None:
        self.pieces.append(Piece(self._now, f"# {text}\n", "note"))
        self._now += _HOLD

    def run(self, command: str, *, kill: tuple[float, Sequence[int]] | None = None) -> None:
        """Type and run a command. `kill`: processes that are ended while it runs, and after how many seconds."""
        self.pieces.append(Piece(self._now, "$ ", "prompt"))
        for character in f"{command}\n":
            self._now += _PER_KEY
            self.pieces.append(Piece(self._now, character, "typed"))
        began, base = time.monotonic(), self._now
        main, other_end = pty.openpty()
        process = subprocess.Popen(
            command, shell=True, stdin=other_end, stdout=other_end, stderr=other_end, env={**self._env, "NO_COLOR": "1"}
        )
        os.close(other_end)
        while True:
            passed = time.monotonic() - began
            if kill is not None and passed > kill[0]:
                for pid in kill[1]:
                    os.kill(pid, signal.SIGKILL)
                self.pieces.append(Piece(base + passed, "\n# kill -9 of the hub\n", "note"))
                kill = None
            if select.select([main], [], [], 0.02)[0]:
                try:
                    data = os.read(main, 4096)
                except OSError:
                    break
                text = data.decode("utf-8", "replace").replace("\r", "")
                self.pieces.append(Piece(base + time.monotonic() - began, text, "output"))
            elif process.poll() is not None:
                break
        os.close(main)
        process.wait()
        self._now = base + time.monotonic() - began + _HOLD

    def drawn(self) -> str:
        """Each piece appears at its time."""
        rows: list[list[tuple[Piece, str]]] = [[]]
        for piece in self.pieces:
            first, *others = piece.text.split("\n")
            rows[-1].append((piece, first))
            rows += [[(piece, text)] for text in others]
        columns = max(sum(len(text) for _, text in row) for row in rows) + 2
        width, height = round(columns * _COLUMN) + 2 * _MARGIN, len(rows) * _LINE + 2 * _MARGIN
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            "<title>A role is called, the hub is killed, and the answer goes on</title>",
            "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}"
            ".prompt,.note{fill:#88c0d0}.typed{fill:#eceff4;font-weight:bold}"
            "tspan{opacity:0;animation:show 0s forwards}@keyframes show{to{opacity:1}}"
            "@media (prefers-reduced-motion:reduce){tspan{opacity:1;animation:none}}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#2e3440"/>',
        ]
        for number, row in enumerate(rows):
            shown = "".join(
                f'<tspan class="{piece.kind}" style="animation-delay:{piece.at:.2f}s">{escape(text)}</tspan>'
                for piece, text in row
                if text
            )
            lines.append(f'<text x="{_MARGIN}" y="{_MARGIN + 14 + number * _LINE}" xml:space="preserve">{shown}</text>')
        return "\n".join([*lines, "</svg>"]) + "\n"


def start(command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "ROLECALL_DATA_DIR": folder}
        env |= {"ROLECALL_PORT": str(PORT), "ROLECALL_HUB": f"http://127.0.0.1:{PORT}", "ROLECALL_INSTANCE": "1"}
        hub = [f"{BIN}/rolecall", "serve"]
        running = [start(hub, env)]
        running += [
            start([f"{BIN}/rolecall", "worker", "run", f"rolecall.cli.demo:{role}"], env) for role in ("echo", "storyteller")
        ]
        try:
            time.sleep(5)
            recording = Recording(env)
            recording.run("rolecall roles ls")
            recording.run('rolecall send echo "hello"')
            recording.note("now a stream, and the end of the hub in the middle of it")
            again = subprocess.Popen(["sh", "-c", f"sleep 3; exec {BIN}/rolecall serve"], env=env, stderr=subprocess.DEVNULL)
            running.append(again)
            recording.run('rolecall send storyteller "a lighthouse"', kill=(2.0, [running[0].pid]))
            recording.note("every word came once, in order")
        finally:
            for process in running:
                process.terminate()
                process.wait(20)
    FILE.write_text(recording.drawn(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
