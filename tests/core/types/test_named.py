"""Element types under other names."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain.core.types.named import NamedType


class Kind(NamedType):
    alias = {float: "float32"}


KINDS = Kind.declare({"float32": (1, "float"), "int8": (6, "int8"), "string": (7, "string"),
                      "complex64": (8, "complex64"), "bool": (10, "bool"),
                      "bfloat16": (14, "bfloat16"), "uint8": (4, "uint8")})  # fmt: skip


@pytest.mark.parametrize(("value", "name"), [
    ("float32", "float32"), (float, "float32"), (np.float32, "float32"), (dt.float32, "float32"),
    (np.dtype("int8"), "int8"), (6, "int8"), (bool, "bool"), (str, "string"), (object, "string"),
    ("S3", "string"), (dt.bfloat16, "bfloat16"), (KINDS["bool"], "bool"),
])  # fmt: skip
def test_what_means_a_type(value, name):
    assert Kind.of(value) is KINDS[name] and KINDS[name] == value


def test_what_is_none():
    for wrong in ("float16", 99, "nothing", []):
        with pytest.raises(TypeError, match="a type is needed"):
            Kind.of(wrong)
        assert KINDS["bool"] != wrong
    assert KINDS["bool"] is not None and KINDS["bool"] != None  # noqa: E711


def test_what_is_known_of_a_type():
    small, half, z = KINDS["uint8"], KINDS["bfloat16"], KINDS["complex64"]
    assert small.limits == (0, 255) and small.is_integer and small.is_unsigned and small.size == 1
    assert half.is_floating and half.inner is dt.bfloat16 and float(half.max) > 1e38
    assert z.real_dtype is KINDS["float32"] and KINDS["bool"].max is True
    with pytest.raises(TypeError, match="maximum value"):
        _ = z.max
    assert KINDS["string"].inner is None and small.is_compatible_with("uint8")
    assert pickle.loads(pickle.dumps(small)) is small
    assert {KINDS["bool"]: 1}[Kind.of("bool")] == 1
