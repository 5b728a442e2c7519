"""Every primitive of the table on the strict device double: ``cpu = cuda`` for every rule, with no
copy between host and device and no wait.

EVERY_DEVICE_SAMPLE=1 tries every rule in every type with all samples; without it the types take
turns and rules of second order are left to those of first order that make them up.
"""

from __future__ import annotations

import os
import zlib

import pytest

from disttrain.core.types import dtypes
from disttrain.ops.declare import REGISTRY
from support.cases.device_table import Rules
from support.cases.table import NAMES

EVERY = bool(os.environ.get("EVERY_DEVICE_SAMPLE"))
TYPES = ("float64", "float32", "bfloat16", "float16")
MOVES = {"to_copy"}  # is the copy between host and device: tests/core
APART = {"ldl_factor", "ldl_solve", "matrix_exp"}  # refused, or the host waits: test_factors.py
ON_DEVICES = [n for n in NAMES if n not in MOVES | APART]
SMOOTH = [n for n in ON_DEVICES if REGISTRY[n].differentiable]


def kinds(name):
    """All types, or double precision and one of the others."""
    return TYPES if EVERY else ("float64", TYPES[1 + zlib.crc32(name.encode()) % 3])


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in ON_DEVICES for k in kinds(n)])
def test_forward(double, name, kind):
    Rules(double, getattr(dtypes, kind).np).check("forward", name)


RULES = ("vjp", "jvp", "second", "batch") if EVERY else ("vjp", "jvp")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SMOOTH)
def test_rule(double, name, rule):
    Rules(double, dtypes.float64.np).check(rule, name, None if EVERY else 2)
