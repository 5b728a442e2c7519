"""What arrays of tensors raise whose operations are composed of those on other tensors."""

from __future__ import annotations


class Composed(Exception):
    """To the gate: have ``composes`` of the tensor do the operation."""
