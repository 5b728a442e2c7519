"""Let the garbage collector look through what the tests of a file make, and nothing else."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def only_what_the_file_makes() -> None:
    """What was imported and collected before, all tests and their parameters among it, is millions
    of objects: a test that collects, or a process that it forks, would spend seconds on them."""
    gc.collect()
    gc.freeze()
