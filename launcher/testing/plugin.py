"""The pytest plugin: ``@pytest.mark.ranks(4)`` runs a test on four ranks (docs/testing.md).

The test's call alone runs on ranks; fixtures are set up before, and torn down after, in pytest's
own process. Everything else is loaded when the first marked test is set up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from typing import Any

import pytest

from .marks import SIGNATURE, Ask, MarkError, read_mark

_ASK = pytest.StashKey[Ask]()
_OUTCOME = pytest.StashKey[Any]()
_OURS = {"disttrain", "disttrain_launcher"}
_RUN = "disttrain_launcher.testing.run"


def pytest_addoption(parser: pytest.Parser) -> None:
    _leave_our_asserts()
    group = parser.getgroup("disttrain", "tests that run on several ranks")
    group.addoption(
        "--simulate-ranks",
        action="store_true",
        help="simulate the ranks of all tests marked with ranks(n), also where these say otherwise",
    )
    group.addoption(
        "--ranks-seed",
        type=int,
        default=None,
        metavar="SEED",
        help="the only seed of simulated ranks that is tried",
    )
    parser.addini(
        "ranks_timeout",
        "seconds after which a test marked with ranks(n) is ended, where the mark says nothing",
        default="60",
    )


def _leave_our_asserts() -> None:
    """pytest rewrites the asserts of everything that was installed together with a plugin, which
    would make whoever imports disttrain in a test wait until all of it is compiled anew."""
    for finder in sys.meta_path:
        marked = getattr(finder, "_must_rewrite", None)
        if isinstance(marked, set) and not marked.isdisjoint(_OURS):
            marked -= _OURS
            getattr(finder, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SIGNATURE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Read the mark before anything is set up for the test."""
    mark = item.get_closest_marker("ranks")
    if mark is None:
        return
    wrong = ""
    try:
        item.stash[_ASK] = ask = read_mark(mark.args, mark.kwargs)
        importlib.import_module(_RUN).check(item, ask)
    except MarkError as error:
        wrong = str(error)
    if wrong:
        pytest.fail(wrong, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Around all others, so that these are in the ranks where they matter: what is captured,
    logged and expected is a rank's own."""
    ask = item.stash.get(_ASK, None)
    run = importlib.import_module(_RUN) if ask is not None else None
    if run is None or run.is_inside(item):
        return (yield)
    item.stash[_OUTCOME] = outcome = run.run(item, ask)
    item.runtest = outcome.tell  # type: ignore[method-assign]
    try:
        return (yield)
    finally:
        del item.runtest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of the call is made of those of the ranks."""
    report = yield
    outcome = item.stash.get(_OUTCOME, None)
    if outcome is not None and call.when == "call":
        del item.stash[_OUTCOME]
        outcome.enter(report, call)
    return report
