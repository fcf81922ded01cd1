"""Parse documents with the official Python SDKs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rolecall.model.a2a import EventKind
from tests.helpers.tools import sdk_python

TYPES = {
    EventKind.MESSAGE: "Message",
    EventKind.TASK: "Task",
    EventKind.STATUS: "TaskStatusUpdateEvent",
    EventKind.ARTIFACT: "TaskArtifactUpdateEvent",
}


def parsed_by_sdk(version: str, documents: list[tuple[str, Any]]) -> list[Any]:
    """These documents, each with the name of its type, as the SDK ("0.3" or "1.x") reads them. Fails if the SDK refuses one."""
    script = Path(__file__).parent / f"stock_{version.replace('.', '')}.py"
    process = subprocess.run(
        [sdk_python(version), script], input=json.dumps(documents), capture_output=True, text=True, timeout=60, check=False
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return [json.loads(line) for line in process.stdout.splitlines()]
