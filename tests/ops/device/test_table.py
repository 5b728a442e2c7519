"""What files of devices share: conversions, new arrays, many axes, half types in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from disttrain.backends.device.platform import platform
from disttrain.ops.declare import REGISTRY
from disttrain.ops.device import table
from support.on_device import agree

pytestmark = pytest.mark.usefixtures("double")

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def up(a):
    return platform("cuda").upload(np.asarray(a), 0)


def down(a):
    return platform("cuda").download(a)


@pytest.mark.parametrize("into", ["f8", "f4", "f2", BF16, "i8", "i2", "u1", "?", "c8"], ids=str)
@pytest.mark.parametrize("kind", ["f4", BF16, "i4", "?", "c16"], ids=str)
def test_values_are_converted(kind, into):
    a = np.array([[0, 1, 2], [3, 0, 1]]).astype(kind)
    found = down(table.cast(platform("cuda"), up(a), np.dtype(into)))
    plain = a.real if np.dtype(kind).kind == "c" and np.dtype(into).kind != "c" else a
    assert found.dtype == np.dtype(into)
    np.testing.assert_array_equal(found.astype("c16"), plain.astype(into).astype("c16"))


def test_what_is_of_the_type_already_is_not_copied():
    a = up(np.ones(2, "f4"))
    cuda = platform("cuda")
    assert table.converted(cuda, a, np.dtype("f4")) is a
    assert table.converted(cuda, a, np.dtype("f8")) is not a
    again = table.cast(cuda, a, np.dtype("f4"))
    assert again is not a and down(again).tolist() == [1.0, 1.0]


def test_only_half_types_are_widened():
    cuda = platform("cuda")
    given = [up(np.ones(1, k)) for k in ("f2", BF16, "f8", "i2")]
    found = table.widened(cuda, *given, None, 2.5)
    assert [a.dtype for a in found[:4]] == ["f4", "f4", "f8", "i2"] and found[4:] == [None, 2.5]
    assert found[2] is given[2]


def test_half_types_are_rounded_once():
    seen = []

    @table.through_float32
    def thrice(platform, a, b):
        seen.append((a.dtype, b.dtype))
        return (a + b) + b

    cuda = platform("cuda")
    one, small = np.ones(1, BF16), np.full(1, 2**-8, BF16)
    found = down(thrice(cuda, up(one), up(small)))
    assert seen == [("f4", "f4")] and found.dtype == BF16
    assert found.astype("f4")[0] == 1 + 2**-7  # step by step in bfloat16 it would stay 1
    assert thrice(cuda, up(np.ones(1)), up(np.ones(1))).dtype == "f8" and seen[-1] == ("f8", "f8")
    flags = table.through_float32(lambda platform, a: a > 0)(cuda, up(one))
    assert flags.dtype == bool


def test_results_lie_as_their_argument_does():
    cuda = platform("cuda")
    turned = up(np.ones((2, 3), "f4")).T
    made = table.made_like(cuda, turned, (3, 2), np.dtype("f8"))
    assert made.strides == (8, 24) and made.dtype == "f8"
    assert table.made_like(cuda, turned, (2, 2), np.dtype("f4")).flags.c_contiguous


def test_more_axes_than_kernels_walk():
    shape = (2, 1, 2, 1, 2, 1, 2, 1, 2, 3)
    assert len(shape) > table.MOST_AXES
    a = RNG.standard_normal(shape).astype("f4")
    agree("mul", a, np.float32(2.0) * np.ones((3,), "f4"))
    agree("cast", a, dtype=np.dtype("f8"))
    agree("add", np.broadcast_to(a[..., :1], shape), a)


def test_names_of_types_that_kernels_know():
    assert (
        table.NAME_OF[np.dtype("f4")] == "float32" and table.NAME_OF[np.dtype(BF16)] == "bfloat16"
    )
    assert table.NAME_OF[np.dtype("c8")] is None and table.NAME_OF[np.dtype("S1")] is None
    assert table.type_named("bfloat16") == BF16 and table.number(np.float64(2)) == 2.0


def test_a_primitive_has_one_way_there():
    with pytest.raises(AssertionError, match="matmul is given twice"):
        table.on_device("matmul")(lambda platform, a, b: None)
    before = REGISTRY["matmul"].on_device
    assert before is not None
