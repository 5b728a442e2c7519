"""Loops and branches beside JAX: generated programs, under every transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peers.generators.jax_control import program, state

real = pytest.importorskip("jax")
face = pytest.importorskip("disttrain.compat.jax")
pytestmark = pytest.mark.peer


def _loss(library: Any, run: Any) -> Any:
    lax = library.lax

    def f(floats: dict, n: Any) -> Any:
        out = run(lax, {**floats, "n": n})
        return lax.add(lax.reduce_sum(out["v"], (0,)), lax.reduce_sum(lax.sin(out["m"]), (0, 1)))

    return f


def _transforms(library: Any, run: Any) -> dict:
    jax, f = library, _loss(library, run)
    both = lambda s: ({"v": s["v"], "m": s["m"]}, s["n"])
    pairs = lambda s: ({k: np.stack([s[k], -s[k]]) for k in ("v", "m")}, np.stack([s["n"]] * 2))
    return {
        "values": lambda s: run(jax.lax, s),
        "jit": lambda s: jax.jit(lambda s: run(jax.lax, s))(s),
        "grad": lambda s: jax.grad(f)(*both(s)),
        "jit grad": lambda s: jax.jit(jax.grad(f))(*both(s)),
        "forward": lambda s: jax.jacfwd(f)(*both(s)),
        "vmap": lambda s: jax.vmap(f)(*pairs(s)),
        "jit vmap grad": lambda s: jax.jit(jax.vmap(jax.grad(f)))(*pairs(s)),
    }


def _leaves(x: Any) -> list:
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in _leaves(x[key])]
    return [x]


@pytest.mark.parametrize("seed", range(8))
def test_generated_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run, begin = program(rng, 1 + seed % 2), state(rng)
    ours, theirs = _transforms(face, run), _transforms(real, run)
    for name in ("values", rng.choice(list(ours)[1:])):
        found, want = _leaves(ours[name](begin)), _leaves(theirs[name](begin))
        for a, b in zip(found, want, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert a.dtype == b.dtype and a.shape == b.shape, name
            assert np.allclose(a, b, 1e-4, 1e-5, equal_nan=True), (name, a, b)
