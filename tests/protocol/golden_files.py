"""The golden files, and how two documents are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def transcript(name: str) -> dict[str, str]:
    """A file of sections, in the form that REST clients in editors read: a title, and the text below it."""
    sections = (FOLDER / f"{name}.http").read_text(encoding="utf-8").split("### ")[1:]
    parts = [section.partition("\n") for section in sections]
    return {title: text.removesuffix("\n") for title, _, text in parts}


def write_transcript(name: str, sections: dict[str, str]) -> None:
    text = "".join(f"### {title}\n{text}\n" for title, text in sections.items())
    (FOLDER / f"{name}.http").write_text(text, encoding="utf-8")


def names_in(folder: str) -> set[str]:
    return {file.stem for file in (FOLDER / folder).iterdir()}


def exactly(document: Any) -> str:
    """For comparing: 1, 1.0 and true differ, the order of members does not matter."""
    return json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False)


def as_protobuf_writes(document: Any) -> Any:
    """Without zero and empty values, and with every number in a Struct as a float."""
    if isinstance(document, dict):
        written = {name: as_protobuf_writes(value) for name, value in document.items()}
        return {name: value for name, value in written.items() if not _is_zero(name, value)}
    if isinstance(document, list):
        return [as_protobuf_writes(item) for item in document]
    return float(document) if isinstance(document, int) and not isinstance(document, bool) else document


def _is_zero(name: str, value: Any) -> bool:
    return value in ([], "TASK_STATE_UNSPECIFIED") or (name == "required" and value is False)
