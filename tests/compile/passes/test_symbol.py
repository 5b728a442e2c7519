"""Every operation that kernels take over gives its own bits in a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.compile import capture
from disttrain.compile.passes import fuse
from disttrain.compile.passes.expressions import expressions_of
from disttrain.compile.passes.region import Region
from disttrain.compile.passes.symbol import _BY_OWN_EXPRESSION, _EXPRESSIONS, _KERNELS_OF_ONE_TYPE
from disttrain.ops.declare import REGISTRY

ODD = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.5, -2.5, 3e38, -3e38, 0.25, 88.0, -88.0]
EXTRA = {"clip": {"low": -1.0, "high": 2.0}, "masked_scale": {"scale": 1.25}}


def numbers(kind, seed):
    rng = np.random.default_rng(seed)
    drawn = np.concatenate(
        [rng.permutation(ODD), rng.normal(size=51) * 10.0 ** rng.integers(-9, 9)]
    )
    return drawn.astype(kind)


def arguments(name, kind, prim):
    """Arrays that the primitive takes."""
    if name == "pow":  # of numbers as exponents
        return [numbers(kind, 0)]
    count = len(prim.args)
    given = [numbers(kind, seed) for seed in range(count)]
    if name == "where":
        given[0] = given[0] > 0
    if name == "masked_scale":
        given[1] = given[1] > 0
    return given


CASES = [
    (name, kind, power)
    for name in (*sorted(_BY_OWN_EXPRESSION), *_EXPRESSIONS)
    for kind in ("float32", "float64")
    if kind == "float32" or name not in _KERNELS_OF_ONE_TYPE
    for power in ((2, 2.0, 3, -1.0, -2, 0.5, -0.5) if name == "pow" else (None,))
]


@pytest.mark.parametrize(("name", "kind", "power"), CASES)
@np.errstate(all="ignore")
def test_a_kernel_gives_the_bits_of_the_operation(name, kind, power):
    prim = REGISTRY[name]
    given, params = arguments(name, kind, prim), EXTRA.get(name, {})
    tensors = [dt.tensor(a) for a in given]

    more = (power,) if name == "pow" else ()

    def fn(*xs):
        return prim(*xs, *more, **params)

    graph = capture(fn)(*tensors)[1]
    (ins,) = graph.instructions
    if expressions_of(ins, graph.metas) is None:
        pytest.fail(f"{name} of {kind} has no expression")
    whole = Region([ins], list(graph.inputs), list(ins.outputs), graph.metas)
    whole.left = 0
    got, expected = whole.run(*given), prim.compute([*given, *more], params)
    assert got.dtype == expected.dtype
    assert got.tobytes() == expected.tobytes()


def test_numbers_that_another_type_rounds_otherwise_are_not_taken():
    for constant in (1e300, 1e-300):
        graph = capture(lambda x, c=constant: x * c)(dt.ones(3, dtype=dt.float64))[1]
        assert expressions_of(graph.instructions[0], graph.metas) is None


def test_what_is_numpys_and_integers_are_not_taken():
    for name, kind in (("sin", dt.float32), ("exp", dt.float64)):
        graph = capture(lambda x, name=name: getattr(x, name)() * 2)(dt.ones(3, dtype=kind))[1]
        assert [i.prim.name for i in fuse(graph).instructions] == [name, "mul"]
    graph = capture(lambda x: x * 2 + 1)(dt.arange(3))[1]
    assert len(fuse(graph).instructions) == 2
