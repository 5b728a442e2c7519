"""Python functions of symbolic numbers: expressions inside a block, their own selves outside."""

from __future__ import annotations

import builtins
import math
import os
import threading

import pytest

import disttrain as dt
from disttrain.compile.guards.holders import NAMES, Guard, Holder
from disttrain.compile.sizes.functions import replaced
from disttrain.symbolic import Scope, is_symbolic

PLAIN = len, math.sqrt, math.isqrt


def test_they_are_replaced_inside_of_blocks_that_overlap():
    with replaced():
        with replaced():
            pass
        assert builtins.len is not PLAIN[0]
        assert (len([1, 2]), math.sqrt(4), math.isqrt(17), math.hypot(3, 4)) == (2, 2.0, 4, 5.0)
        with pytest.raises(TypeError):
            len(3)  # type: ignore[arg-type]
    assert (len, math.sqrt, math.isqrt) == PLAIN


@pytest.mark.parametrize("name", ["sqrt", "log", "exp", "atan2", "pow", "isqrt", "gcd"])
def test_a_number_that_is_made_of_sizes_is_made_anew_for_others(name):
    scope = Scope()
    n = scope.symbol(12)
    function = getattr(math, name)
    others = (8,) if name in ("atan2", "pow", "gcd") else ()
    with replaced():
        made = getattr(math, name)(n, *others) * 3
    assert is_symbolic(made) and not scope.relations and made.value == function(12, *others) * 3
    assert made.of((20,)) == function(20, *others) * 3


def test_guards_of_other_threads_see_what_they_saw():
    guard = Guard([Holder(NAMES, vars(math), "math", ("sqrt", "pi"))])
    found = []
    with replaced():
        late = Guard([Holder(NAMES, vars(math), "math", ("sqrt", "pi"))])
        thread = threading.Thread(target=lambda: found.append(guard.stale()))
        thread.start()
        thread.join()
    assert found == [None] and guard.stale() is None and late.stale() is None


SIZES = (4, 5, 6, 7, 9, 12)
ONCE = {
    "len": lambda x: x * len(x),
    "sqrt": lambda x: x / math.sqrt(x.shape[0]) + math.log(len(x)),
    "half": lambda x: x[: x.shape[0] // 2].sum() + x[: len(x) // 2],
    "arange": lambda x: x + dt.arange(len(x)),
    "chunk": lambda x: dt.cat([p * (i + 1) for i, p in enumerate(x.chunk(2))]),
    "split": lambda x: x.split([1, len(x) - 1])[1] * 2,
    "one_hot": lambda x: dt.nn.functional.one_hot(dt.arange(len(x)), len(x)) * x,
    "randint": lambda x: x + dt.randint(0, len(x), (len(x),)) + dt.randperm(len(x)),
    "full": lambda x: dt.full((len(x),), len(x)) + x * dt.tensor(len(x)),
    "topk": lambda x: x.topk(len(x) // 2).values,
    "pad": lambda x: dt.nn.functional.pad(x, (0, 20 - len(x))),
    "causal": lambda x: dt.ones(len(x), len(x)).tril().masked_fill(dt.eye(len(x)) > 0, 2.0) * x,
}


@pytest.mark.parametrize("name", ONCE)
def test_programs_that_ask_for_sizes_are_captured_once_for_all(name):
    fn = ONCE[name]
    run = dt.compile(fn)
    for size in (*SIZES, *SIZES):
        x = dt.arange(1.0, size + 1)
        dt.manual_seed(size)
        expected = fn(x)
        dt.manual_seed(size)
        found = run(x)
        assert dt.equal(found, expected) and found.dtype == expected.dtype
    assert len(run.graphs) == 2, run.explain()


def test_what_somebody_has_put_in_their_place_stays_there(monkeypatch):
    monkeypatch.setattr(math, "sqrt", lambda x: x + 1)
    patched = math.sqrt
    run = dt.compile(lambda x, s: x * math.sqrt(s) + len(x), dynamic=True)
    for rows in (3, 4, 5):
        assert run(dt.ones(rows), 4.0).tolist() == [5.0 + rows] * rows
        assert math.sqrt is patched
    assert len(run.graphs) == 1, run.explain()


def test_a_patch_made_inside_stays_until_its_end(monkeypatch):
    other = PLAIN[0]
    with replaced():
        monkeypatch.setattr(math, "log", other)
    assert math.log is other
    monkeypatch.undo()  # puts back what was found inside
    with replaced():
        pass
    assert isinstance(math.log, type(PLAIN[1]))


def test_a_process_that_is_forked_meanwhile_has_pythons_own():
    inside, done = threading.Event(), threading.Event()

    def hold():
        with replaced():
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    pid = os.fork()
    if not pid:
        with replaced():
            other = builtins.len is not PLAIN[0]
        os._exit(0 if other and (len, math.sqrt, math.isqrt) == PLAIN else 1)
    status = os.waitpid(pid, 0)[1]
    done.set()
    thread.join()
    assert status == 0
