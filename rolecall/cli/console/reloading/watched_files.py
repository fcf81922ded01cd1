"""Which files a worker is made of, and whether one has changed: by asking for their times. A worker has few files, and a
library for this would be one more package in the base install.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

MOST = 2000
"""Files of one worker."""
_SKIPPED = frozenset({"__pycache__", "node_modules"})

Stamp = tuple[int, int]


class FileWatch:
    """`poll` names a file that has changed, once nothing has changed since the poll before: whoever writes is done."""

    def __init__(self, files: Callable[[], Iterable[Path]]) -> None:
        self._files = files
        self._seen = self._stamps()
        self._pending: Path | None = None

    def poll(self) -> Path | None:
        now, before = self._stamps(), self._seen
        self._seen = now
        if now != before:
            self._pending = next(path for path in {**before, **now} if now.get(path) != before.get(path))
            return None
        changed, self._pending = self._pending, None
        return changed

    def _stamps(self) -> dict[Path, Stamp]:
        found: dict[Path, Stamp] = {}
        for path in self._files():
            try:
                status = path.stat()
            except OSError:
                continue  # it is being replaced, or is gone
            found[path] = status.st_mtime_ns, status.st_size
        return found


class Sources:
    """The files of a worker: what its words name, the modules of its folder that these import, and what `watch` lists. Two are
    equal if they were told the same.
    """

    def __init__(
        self, folder: Path, *, module: str | None = None, words: Sequence[str] = (), watch: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._module = module
        self._words = words
        self._watch = watch
        self._imports = _Imports(folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sources) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return self._folder, self._module, tuple(self._words), tuple(self._watch)

    def __call__(self) -> Iterator[Path]:
        return islice(self._all(), MOST)

    def _all(self) -> Iterator[Path]:
        yield from self._imports.from_files(self._roots())
        for pattern in self._watch:
            path = self._folder / pattern
            if path.is_dir():
                yield from _files_below(path)
            else:
                yield from self._folder.glob(pattern) if not Path(pattern).is_absolute() else [path]

    def _roots(self) -> Iterator[Path]:
        if self._module is not None:
            yield from _files_of(self._module, self._folder)
        for word in self._words:
            path = self._folder / word
            if path.is_relative_to(self._folder) and path.is_file():
                yield path


class _Imports:
    """Reads what files import. A file is parsed again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parsed: dict[Path, tuple[Stamp, Sequence[Path]]] = {}

    def from_files(self, roots: Iterable[Path]) -> Iterator[Path]:
        """These files, and all modules of the folder that they import, directly or not."""
        waiting, seen = list(roots), set[Path]()
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                yield path
                if path.suffix == ".py":
                    waiting += self._imported(path)

    def _imported(self, path: Path) -> Sequence[Path]:
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_size
            known = self._parsed.get(path)
            if known is None or known[0] != stamp:
                known = stamp, self._parse(path)
                self._parsed[path] = known
        except (OSError, SyntaxError, ValueError):
            known = self._parsed.get(path)  # it is being written
        return known[1] if known is not None else ()

    def _parse(self, path: Path) -> Sequence[Path]:
        found: list[Path] = []
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found += _files_of(alias.name, self._folder)
            elif isinstance(node, ast.ImportFrom):
                base = self._folder if node.level == 0 else path.parents[node.level - 1]
                names = [node.module] if node.module else []
                names += [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
                for imported in names:
                    found += _files_of(imported, base)
        return found


def _files_of(module: str, folder: Path) -> Iterator[Path]:
    """The files that an import of `a.b` runs, as far as they lie below the folder."""
    place = folder
    for part in module.split("."):
        place = place / part
        for path in (place.with_name(f"{part}.py"), place / "__init__.py"):
            if path.is_file():
                yield path


def _files_below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files))
