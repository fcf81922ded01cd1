"""Run by the interpreter that has a2a-sdk 0.3: reads [type, document] pairs, writes each as that SDK's own type has it."""

from __future__ import annotations

import json
import sys

from a2a import types

for name, document in json.load(sys.stdin):
    value = getattr(types, name).model_validate(document)
    print(json.dumps(value.model_dump(mode="json", by_alias=True, exclude_unset=True)))
