"""The table of primitives: arguments to try each one with, for the tests of every rule.

A primitive declares its own samples, or is one number in, one number out and takes the default
ones, or needs arguments made by another primitive (``_MADE``), or stands in ``EXEMPT`` with the
reason why no rule of it can be tested by numbers.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import disttrain.compile
import disttrain.distributed
import disttrain.fft
import disttrain.keyed
import disttrain.linalg
import disttrain.nn
import disttrain.optim  # noqa: F401  (these declare primitives of their own)
from disttrain.core import Tensor, wrap
from disttrain.core.gate import Primitive
from disttrain.ops.declare import REGISTRY

# Functions of keys, which are no numbers that could be a little different.
KEYED = {n for n, p in REGISTRY.items() if p.args[:1] == ("keys",)} | {"key_of"}
EXEMPT = (
    {
        name: "writes to its arguments; tested in tests/optim and tests/core"
        for name, prim in REGISTRY.items()
        if prim.mutates
    }
    | {
        name: "draws random numbers; tested in tests/ops/functions/test_random.py"
        for name, prim in REGISTRY.items()
        if prim.random and not prim.samples
    }
    | {
        name: "makes a tensor from no tensor: it has no derivative and nothing to batch"
        for name, prim in REGISTRY.items()
        if not prim.args and not prim.samples and not prim.random and not prim.mutates
    }
    | {"eig": "has complex vectors of free phases; tested in tests/ops/primitives/factors"}
    | {"erfinv_single": "float32's polynomial in all types; see tests/ops/primitives/threefry"}
    | dict.fromkeys(KEYED, "a function of keys; tested in tests/ops/primitives/threefry, rejection")
    | {"window": "sees bytes of captured programs' memory; tested in tests/compile"}
)

NAMES = sorted(set(REGISTRY) - set(EXEMPT))

_WINDOW = {
    "kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False,
}  # fmt: skip


def _pooled(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    image = rng.permuted(np.arange(32.0)).reshape(1, 2, 4, 4)
    return image, REGISTRY["max_pool"].compute((image,), _WINDOW)


def _spread(rng: np.random.Generator) -> list:
    image, best = _pooled(rng)
    return [((rng.normal(size=best.shape), image, best), _WINDOW)]


def _pick(rng: np.random.Generator) -> list:
    image, best = _pooled(rng)
    return [((rng.normal(size=image.shape), image, best), _WINDOW)]


def _rows(rng: np.random.Generator) -> list:
    scores, classes = rng.normal(size=(4, 3)), np.array([0, 2, 1, 2])
    out = []
    for scale, weight, smoothing in (
        (rng.normal(size=4), None, 0.0),
        (np.array(0.7), rng.uniform(0.5, 2, 3), 0.1),
    ):
        params = {"ignore_index": 1, "smoothing": smoothing}
        _, lse, _ = REGISTRY["cross_entropy"].compute(
            (scores, classes, weight), {**params, "reduction": "none"}
        )
        out.append(((scale, scores, classes, weight, lse), params))
    return out


def _view_write(rng: np.random.Generator) -> list:
    rows = ((REGISTRY["getitem"], {"index": (slice(1, 3),)}),)
    turned = (
        (REGISTRY["permute"], {"dims": (1, 0)}),
        (REGISTRY["getitem"], {"index": (2,)}),
    )
    return [
        ((rng.normal(size=(3, 4)), rng.normal(size=(2, 4))), {"chain": rows}),
        ((rng.normal(size=(3, 4)), rng.normal(size=(3,))), {"chain": turned}),
    ]


_MADE = {
    "max_pool_spread": _spread,
    "max_pool_pick": _pick,
    "max_pool_indices": lambda rng: [(_pooled(rng), _WINDOW)],
    "cross_entropy_backward": _rows,
    "view_write": _view_write,
}

_WHOLE = {"bitwise_not"}

# Arguments that the rules treat as constants (class weights), or whose derivative they refuse.
CONSTANT = {
    "cross_entropy": {2},
    "cross_entropy_backward": {3, 4},
    "igamma": {0},
    "igammac": {0},
    "heaviside": {0, 1},
    "ldl_solve": {0},
    "zeta": {0},
    "standard_gamma_grad": {0},
    "dirichlet_grad": {0, 1, 2},
    "fake_quantize": {0, 1},  # straight through the rounding, of which this is no derivative
}  # fmt: skip


def settle(name: str, args: tuple, params: dict) -> tuple:
    """``args`` with those that belong together made to fit: log-sum-exps follow their scores, the
    result of a pooling its input, matrices are symmetric."""
    args = list(args)
    if name == "cross_entropy_backward":
        args[4] = REGISTRY["logsumexp"].compute((args[1],), {"dims": (1,), "keepdim": False})
    elif name in ("cholesky", "eigh"):  # of symmetric matrices one triangle is read
        args[0] = (args[0] + np.swapaxes(args[0], -1, -2)) / 2
    elif name.startswith("max_pool_"):
        args[-1] = REGISTRY["max_pool"].compute((args[-2],), params)
    return tuple(args)


def samples(name: str) -> list[tuple[tuple, dict]]:
    """(args, params) to try the primitive with: float64 arrays, the same on every call."""
    prim = REGISTRY[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name in _MADE:
        return _MADE[name](rng)
    if prim.samples:
        return prim.samples(rng)
    if name in _WHOLE:
        return [((rng.integers(0, 9, (3, 4)),), {})]
    assert prim.elementwise, f"{name} has no samples: give it some, or exempt it with a reason"
    a = rng.normal(size=(3, 4))
    if len(prim.args) == 1:
        return [((a,), {}), ((rng.normal(size=()),), {})]
    return [
        ((a, rng.normal(size=(4,))), {}),
        ((rng.normal(size=(3, 1)), rng.normal(size=(2, 1, 4))), {}),
        ((rng.normal(size=()), a), {}),
    ]


def many(result: Any) -> tuple:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def tensor(a: Any) -> Any:
    """Arrays as tensors over a copy of them, the rest as it is."""
    return wrap(a.copy()) if isinstance(a, np.ndarray) else a


def floating(prim: Primitive, args: tuple) -> list[int]:
    """Places of the arguments that can have a gradient by the primitive's rules."""
    return [
        i
        for i, a in enumerate(args)
        if isinstance(a, np.ndarray)
        and a.dtype.kind == "f"
        and _has_rule(prim, i)
        and i not in CONSTANT.get(prim.name, ())
    ]


def _has_rule(prim: Primitive, i: int) -> bool:
    if prim.vjp_all is not None:
        return True
    return i < len(prim.rules) and prim.rules[i].__name__ != "_no_gradient"


def smooth_outputs(prim: Primitive, outs: tuple) -> list[int]:
    """Numbers of the outputs that a gradient can start from."""
    kinds = [(o.meta()[1] if isinstance(o, Tensor) else o.dtype).kind for o in outs]
    return [k for k, kind in enumerate(kinds) if kind == "f" and k not in prim.nondiff_outputs]


def call(prim: Primitive, args: tuple, params: dict) -> tuple:
    """Every output of the primitive on tensors."""
    return many(prim(*args, **params))
