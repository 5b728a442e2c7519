"""How kernels are launched: forms, grids and arguments, as data."""

import random
from dataclasses import replace

import numpy as np
import pytest

from disttrain.backends.cuda.codegen.emit import function
from disttrain.backends.cuda.codegen.forms import MOST, Form, record
from disttrain.backends.cuda.codegen.layout import Operand, dense, divider
from disttrain.backends.cuda.plan import Pointer, make_plan, pack, plan_many
from disttrain.backends.lang.kernel import Array, elementwise
from disttrain.errors import DTypeError, ShapeError
from support.cases.kernel_catalogue import fused_kernels, operands

ADD = elementwise(
    "add", lambda a, b: a + b, (Array("a", "float32"), Array("b", "float32")), "float32"
)


def plain(*shape, dtype="float32"):
    return Operand(shape, dense(shape, np.dtype(dtype).itemsize), dtype)


def only(plan):
    (launch,) = plan.launches
    return launch


def test_division_by_a_product_is_exact():
    draw = random.Random(0)
    divisors = [
        1,
        2,
        3,
        5,
        7,
        641,
        2**16,
        2**30 - 1,
        2**30,
        *(draw.randrange(1, 2**30) for _ in range(300)),
    ]
    for d in divisors:
        multiplier, shift = divider(d)
        assert multiplier < 1 << 32
        near = [k * d + e for k in (0, 1, 2, (2**31 - 2) // d) for e in (-1, 0, 1)]
        for n in [*near, *(draw.randrange(2**31) for _ in range(50))]:
            if 0 <= n < 2**31:
                assert ((n * multiplier >> 32) + n) >> shift == n // d


def test_arrays_that_lie_alike_are_one_run_whatever_their_axes():
    for operand in (plain(6, 5, 4), Operand((6, 5, 4), (4, 24, 120), "float32"), plain()):
        launch = only(make_plan(ADD, [operand] * 3))
        assert launch.form == Form("flat", vector=4)
        assert launch.values["n"] == operand.size


def test_axes_are_merged_as_far_as_all_arrays_allow():
    launch = only(make_plan(ADD, [plain(6, 5, 4), plain(4), plain(6, 5, 4)]))
    assert launch.form == Form("flat", vector=1, dims=2)
    assert launch.values["size"] == (30, 4)
    assert launch.values["t1"] == (0, 4) and launch.values["t2"] == (16, 4)


def test_positions_take_64_bits_where_they_must():
    n = 1 << 30
    assert only(make_plan(ADD, [plain(n)] * 3)).form.wide
    assert not only(make_plan(ADD, [plain(n - 1)] * 3)).form.wide
    far = Operand((3, 5), (1 << 31, 8), "float32")
    launch = only(make_plan(ADD, [far, far, plain(3, 5)]))
    assert launch.form.wide and "mul" not in launch.values


def test_short_rows_take_a_warp_and_long_ones_a_block():
    kernel = fused_kernels("float32")["softmax._SOFTMAX"]
    forms = {}
    for cols in (1, 33, 128, 1000, 4096, 16384, 100000):
        forms[cols] = only(make_plan(kernel, operands(kernel, (64, cols)))).form
    assert forms[1] == Form("rows", 1, team=32, teams=4, items=1)
    assert forms[33].vector == 2 and forms[128] == Form("rows", 4, team=32, teams=4, items=1)
    assert forms[1000].team == 128 and forms[4096].team == 256
    assert forms[100000] == Form("rows", 4, team=512, items=0)
    for cols, form in forms.items():
        assert form.items == 0 or form.team * form.vector * form.items >= cols


def test_which_thread_has_an_element_does_not_depend_on_the_layout():
    """Nor does how many blocks there are: so folds have the same bits in any layout."""
    for dtype in ("float32", "bfloat16", "float64"):
        for name, kernel in fused_kernels(dtype).items():
            for cols in (40, 768, 3000):
                if kernel.flat:
                    continue
                plans = [
                    make_plan(kernel, operands(kernel, (30, cols), layout))
                    for layout in ("plain", "strided", "far")
                ]
                ways = {
                    tuple((replace(x.form, dims=0, wide=False), x.grid) for x in plan.launches)
                    for plan in plans
                }
                assert len(ways) == 1, (name, cols)


def test_sums_over_rows_join_in_launches_of_their_own():
    kernel = fused_kernels("bfloat16")["norms._LAYER_NORM_BACKWARD[True]"]
    plan = make_plan(kernel, operands(kernel, (100000, 768)))
    rows, *folds = plan.launches
    assert [f.form.array for f in folds] == ["dweight", "dbias"]
    teams = rows.grid * rows.form.teams
    assert teams <= 1024 and all(f.values["parts"] == teams for f in folds)
    assert rows.values["m6"] == folds[0].values["part"] == Pointer(-1, 0)
    assert rows.values["m7"] == folds[1].values["part"] == Pointer(-1, teams * 768 * 4)
    assert plan.scratch == 2 * teams * 768 * 4


def test_a_large_fold_is_done_in_two_launches_and_a_small_one_in_one():
    kernel = fused_kernels("float32")["elementwise._NORM_SQUARED"]
    assert only(make_plan(kernel, operands(kernel, (100, 100)))).form.kind == "rows"
    plan = make_plan(kernel, operands(kernel, (10000, 10000)))
    assert [launch.form.kind for launch in plan.launches] == ["flat", "finish"]
    assert plan.launches[0].grid == 1024 == plan.launches[1].values["parts"]


def test_nothing_is_launched_for_empty_arrays():
    assert make_plan(ADD, [plain(0, 4)] * 3).launches == ()
    assert plan_many(ADD, [[plain(0)] * 3]).launches == ()


def test_many_sets_of_arrays_share_launches():
    sets = [[plain(k * 1000)] * 3 for k in range(1, MOST + 3)]
    first, second = plan_many(ADD, sets).launches
    assert first.values["count"] == MOST and second.values["count"] == 2
    assert second.values["p1"][1] == Pointer((MOST + 1) * 3 + 1)
    starts = first.values["start"]
    assert starts[0] == 0 and starts[-1] == first.grid and sorted(starts) == list(starts)
    with pytest.raises(ShapeError, match=r"set 1, of shape \(3, 5\), have gaps"):
        plan_many(ADD, [sets[0], [plain(3, 5), Operand((3, 5), (4, 12), "float32"), plain(3, 5)]])


@pytest.mark.parametrize("name", ["updates.ADAM[True]", "updates.RMSPROP[(True, True)]"])
def test_the_struct_of_many_arrays_is_small_enough_to_be_passed(name):
    kernel = fused_kernels("float32")[name]
    launch = only(plan_many(kernel, [operands(kernel, (4, 4))] * 3))
    assert record(function(kernel, launch.form)[1]).itemsize <= 4096


def test_arguments_are_packed_as_c_lays_them_out():
    kernel = fused_kernels("float32")["cross_entropy._CROSS_ENTROPY[(False, False)]"]
    plan = make_plan(kernel, operands(kernel, (10, 100)))
    data = pack(kernel, plan.launches[0], range(1000, 7000, 1000), [-100.0], scratch=1 << 20)
    got = np.frombuffer(data, record(function(kernel, plan.launches[0].form)[1]))[0]
    assert [got[f"p{k}"] for k in range(6)] == [1000, 2000, 3000, 4000, 5000, 6000]
    assert (got["rows"], got["cols"], got["s0"]) == (10, 100, -100)
    assert got["m4"] == 1 << 20 and got["m5"] > got["m4"]


def test_what_does_not_fit_is_said():
    with pytest.raises(DTypeError, match="b is int32; an array of float32 is needed"):
        make_plan(ADD, [plain(3), plain(3, dtype="int32"), plain(3)])
    with pytest.raises(ShapeError, match=r"shapes \(3,\), \(4,\), \(3,\)"):
        make_plan(ADD, [plain(3), plain(4), plain(3)])
    with pytest.raises(ShapeError, match=r"out \(full\) is shape \(1, 3\)"):
        make_plan(ADD, [plain(2, 3), plain(3), plain(1, 3)])
    with pytest.raises(TypeError, match="2 arrays, 3 needed"):
        make_plan(ADD, [plain(3), plain(3)])
    many = Operand((2,) * 9, tuple(8 << 2 * k for k in reversed(range(9))), "float32")
    with pytest.raises(ShapeError, match="arrays of 9 axes that cannot be merged"):
        make_plan(ADD, [many] * 3)
