"""One machine, or several that the command line names."""

from __future__ import annotations

from collections.abc import Mapping

from .placement import Place


def matches(env: Mapping[str, str]) -> bool:
    """Always: it asks nothing of the environment."""
    return True


def place(env: Mapping[str, str]) -> Place:
    """The first and only one, as far as the environment says."""
    return Place()
