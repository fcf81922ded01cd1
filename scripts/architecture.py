"""Draws docs/explanation/architecture.svg: the rooms, their sentences, and who imports whom, all read from the tree.

Only where a room stands in the picture is written here; a room that has no place in it is an error.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"
ROWS = (
    ("rolecall.cli",),
    ("worker_sdk", "hub.app", "hub.settings"),
    ("hub.server", "hub.inbound", "hub.outbound"),
    ("hub.telemetry", "hub.identity", "hub.storage"),
    ("hub.core", "hub.ports"),
    ("rolecall.protocol", "rolecall.model", "rolecall.system"),
)
"""From top to bottom; an arrow that points up would be wrong in most places."""
EVERYWHERE = ("rolecall.model",)
"""Nearly every room imports it: these arrows are not drawn."""
COMPOSES = ("hub.app",)
"""It makes every part and imports all that is below: these arrows are not drawn either."""
SMALL = {
    "hub.asgi": "hub.app",
    "hub.backup": "hub.app",
    "hub.clock": "hub.app",
    "hub.descriptors": "hub.app",
    "hub.held_agents": "hub.app",
    "hub.limits": "hub.app",
    "hub.mount": "hub.app",
    "hub.parts": "hub.app",
    "hub.place": "hub.app",
    "hub.run": "hub.app",
    "rolecall.build": "rolecall.model",
    "rolecall.schema": "rolecall.model",
    "rolecall.errors": "rolecall.model",
    "rolecall.setting": "rolecall.model",
    "rolecall.log": "rolecall.model",
    "rolecall.toml_file": "rolecall.model",
    "rolecall.testing": "worker_sdk",
    "rolecall.sync": "worker_sdk",
}
"""Modules that stand for themselves, and the room whose box they are drawn in."""
_WIDTH, _MARGIN, _GAP, _BETWEEN = 1080, 20, 24, 58
_LINE, _TEXT = 15, 44


class Room(NamedTuple):
    name: str
    sentence: str
    inside: tuple[str, ...]


class Box(NamedTuple):
    room: Room
    x: int
    y: int
    width: int
    height: int


def main() -> None:
    PICTURE.write_text(picture(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")


def picture() -> str:
    rooms = {name: _room(name) for row in ROWS for name in row}
    arrows = sorted(set(imports(frozenset(rooms))))
    boxes = {box.room.name: box for box in _boxes(rooms)}
    bottom = max(box.y + box.height for box in boxes.values()) + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom}" font-family="system-ui, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#5b6b7b"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{bottom}" fill="#fff"/>',
    ]
    lines += [_arrow(boxes[user], boxes[used]) for user, used in arrows]
    for box in boxes.values():
        lines += _drawn(box)
    return "\n".join([*lines, "</svg>"]) + "\n"


def imports(rooms: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Each pair of rooms of which the first imports the second when it runs. ValueError: a module that is in no room."""
    for top in ("hub", "rolecall", "worker_sdk"):
        for path in sorted((ROOT / top).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if module in ("hub", "rolecall"):
                continue
            user = _room_of(module, rooms)
            for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
                used = _room_of(name, rooms)
                if used != user and used not in EVERYWHERE and user not in COMPOSES:
                    yield user, used


def _imported(tree: ast.AST) -> Iterator[str]:
    """Modules of ours that a file imports, but not those for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.partition(".")[0] in ("hub", "rolecall", "worker_sdk")
        ):
            if node.module in ("hub", "rolecall"):
                yield from (f"{node.module}.{name.name}" for name in node.names if name.name not in ("__version__", "*"))
            else:
                yield node.module
        yield from _imported(node)


def _room_of(module: str, rooms: frozenset[str]) -> str:
    found = next((name for name in rooms if module == name or module.startswith(f"{name}.")), None) or SMALL.get(module)
    if found is None:
        raise ValueError(f"{module} is in no room: give it a place in scripts/architecture.py and in the documentation")
    return found


def _room(name: str) -> Room:
    path = ROOT.joinpath(*name.split("."))
    inside: tuple[str, ...] = ()
    if path.is_dir():
        inside = tuple(sorted(child.name for child in path.iterdir() if (child / "__init__.py").exists()))
        path = path / "__init__"
    docstring = ast.get_docstring(ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))) or ""
    own = [module.rpartition(".")[2] for module, room in SMALL.items() if room == name]
    return Room(name, " ".join(docstring.split("\n\n")[0].split()), (*inside, *own))


def _boxes(rooms: dict[str, Room]) -> Iterator[Box]:
    y = _MARGIN
    for row in ROWS:
        width = (_WIDTH - 2 * _MARGIN - _GAP * (len(row) - 1)) // max(len(row), 2)
        height = max(_TEXT + _LINE * len(_words(rooms[name], width)) for name in row)
        left = (_WIDTH - len(row) * width - (len(row) - 1) * _GAP) // 2
        for number, name in enumerate(row):
            yield Box(rooms[name], left + number * (width + _GAP), y, width, height)
        y += height + _BETWEEN


def _words(room: Room, width: int) -> list[str]:
    lines = wrap(room.sentence, width // 7)
    return [*lines, *wrap(" · ".join(room.inside), width // 7)] if room.inside else lines


def _drawn(box: Box) -> Iterator[str]:
    x, y, width, height = box.x, box.y, box.width, box.height
    colour = "#eef4fb" if box.room.name.startswith("hub") else "#f4f0e6" if box.room.name.startswith("rolecall") else "#eaf5ea"
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{colour}" stroke="#9aa8b5"/>'
    yield f'<text x="{x + 12}" y="{y + 22}" font-size="15" font-weight="600" fill="#1c2733">{escape(box.room.name)}</text>'
    inside = len(wrap(" · ".join(box.room.inside), width // 7)) if box.room.inside else 0
    words = _words(box.room, width)
    for number, line in enumerate(words):
        shade = "#5b6b7b" if number >= len(words) - inside else "#1c2733"
        text = escape(line, quote=False)
        yield f'<text x="{x + 12}" y="{y + 42 + _LINE * number}" font-size="12" fill="{shade}">{text}</text>'


def _arrow(user: Box, used: Box) -> str:
    """From the user's nearer edge to the used one's. Where the arrow passes a row, the boxes are drawn over it."""
    if user.y == used.y:
        right = user.x < used.x
        start = (user.x + user.width if right else user.x, user.y + user.height // 2)
        end = (used.x if right else used.x + used.width, used.y + used.height // 2)
    else:
        down = user.y < used.y
        start = (_toward(user, used), user.y + user.height if down else user.y)
        end = (_toward(used, user), used.y if down else used.y + used.height)
    return f'<path d="M{start[0]} {start[1]} {end[0]} {end[1]}" stroke="#5b6b7b" marker-end="url(#tip)"/>'


def _toward(box: Box, other: Box) -> int:
    """Where on its edge an arrow between two boxes begins: nearer to where it goes."""
    middle = box.x + box.width // 2
    aim = other.x + other.width // 2
    return middle + max(-box.width // 2 + 20, min(box.width // 2 - 20, (aim - middle) // 3))


if __name__ == "__main__":
    main()
