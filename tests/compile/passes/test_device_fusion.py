"""Fusion on the device stand-in: drawn programs have eager's bits, in fewer launches."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from disttrain.compile.passes import device_region, overwriting
from support.cases.drawn_chains import ONE, difference, draw, draw_layouts

PARTS, EACH, LAYOUTS = 4, 30, 80
TYPES = ("f4", "f4", "bfloat16", "bfloat16", "float16", "f8")
MORE = [
    *ONE, "{a}.sin()", "{a}.to(dt.bfloat16)", "{a}.to(dt.float16)", "{a}.isfinite() * {a}",
    "{a} ** 0.3", "{a} ** -1", "{a}.trunc()", "{a}.sign()", "{a}.log1p()", "{a}.expm1()",
]  # fmt: skip

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_chains_have_eagers_bits(part, monkeypatch):
    monkeypatch.setattr(device_region, "_RUNS", part % 2)
    monkeypatch.setattr(overwriting, "_WORTH", 0)
    for seed in range(part * EACH, (part + 1) * EACH):
        case = draw(seed, TYPES, MORE)
        why = difference(*case, budget=1.0 if part < 2 else 0.0, device="cuda")
        assert why is None, f"seed {seed}\n{why}"


def test_compiled_chains_lie_as_eagers_do(monkeypatch):
    monkeypatch.setattr(device_region, "_RUNS", 0)
    monkeypatch.setattr(overwriting, "_WORTH", 0)
    for seed in range(LAYOUTS):
        why = difference(*draw_layouts(seed, TYPES), device="cuda", calls=3)
        assert why is None, f"seed {seed}\n{why}"
