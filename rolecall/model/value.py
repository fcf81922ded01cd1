"""The base class of the domain's values."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Value", "replace"]


class Value(Struct, frozen=True, gc=False):
    """Immutable, compared by its members. Every event needs several, so they have to be cheap: one takes a fifth of the time of
    a named tuple (decision 11).

    The garbage collector does not track them: a value must not be part of a reference cycle.
    """
