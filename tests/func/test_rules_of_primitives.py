"""jvp and vmap of every primitive with samples, against differences and the loop."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import disttrain.fft
import disttrain.keyed
import disttrain.linalg  # noqa: F401  (these declare primitives of their own)
from disttrain import func
from disttrain.core import Tensor, wrap
from disttrain.ops.declare import REGISTRY
from support.cases.table import CONSTANT, EXEMPT

NAMES = sorted(
    n
    for n, p in REGISTRY.items()
    if p.samples and not p.random and not p.mutates and n not in EXEMPT
)
SMOOTH = [n for n in NAMES if REGISTRY[n].differentiable]


def samples(name):
    return REGISTRY[name].samples(np.random.default_rng(zlib.crc32(name.encode())))


def many(result):
    return result if isinstance(result, (tuple, list)) else (result,)


def floating(a):
    return isinstance(a, np.ndarray) and a.dtype == np.float64


# What may not vary: class weights, and what no derivative is known for.
FIXED = {**CONSTANT, "cross_entropy_backward": {2}}
SYMMETRIC = ("cholesky", "eigh")  # of these matrices one triangle is read


def positions(name, args, wanted):
    """Where ``args`` has arrays that may vary."""
    fixed = FIXED.get(name, ())
    return [i for i, a in enumerate(args) if wanted(a) and i not in fixed]


def along(prim, args, params, places):
    """``prim`` as a function of its floating arguments."""

    def run(*values):
        full = list(args)
        for i, v in zip(places, values, strict=True):
            full[i] = v
        ready = [wrap(a) if isinstance(a, np.ndarray) else a for a in full]
        return tuple(o for o in many(prim(*ready, **params)) if isinstance(o, Tensor))

    return run


@pytest.mark.parametrize("name", SMOOTH)
def test_jvp_is_the_difference_quotient(name):
    prim = REGISTRY[name]
    rng = np.random.default_rng(1)
    for args, params in samples(name):
        places = positions(name, args, floating)
        if not places:
            continue
        values = [args[i] for i in places]
        moves = [rng.normal(size=v.shape) for v in values]
        if name in SYMMETRIC:
            moves = [m + np.swapaxes(m, -1, -2) for m in moves]
        run, h = along(prim, args, params, places), 1e-6
        _, got = func.jvp(run, tuple(map(wrap, values)), tuple(map(wrap, moves)))
        up = run(*[wrap(v + h * m) for v, m in zip(values, moves, strict=True)])
        down = run(*[wrap(v - h * m) for v, m in zip(values, moves, strict=True)])
        for k, (g, u, d) in enumerate(zip(got, up, down, strict=True)):
            if k in prim.nondiff_outputs or u.array.dtype.kind != "f":
                continue
            want = (u.array - d.array) / (2 * h)
            np.testing.assert_allclose(g.numpy(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:vmap. .* runs once per example")
@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_the_loop(name):
    prim, size = REGISTRY[name], 3
    rng = np.random.default_rng(0)
    for args, params in samples(name):
        places = positions(name, args, lambda a: isinstance(a, np.ndarray))
        for chosen in {tuple(places), *[(i,) for i in places if floating(args[i])]}:
            if not chosen:
                continue
            rows = [
                [args[i] * s if floating(args[i]) else args[i] for i in chosen]
                for s in rng.uniform(0.8, 1.2, size)
            ]
            run = along(prim, args, params, chosen)
            got = func.vmap(run)(*[wrap(np.stack(column)) for column in zip(*rows, strict=True)])
            want = [run(*map(wrap, row)) for row in rows]
            for k, g in enumerate(got):
                stacked = np.stack([w[k].array for w in want])
                np.testing.assert_allclose(g.numpy(), stacked, rtol=1e-9, atol=1e-12)
