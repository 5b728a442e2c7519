"""Ranges of dimensions, as programs allow them."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import CaptureError
from disttrain.nn import functional as F
from support.cases.exported import drawn


def test_named_dimensions_that_a_program_fixes():
    def fn(x):
        if x.shape[0] == 3:
            x = x.reshape(3, -1)
        return x

    with pytest.raises(CaptureError, match=r"dimension 0 of x \('n'\) cannot change: it must be 3 "
                       r"at .*test_ranges.py:\d+ in fn. Leave it out"):  # fmt: skip
        dt.export(fn, (dt.ones(3, 4),), dynamic={"x": {0: "n"}})
    assert list(dt.export(fn, (dt.ones(3, 4),), dynamic=True).dims) == ["x_1"]


def test_two_names_of_one_size():
    args = dt.ones(3, 4), dt.ones(4)
    with pytest.raises(CaptureError, match=r"'j' and 'k' must be equal at .*one name"):
        dt.export(lambda x, y: x + y, args, dynamic={"x": {1: "k"}, "y": {0: "j"}})
    auto = dt.export(lambda x, y: x + y, args, dynamic=True)
    assert list(auto.dims) == ["x_0", "x_1"] and str(auto.inputs[1]) == "y: float32[x_1]"
    mixed = dt.export(lambda x, y: x + y, args, dynamic={"x": {1: dt.Dim.AUTO}, "y": {0: "j"}})
    assert list(mixed.dims) == ["j"] and mixed(dt.ones(3, 7), dt.ones(7)).shape == (3, 7)


def test_ranges_are_narrowed_or_refused():
    def fn(x):
        return x[:4] if x.shape[0] > 4 else x

    program = dt.export(fn, (dt.ones(6),), dynamic={"x": {0: "n"}})
    assert program.dims["n"].min == 5 and program(dt.ones(5)).shape == (4,)
    with pytest.raises(CaptureError, match=r"'n' is to be 2 to 8; n > 4 is needed at .*ranges"):
        dt.export(fn, (dt.ones(6),), dynamic={"x": {0: dt.Dim("n", min=2, max=8)}})
    small = dt.export(fn, (dt.ones(3),), dynamic={"x": {0: dt.Dim("n", max=4)}})
    assert small.dims["n"].max == 4 and not small.relations


def test_examples_of_one_are_made_larger():
    program = dt.export(lambda x: x * 2, (dt.ones(1, 3),), dynamic={"x": {0: "b"}})
    assert program.examples == {"b": 2} and program.dims["b"].min == 1
    assert program(dt.ones(1, 3)).shape == (1, 3) and program(dt.ones(5, 3)).shape == (5, 3)
    empty = dt.export(lambda x: x * 2, (dt.ones(0, 3),), dynamic={"x": {0: dt.Dim("b", min=0)}})
    assert empty(dt.ones(0, 3)).shape == (0, 3)


def test_the_least_size_is_one_for_which_shapes_are_right():
    even = dt.export(lambda x: x.reshape(-1, 2), (drawn(0, 6),), dynamic={"x": {0: "n"}})
    assert even.dims["n"].min == 2
    with pytest.raises(CaptureError, match=r"'n' cannot be 1: 2\*\(n // 2\) == n is needed"):
        dt.export(lambda x: x.reshape(-1, 2), (drawn(0, 6),),
                  dynamic={"x": {0: dt.Dim("n", min=1)}})  # fmt: skip


def test_what_a_program_does_at_one_is_tried():
    """Symbols are sizes of 2 and more, so what Python decides by 1 is seen by a run with it."""

    def fn(x):
        return x * 2 if x.shape[0] == 1 else x + 1

    program = dt.export(fn, (drawn(0, 3, 2),), dynamic={"x": {0: "n"}})
    assert program.dims["n"].min == 2
    with pytest.raises(CaptureError, match="'n' cannot be 1: another result is computed there"):
        dt.export(fn, (drawn(0, 3, 2),), dynamic={"x": {0: dt.Dim("n", min=1)}})
    shaped = dt.export(lambda x: x.squeeze(), (drawn(0, 3, 2),), dynamic={"x": {0: "n"}})
    assert shaped.dims["n"].min == 2


def test_numbers_of_places_allow_one():
    def rope(x):
        angles = dt.arange(x.shape[1], dtype=dt.float32)[:, None] * dt.ones(4)
        return x * angles.cos()

    program = dt.export(rope, (drawn(0, 2, 3, 4),), dynamic={"x": {0: "b", 1: "t"}})
    assert [d.min for d in program.dims.values()] == [1, 1] and not program.relations
    assert dt.equal(program(drawn(1, 1, 1, 4)), rope(drawn(1, 1, 1, 4)))


def test_sizes_of_one_that_nobody_named():
    conv = dt.nn.Conv2d(1, 2, 3)
    program = dt.export(conv, (drawn(0, 1, 1, 5, 5),), dynamic=True)
    assert str(program.inputs[0]).startswith("input: float32[input_0, 1, input_2, input_3]")
    assert program(drawn(0, 4, 1, 7, 6)).shape == (4, 2, 5, 4)
    alone = dt.export(lambda x: x.reshape(1, 3) + 1, (drawn(0, 1, 3),), dynamic=True)
    assert alone.inputs[0].shape[0] == 1


def test_images_of_any_size():
    """Windows leave ranges, and nothing between the dimensions."""
    net = dt.nn.Sequential(dt.nn.Conv2d(1, 2, 3, padding=1, stride=2), dt.nn.MaxPool2d(2))
    program = dt.export(net, (drawn(0, 2, 1, 8, 8),), dynamic=[{0: "b", 2: "h", 3: "w"}])
    assert {n: d.min for n, d in program.dims.items()} == {"b": 1, "h": 3, "w": 3}
    assert all(len(r.names) == 1 for r, _ in program.relations)
    net.eval()
    for h, w in ((3, 9), (11, 4)):
        assert dt.equal(program(drawn(1, 1, 1, h, w)), net(drawn(1, 1, 1, h, w)))


def test_sizes_that_only_an_odd_relation_fixes():
    def fn(x):
        return x + 1 if x.shape[2] ** 2 == 25 else x

    assert dt.export(fn, (drawn(0, 1, 1, 5),), dynamic=True).inputs[0].shape[2] == 5
    with pytest.raises(CaptureError, match=r"dimension 2 of x \('n'\) cannot change"):
        dt.export(fn, (drawn(0, 2, 1, 5),), dynamic=[{2: "n"}])


RESIZED = {
    "mean of regions": lambda x: F.adaptive_avg_pool2d(x, 3),
    "mean of rows": lambda x: F.adaptive_avg_pool2d(x, (2, None)),
    "nearest": lambda x: F.interpolate(x, size=(9, 9)),
    "nearest exactly": lambda x: F.interpolate(x, size=(9, 7), mode="nearest-exact"),
    "by a half more": lambda x: F.interpolate(x, scale_factor=1.5),
    "half": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "area": lambda x: F.interpolate(x, size=(4, 5), mode="area"),
    "back again": lambda x: F.interpolate(F.max_pool2d(x, 2), size=x.shape[-2:]),
    "reflect": lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
    "replicate": lambda x: F.pad(x, (1, 2, 3, 1), mode="replicate"),
    "circular": lambda x: F.pad(x, (1, 2, 3, 1), mode="circular"),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
}


@pytest.mark.parametrize("name", RESIZED)
def test_sizes_stay_free_where_the_computation_allows_it(name, tmp_path):
    fn, which = RESIZED[name], {"x": {0: "b", 2: "h", 3: "w"}}
    if name == "attention":  # (its scale is a number)
        which["x"].pop(3)
    made = dt.export(fn, dt.ones(2, 3, 12, 14), dynamic=which)
    made.save(tmp_path / "m.dtp")
    program = dt.load_program(tmp_path / "m.dtp")
    assert not program.relations or "floor" in str(program.relations) or name == "back again"
    for b, h, w in ((1, 12, 14), (3, 11, 9), (2, 9, 9), (1, 370, 16)):
        x = dt.randn(b, 3, h, 14 if name == "attention" else w)
        np.testing.assert_allclose(program(x).numpy(), fn(x).numpy(), 1e-5, 1e-6)


def test_a_size_that_must_be_a_multiple_is_not_fixed():
    program = dt.export(
        lambda x: F.pixel_unshuffle(x, 2), dt.ones(1, 1, 4, 6),
        dynamic={"x": {2: "h", 3: "w"}},
    )  # fmt: skip
    assert program(dt.ones(1, 1, 8, 4)).shape == (1, 4, 4, 2)
    with pytest.raises(Exception, match="h"):
        program(dt.ones(1, 1, 7, 4))
