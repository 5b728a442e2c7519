"""Let the garbage collector look through what a test makes, and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def only_what_the_test_makes() -> Iterator[None]:
    """Tests that collect again and again until nothing is left spend most of their time on all that
    was imported, in this process and in those that it forks."""
    gc.freeze()
    yield
    gc.unfreeze()
