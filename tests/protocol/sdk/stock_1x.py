"""Run by the interpreter that has a2a-sdk 1.x: reads [type, document] pairs, writes each as that SDK's own type has it.

Every member has to be known. Two pseudo-types are more forgiving: `parse_agent_card` is the client's own reader of cards, and
a type with `0.3 ` before it is read as a document of 0.3 and translated by the SDK.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as old_types
from a2a.types import a2a_pb2
from google.protobuf import json_format

CONVERT = {
    "Message": conversions.to_core_message,
    "Task": conversions.to_core_task,
    "TaskStatusUpdateEvent": conversions.to_core_task_status_update_event,
    "TaskArtifactUpdateEvent": conversions.to_core_task_artifact_update_event,
}


def parsed(name: str, document: Any) -> Any:
    if name == "parse_agent_card":
        return parse_agent_card(document)
    if name.startswith("0.3 "):
        name = name.removeprefix("0.3 ")
        return CONVERT[name](getattr(old_types, name).model_validate(document))
    return json_format.Parse(json.dumps(document), getattr(a2a_pb2, name)(), ignore_unknown_fields=False)


for name, document in json.load(sys.stdin):
    print(json_format.MessageToJson(parsed(name, document), indent=None))
