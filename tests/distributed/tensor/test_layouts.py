"""Every primitive's samples, cut at random over meshes, equal one process: values, gradients.

``python tests/distributed/tensor/test_layouts.py SEED TIMES [NAME ...]`` runs as many random
placements per sample as one likes.
"""

from __future__ import annotations

import sys
import warnings
import zlib

import numpy as np
import pytest

import disttrain as dt
import disttrain.fft
import disttrain.keyed
import disttrain.linalg
import disttrain.nn
import disttrain.optim
from disttrain import core
from disttrain.core.gate import gate
from disttrain.ops.declare import REGISTRY
from disttrain.ops.layouts import RULES
from support.cases.table import KEYED
from support.meshes import run_on, some_placements, spread

pytestmark = pytest.mark.simulated

SHAPES = [(2,), (3,), (2, 2)]
# These have no derivative by their first argument, or by none.
STEPWISE = {
    "heaviside", "igamma", "igammac", "zeta", "standard_gamma_grad", "dirichlet_grad",
}  # fmt: skip


def samples(prim) -> list:
    if prim.samples is not None:
        return prim.samples(np.random.default_rng(0))
    if not prim.elementwise or prim.name in ("clone", "cast"):
        return []
    draw = np.random.default_rng(5)
    given = tuple(draw.uniform(0.2, 0.9, (3, 4)) for _ in prim.args)
    return [(tuple(np.round(a * 9).astype(np.int64) for a in given), {})
            if prim.name == "bitwise_not" else (given, {})]  # fmt: skip


def runnable() -> list:
    return [p for p in REGISTRY.values() if not p.mutates and not p.random and p.name not in KEYED]


def tensor(a):
    return core.wrap(np.array(a)) if isinstance(a, np.ndarray) else a


def close(got, want) -> None:
    got, want = got.full_tensor().detach(), want.detach()
    assert got.shape == want.shape and got.dtype == want.dtype
    tol = 1e-6 if want.dtype == dt.float32 else 1e-9
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=tol, atol=tol)


def check(mesh, cases) -> None:
    for prim, args, params, seed in cases:
        rng = np.random.default_rng(seed)
        plain = [tensor(a) for a in args]
        placed = [
            spread(t, mesh, some_placements(rng, t.array, mesh.ndim)) if isinstance(t, dt.Tensor)
            else t for t in plain
        ]  # fmt: skip
        wanted = [
            i for i, t in enumerate(plain)
            if isinstance(t, dt.Tensor) and t.array.dtype.kind in "fc" and prim.differentiable
        ]  # fmt: skip
        if prim.name in STEPWISE:
            wanted = []
        for i in wanted:
            plain[i].requires_grad_()
            placed[i] = placed[i].detach().requires_grad_()
        ones, many = gate(prim, tuple(plain), params), gate(prim, tuple(placed), params)
        if not prim.multi:
            ones, many = (ones,), (many,)
        for got, want in zip(many, ones, strict=True):
            close(got, want)
        pairs = [
            (x, y) for k, (x, y) in enumerate(zip(ones, many, strict=True))
            if x.requires_grad and k not in prim.nondiff_outputs
        ]  # fmt: skip
        if not wanted or not pairs:
            continue
        given = [core.wrap(rng.normal(size=x.shape).astype(x.array.dtype)) for x, _ in pairs]
        there = [spread(g, mesh, some_placements(rng, g.array, mesh.ndim)) for g in given]
        one = dt.autograd.grad(
            [x for x, _ in pairs], [plain[i] for i in wanted], given, allow_unused=True
        )
        other = dt.autograd.grad(
            [y for _, y in pairs], [placed[i] for i in wanted], there, allow_unused=True
        )
        for a, b in zip(one, other, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                close(b, a)


def cases(shape: tuple, times: int, seed: int, names=()) -> list:
    found = []
    for prim in runnable():
        if names and prim.name not in names:
            continue
        for k, (args, params) in enumerate(samples(prim)):
            for r in range(times):
                number = zlib.crc32(f"{prim.name} {k} {r} {seed} {shape}".encode())
                found.append((prim, args, params, number))
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.filterwarnings("ignore:DTensor. .*has no rule")
def test_every_primitive_in_pieces_is_the_primitive(shape):
    run_on(shape, check, cases(shape, 1, 0))


def test_every_primitive_has_a_rule_or_is_known_to_have_none():
    named = {p.name for p in runnable() if not p.elementwise and p.args}
    # There once something was compiled, or is sparse; what is sharded runs eagerly, and is dense.
    other = {"window", "sampled_product", "sparse_product"}
    assert named - set(RULES) - other == {"as_strided", "unstride"}
    apart = {"searchsorted", "check_index", "check_classes", "check_probabilities"}
    assert set(RULES) - apart <= set(REGISTRY)


def main(seed: int, times: int, names: list) -> None:
    failed: dict = {}
    for shape in SHAPES:
        for case in cases(shape, times, seed, names):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    run_on(shape, check, [case])
            except Exception as error:
                prim, args, params, number = case
                shapes = [getattr(a, "shape", a) for a in args]
                cause = str(error.__cause__)[:300]
                failed.setdefault(prim.name, []).append((shape, shapes, params, number, cause))
    for name, found in failed.items():
        print(name, len(found), *found[0])
    print(f"{len(failed)} primitives failed; {disttrain.__version__}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
