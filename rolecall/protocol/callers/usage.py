"""The usage extension: what tasks have used of language models. Its text is docs/reference/usage-extension.md."""

from __future__ import annotations

from rolecall.model.card import USAGE_EXTENSION, Extension

USAGE = Extension(USAGE_EXTENSION, "Tasks tell what they have used of language models.")
