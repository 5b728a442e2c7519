"""Python's functions of symbolic numbers: expressions, in the code of the program alone."""

from __future__ import annotations

import builtins
import functools
import math
import os
import threading

import pytest

import disttrain as dt
from disttrain.compile.guards.holders import FACT, Guard, Holder
from disttrain.compile.guards.readers import function_parts
from disttrain.compile.originals import original_code
from disttrain.compile.sizes import functions
from disttrain.compile.sizes.functions import replaced, rewritten
from disttrain.symbolic import Scope, is_symbolic

PLAIN = len, math.sqrt, math.isqrt


def sample(n, x=(), root=math.sqrt):
    inner = [float(i) for i in range(len(x))]
    made = int(n * 0.5) + len(x), root_of(n), math.isqrt(n), type(n), float(n), root(4)
    return made, inner, (lambda k: math.hypot(k, 4.0))(n), isinstance(n, int), int("12", 3)


root_of = math.sqrt


def held(*functions):
    return [
        Holder(FACT, f, f.__name__, reader=functools.partial(function_parts, f)) for f in functions
    ]


def test_code_calls_others_inside_of_blocks_that_overlap():
    code, scope = sample.__code__, Scope()
    with replaced(held(sample)):
        with replaced(held(sample)):
            pass
        assert sample.__code__ is not code and original_code(sample.__code__) is code
        found = sample(scope.symbol(9))
        assert not scope.relations
        assert sample(9, [1, 2]) == ((6, 3.0, 3, int, 9.0, 2.0), [0.0, 1.0], 97**0.5, True, 5)
    assert sample.__code__ is code and (len, math.sqrt, math.isqrt) == PLAIN
    (half, root, whole, kind, real, _), _, hypot, _, _ = found
    assert all(map(is_symbolic, (half, root, whole, real, hypot))) and kind is int
    assert [x.of((16,)) for x in (half, root, whole, real)] == [8, 4.0, 4, 16.0]


def test_errors_are_pythons_own():
    with replaced(held(sample)):
        for n in ("a", None):
            with pytest.raises(TypeError) as told:
                sample(n)
            assert told.traceback[-1].path.name == "test_functions.py"


def test_code_that_calls_none_of_them_stays():
    def plain(x):
        return x * 2, [y + 1 for y in x], len

    assert rewritten(plain.__code__, plain.__globals__) is plain.__code__
    assert rewritten(sample.__code__, {"len": max, "math": None, "int": 3, "float": 3, "type": 3,
                                       "root_of": 3}) is sample.__code__  # fmt: skip


def test_code_with_many_constants_and_names():
    names = [f"x{i}" for i in range(300)]
    lines = [f"    {name} = {i}.5" for i, name in enumerate(names)]
    text = "def many(n):\n" + "\n".join(lines) + "\n    return len(n) + int(x299)"
    space: dict = {}
    exec(text, space)
    with replaced(held(space["many"])):
        assert space["many"]([1]) == 300
        code = space["many"].__code__
    assert original_code(code) is not code


@pytest.mark.parametrize("name", ["sqrt", "log", "exp", "atan2", "pow", "isqrt", "gcd"])
def test_a_number_that_is_made_of_sizes_is_made_anew_for_others(name):
    scope = Scope()
    n = scope.symbol(12)
    function = getattr(math, name)
    others = (8,) if name in ("atan2", "pow", "gcd") else ()
    made = getattr(functions._math, name)(n, *others) * 3
    assert is_symbolic(made) and not scope.relations and made.value == function(12, *others) * 3
    assert made.of((20,)) == function(20, *others) * 3


def test_guards_of_other_threads_see_what_they_saw():
    guard = Guard(held(sample))
    found = []
    with replaced(held(sample)):
        late = Guard(held(sample))
        thread = threading.Thread(target=lambda: found.append(guard.stale()))
        thread.start()
        thread.join()
    assert found == [None] and guard.stale() is None and late.stale() is None


SIZES = (4, 5, 6, 7, 9, 12)
ONCE = {
    "len": lambda x: x * len(x),
    "int": lambda x: x[: int(len(x) * 0.5)] * int(x.shape[0]),
    "float": lambda x: x / float(x.shape[0]) ** 0.5,
    "type": lambda x: x * 2 if type(len(x)) is int else x * 3,
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


def test_code_that_is_given_inside_stays():
    def old(x):
        return len(x)

    def new(x):
        return 7

    with replaced(held(old)):
        old.__code__ = new.__code__
    assert old.__code__ is new.__code__


def test_nothing_of_pythons_is_touched_and_other_threads_may_call_the_program_meanwhile():
    inside, done, found = threading.Event(), threading.Event(), []

    def hold():
        with replaced(held(sample)):
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    found.append(sample(9, [1, 2]))
    assert (len, math.sqrt, math.isqrt) == PLAIN and builtins.len is len
    pid = os.fork()
    if not pid:
        code = sample.__code__
        os._exit(0 if original_code(code) is code and sample(9, [1, 2]) == found[0] else 1)
    status = os.waitpid(pid, 0)[1]
    done.set()
    thread.join()
    assert status == 0 and sample(9, [1, 2]) == found[0]


F = dt.nn.functional
LENGTHS = {
    "linspace": lambda x: x + dt.linspace(0, x.shape[0], x.shape[0])[:, None],
    "logspace": lambda x: x + dt.logspace(0, 1, len(x), 2.0, dtype=dt.float64)[:, None],
    "arange of floats": lambda x: x + dt.arange(0.0, x.shape[0] * 1.0, 1.0)[:, None],
    "int": lambda x: x[: int(x.shape[0] * 0.75)] / float(x.shape[0]),
    "bilinear": lambda x: F.interpolate(
        x[None, None], size=(x.shape[0] // 2 + 1, 6), mode="bilinear"
    ),
    "bicubic": lambda x: F.interpolate(x[None, None], scale_factor=(1.5, 1), mode="bicubic"),
    "area": lambda x: F.interpolate(x[None, None], size=(x.shape[0] - 1, 2), mode="area"),
    "antialias": lambda x: F.interpolate(
        x[None, None], size=(x.shape[0] - 1, 2), mode="bilinear", antialias=True
    ),
    "linear": lambda x: F.interpolate(
        x.T[None], size=x.shape[0] * 2 - 1, mode="linear", align_corners=True
    ),
    "twice": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "twice by size": lambda x: F.interpolate(
        x[None, None], size=(x.shape[0] * 2, 8), mode="nearest-exact"
    ),
    "adaptive": lambda x: F.adaptive_avg_pool1d(x.T[None], 2),
    "adaptive, itself": lambda x: F.adaptive_avg_pool2d(x[None], (None, 3)),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_hundred_lengths_take_three_captures_at_most(name):
    run = dt.compile(LENGTHS[name])
    for size in range(20, 120):
        found = []
        for fn in (LENGTHS[name], run):
            x = (dt.arange(4.0 * size).reshape(size, 4) / size).requires_grad_()
            y = fn(x)
            y.float().square().sum().backward()
            found.append((y.detach().numpy().tobytes(), x.grad.numpy().tobytes()))
        assert found[0] == found[1], size
    assert len(run.reasons) <= 3, run.explain()
