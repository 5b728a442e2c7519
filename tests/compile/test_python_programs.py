"""Drawn programs of many of Python's forms, compiled against eager, bit by bit; and what becomes of
the code of their functions where a symbolic run fails, or the process forks in the middle of it.

A longer run: ``python -m pytest tests/compile/test_python_programs.py`` with PARTS raised.
"""

from __future__ import annotations

import os
import random
import warnings

import pytest

import disttrain as dt
from disttrain.compile.sizes.functions import replaced
from disttrain.compile.sizes.symbolic_run import SymbolicRun
from support.cases import python_programs

PARTS, EACH = 3, 8


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_of_many_forms_are_as_without_compile(part):
    count = 0
    for seed in range(part * EACH, (part + 1) * EACH):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, captures = python_programs.difference(seed)
        assert found is None, f"seed {seed}\n{found}"
        count += captures
    assert count > EACH


def in_the_middle(monkeypatch, what):
    """Do ``what`` at the second operation of each symbolic run."""
    process, seen = SymbolicRun.process, []

    def stopped(self, *args):
        seen.append(self)
        if sum(run is self for run in seen) == 2:
            what()
        return process(self, *args)

    monkeypatch.setattr(SymbolicRun, "process", stopped)


@pytest.mark.parametrize("kind", [ValueError, MemoryError, RecursionError])
def test_a_symbolic_run_that_fails_leaves_everything_as_it_was(kind, monkeypatch):
    raised = []

    def fail():
        raised.append(kind)
        raise kind("in the middle")

    in_the_middle(monkeypatch, fail)
    for seed in range(20, 26):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, _ = python_programs.difference(seed)
        assert found is None, f"seed {seed}\n{found}"
    assert raised and not replaced._inside


def test_a_child_that_is_forked_in_the_middle_has_the_programs_own_code(monkeypatch):
    ended = []
    m = python_programs.loaded(python_programs.source(random.Random(1)), 1, True)
    exec("def sized(t):\n    return t.relu() * len(t)", vars(m))  # noqa: S102
    exec("def step(x, n):\n    return x * len(x) + sized(x) * n", vars(m))  # noqa: S102
    before = python_programs.codes(m)

    def fork():
        pid = os.fork()
        if not pid:
            same = all(a is b for a, b in zip(before, python_programs.codes(m), strict=True))
            os._exit(0 if same else 1)
        ended.append(os.waitpid(pid, 0)[1])

    in_the_middle(monkeypatch, fork)
    run = dt.compile(m.step, dynamic=True)
    for rows in (3, 5, 7):
        assert run(dt.ones(rows, 2), 3).sum().item() == rows * 2 * rows * 4
    assert ended and not any(ended)
    assert all(a is b for a, b in zip(before, python_programs.codes(m), strict=True))
