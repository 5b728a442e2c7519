"""A region runs its members one by one at first, then as a kernel; the bits are the same."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import fuse
from disttrain.compile.passes.region import _RUNS, program_of


def region_of(fn, *args):
    (ins,) = fuse(capture(fn)(*args)[1]).instructions
    return ins.prim.compute, ins.prim


def chain(x, y):
    return ((x * 2 + y).relu() - y) * x


def test_the_kernel_comes_after_some_runs_and_gives_the_same_bits():
    x, y = (dt.randn(5, 7) for _ in range(2))
    compute, prim = region_of(chain, x, y)
    found = [compute((x.numpy(), y.numpy()), {}).tobytes() for _ in range(_RUNS + 3)]
    assert set(found) == {chain(x, y).numpy().tobytes()}
    assert prim.forward.__self__.ready is not None


def test_arrays_that_do_not_lie_in_rows_are_computed_one_by_one():
    x, y = dt.randn(6, 6), dt.randn(6, 6)
    compute, prim = region_of(chain, x, y)
    prim.forward.__self__.left = 0
    turned = np.asfortranarray(x.numpy())
    got = compute((turned, y.numpy()), {})
    assert got.tobytes() == chain(x, y).numpy().tobytes() or np.array_equal(
        got, chain(x, y).numpy()
    )
    assert got.strides == chain(dt.from_numpy(turned), y).numpy().strides


def test_operands_are_broadcast():
    x, row = dt.randn(5, 7), dt.randn(7)
    compute, prim = region_of(lambda a, b: (a + b).relu() * 3 - b, x, row)
    prim.forward.__self__.left = 0
    got = compute((x.numpy(), row.numpy()), {})
    assert got.tobytes() == ((x + row).relu() * 3 - row).numpy().tobytes()


def test_equal_regions_share_a_kernel():
    x, y = (dt.randn(4, 4) for _ in range(2))
    whole = [region_of(chain, x, y)[1].forward.__self__ for _ in range(2)]
    assert whole[0] is not whole[1]
    assert program_of(whole[0].kernel()) is program_of(whole[1].kernel())


def test_several_results_come_out():
    def fn(x):
        a = x * 2
        return a + 1, a - 1

    x = dt.randn(9)
    compute, prim = region_of(fn, x)
    prim.forward.__self__.left = 0
    assert [r.tobytes() for r in compute((x.numpy(),), {})] == [r.numpy().tobytes() for r in fn(x)]


@pytest.mark.parametrize("shape", [(7,), (1, 7), (5, 1), (1, 1), (), (1,)], ids=str)
@pytest.mark.parametrize("ahead", [(), (3,)], ids=str)
def test_rows_columns_and_numbers_are_called_the_short_way(shape, ahead):
    x, other = dt.randn(*ahead, 5, 7), dt.randn(*shape)

    def fn(a, b):
        return (a + b).relu() * 3 - b * a

    compute, prim = region_of(fn, x, other)
    whole = prim.forward.__self__
    whole.left = 0
    assert compute((x.numpy(), other.numpy()), {}).tobytes() == fn(x, other).numpy().tobytes()
    assert whole.ready is not None and whole.short == (not (ahead and shape == (5, 1)))
    if whole.ready[0] is not None:
        assert whole.ready[0](x.numpy(), other.numpy(), np.empty_like(x.numpy())) is not None
    turned = np.asfortranarray(x.numpy())
    got = compute((turned, other.numpy()), {})
    assert np.array_equal(got, fn(x, other).numpy())
    assert got.strides == fn(dt.from_numpy(turned), other).numpy().strides


def test_parts_that_repeat_in_rows_are_computed_too():
    x, other = dt.randn(3, 5, 7), dt.randn(5, 7)
    compute, prim = region_of(lambda a, b: (a + b).relu() * 3, x, other)
    prim.forward.__self__.left = 0
    for given in (x.numpy(), np.asfortranarray(x.numpy())):
        got = compute((given, other.numpy()), {})
        assert np.array_equal(got, ((x + other).relu() * 3).numpy())
