"""Whether the module of a worker loads: tried in a process of its own, which starts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_PATIENCE = 60.0


class Load(NamedTuple):
    """`role`: that it serves. `problem`: why it cannot be loaded, also several lines; empty: it can."""

    role: str
    problem: str


async def load(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Load:
    """`words`: the command that loads it and prints its role. OSError: it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            out, err = await process.communicate()
    except TimeoutError:
        return Load("", f"it has not loaded within {_PATIENCE:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        return Load("", err.decode("utf-8", "replace").strip() or f"it ended with code {process.returncode}")
    return Load("".join(out.decode("utf-8", "replace").splitlines()[-1:]), "")
