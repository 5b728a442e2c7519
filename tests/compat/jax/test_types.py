"""JAX's lattice of element types."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.compat.jax.types import canonical, of_number, result_kind

pytestmark = pytest.mark.simulated


def kind(name, weak=False):
    return canonical(name), weak


@pytest.mark.parametrize(
    "one, other, want",
    [
        (kind("int8"), kind("uint8"), kind("int16")),
        (kind("uint32"), kind("int8"), kind("int32")),  # int64, where 64 bits are kept
        (kind("uint8"), of_number(300), kind("uint8")),
        (kind("int32"), of_number(1.0), kind("float32", True)),
        (kind("float16"), kind("int32"), kind("float16")),
        (kind("float32"), of_number(1j), kind("complex64")),
        (kind("bool"), of_number(True), kind("bool")),
        (of_number(1), of_number(2.0), kind("float32", True)),
        (kind("bool"), of_number(1), kind("int32", True)),
    ],
)
def test_two_kinds_meet(one, other, want):
    assert result_kind(one, other) == result_kind(other, one) == want


def test_types_of_64_bits_are_halved():
    assert canonical(float) == np.float32 and canonical("uint64") == np.uint32
    assert canonical(complex) == np.complex64 and canonical("bfloat16").name == "bfloat16"
