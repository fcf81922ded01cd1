"""The one refusal of a translation."""

from __future__ import annotations


class Untranslatable(ValueError):
    """The document says nothing that can be said elsewhere. The text names the place, and quotes nothing."""
