"""The error of a translation."""

from __future__ import annotations


class Untranslatable(ValueError):
    """The document cannot be expressed in another dialect. The text names the member, and quotes nothing."""
