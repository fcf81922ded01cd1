"""Count the files that one message/stream call of three events passes in the hub, how often it returns to one, and what the hub
keeps for an open stream that is silent.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from tests.walk.calling import SAME_COUNT, repeat_walk
from tests.walk.counting import file_lines, like, shortest
from tests.walk.silent import STREAMS, kept_by_stream


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/walk", description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="files in the order of the first visit, and how often each was entered"
    )
    parser.add_argument(
        "--agreeing", type=int, default=SAME_COUNT, metavar="N", help=f"call until N calls took the same walk ({SAME_COUNT})"
    )
    options = parser.parse_args(argv)
    found = asyncio.run(repeat_walk(options.agreeing))
    walk = shortest(found)
    print(f"{walk.files} files, {walk.returns} returns")
    kept = asyncio.run(kept_by_stream())
    print(f"{kept.objects:.0f} objects, {kept.tasks:.1f} tasks, {kept.size:.1f} KiB for each of {STREAMS} open, silent streams")
    if options.list:
        print("\n".join(file_lines(walk)))
    print(
        f"{like(walk, found)} of {len(found)} calls took this walk; timers of the hub fired during the others", file=sys.stderr
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
