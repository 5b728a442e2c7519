"""One call for many sets of arrays: what is checked first, and what is done."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.backends.fused.updates import ADAM, SGD
from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import Array, Kernel, Loop, Store
from disttrain.backends.llvm.many import fits
from disttrain.backends.program import Program, sets_of

NUMBERS = (1.0, 1.0, 0.0, 0.1, 0.9, 0.001, 0.01, 1.0, 1e-8)


def arrays(sizes, kind=np.float32, count=3):
    gen = np.random.default_rng(0)
    return [[np.abs(gen.normal(size=n)).astype(kind) for _ in range(count)] for n in sizes]


def counters(n, value=4.0):
    return [np.array(value, np.float32) for _ in range(n)]


def made(kernel, sets, counts):
    found = sets_of(kernel, sets, counts)
    if found is None:
        pytest.skip("no code can be made here")
    return found


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_each_set_is_as_by_itself(kind):
    kernel = ADAM[False].kernel(np.dtype(kind).name)
    sizes = [1, 3, 16, 17, 1000]
    sets, alone = arrays(sizes, kind), arrays(sizes, kind)
    gradients = [np.linspace(-1, 1, n).astype(kind) for n in sizes]
    steps = counters(len(sizes))
    whole = made(kernel, sets, steps)
    assert whole(gradients, 4.0, NUMBERS)
    for (p, *state), g in zip(alone, gradients, strict=True):
        Program(kernel)(p, g, *state, *NUMBERS)
    assert [a.tobytes() for s in sets for a in s] == [a.tobytes() for s in alone for a in s]
    assert [float(c) for c in steps] == [5.0] * len(sizes)
    assert not whole(gradients, 4.0, NUMBERS) and whole(gradients, 5.0, NUMBERS)


def test_nothing_is_done_unless_all_fit():
    kernel = ADAM[False].kernel("float32")
    sets, steps = arrays([4, 6]), counters(2)
    whole = made(kernel, sets, steps)
    before = [a.tobytes() for s in sets for a in s]
    g = [np.ones(4, np.float32), np.ones(6, np.float32)]
    wrong = [
        [g[0], g[1][:5]], [g[0], g[1].astype(np.float64)], [g[0], np.ones(12, np.float32)[::2]],
        [g[0], [1.0] * 6], [g[0]], [*g, g[0]],
    ]  # fmt: skip
    for each in wrong:
        assert not whole(each, 4.0, NUMBERS)
    assert not whole(g, 3.0, NUMBERS)
    steps[1][...] = 9.0
    assert not whole(g, 4.0, NUMBERS)
    assert [a.tobytes() for s in sets for a in s] == before
    assert [float(c) for c in steps] == [4.0, 9.0]


def test_sets_without_counters():
    kernel = SGD[False, False].kernel("float32")
    sets = arrays([5, 2], count=1)
    before = [p.copy() for (p,) in sets]
    assert made(kernel, sets, None)([np.ones(5, "f4"), np.ones(2, "f4")], 0, (1.0, 0.0, 0.5))
    for (p,), b in zip(sets, before, strict=True):
        np.testing.assert_array_equal(p, b - np.float32(0.5))


def test_arrays_that_it_does_not_take():
    kernel = ADAM[False].kernel("float32")
    one = np.array(1.0, np.float32)
    assert sets_of(kernel, arrays([4, 4]), [one, one]) is None  # one counter for two sets
    assert sets_of(kernel, arrays([4]), [np.array(1.0)]) is None
    assert sets_of(kernel, arrays([4], np.float64), counters(1)) is None
    turned = arrays([8])
    turned[0][1] = np.zeros((16,), np.float32)[::2]
    assert sets_of(kernel, turned, counters(1)) is None
    fixed = arrays([8])
    fixed[0][0].flags.writeable = False
    assert sets_of(kernel, fixed, counters(1)) is None


def test_which_kernels_can_be_called_so():
    two = (Array("x", "float32"), Array("y", "float32"), Array("out", "float32", writes=True))
    assert fits(SGD[True, True].kernel("float32"))
    both = Kernel("both", two, (Loop((Store("out", var("x") + var("y")),)),), flat=True)
    assert not fits(both)
