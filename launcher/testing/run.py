"""A marked test, from what it asks for to what came of it."""

from __future__ import annotations

import time
import unittest

import pytest

from disttrain.errors import ConfigError

from . import faults, real, sim
from .inside import INSIDE
from .marks import Ask, MarkError
from .reports import Outcome


def is_inside(item: pytest.Item) -> bool:
    """Is this the process of a rank?"""
    return item.stash.get(INSIDE, False)


def check(item: pytest.Item, ask: Ask) -> None:
    """``MarkError`` where what is asked for cannot be."""
    seconds_of(item, ask)
    try:
        if not sim.wanted(item, ask):
            faults.for_real(ask)
            return
        sim.cluster_of(ask)
    except ConfigError as error:
        raise MarkError(f"@pytest.mark.ranks: {error}") from None
    of = getattr(item, "cls", None)
    if of is not None and issubclass(of, unittest.TestCase):
        raise MarkError(
            f"@pytest.mark.ranks: {of.__name__} is a unittest.TestCase, of which simulated ranks "
            "would share one object; a plain class, or real ranks, are needed"
        )


def seconds_of(item: pytest.Item, ask: Ask) -> float:
    """For how long the ranks may run."""
    if ask.timeout is not None:
        return ask.timeout
    text = item.config.getini("ranks_timeout")
    try:
        return float(text)
    except ValueError:
        raise MarkError(f"ranks_timeout = {text!r}: a number of seconds is needed") from None


def run(item: pytest.Item, ask: Ask) -> Outcome:
    """Run the test's call on its ranks."""
    deadline = time.monotonic() + seconds_of(item, ask)
    outcome = (sim if sim.wanted(item, ask) else real).run(item, ask, deadline)
    outcome.debugged = bool(item.config.getoption("usepdb", False))
    return outcome
