"""What a drawn case of ``generators/unusual.py`` gives in both libraries, and here compiled and
mapped: values, gradients, gradients of those."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from peers.generators.unusual import CASES

_FAR = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2, "complex64": 3e-5}


def _drawn(name: str, T: Any, seed: int) -> tuple[Any, list[Any]]:
    return CASES[name](T, random.Random(f"{name} {seed}"))


def _listed(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def _numbers(T: Any, t: Any) -> np.ndarray:
    t = t.detach().resolve_conj()
    half = t.dtype in (T.bfloat16, T.float16)
    return np.asarray((t.float() if half else t.clone()).numpy())


def found(T: Any, name: str, seed: int, twice: bool = False) -> Any:
    """Results and gradients with their types, or the error."""
    run, given = _drawn(name, T, seed)
    leaves = [t.detach() for t in given]
    for t in leaves:
        if t.is_floating_point():
            t.requires_grad_()
    try:
        outs = _listed(run(*leaves))
    except Exception as error:
        return error
    kept = [t for t in leaves if t.requires_grad]
    ends = [o for o in outs if o.requires_grad]
    grads: list[Any] = []
    if kept and ends:
        rng = random.Random(seed)
        gs = [T.arange(o.numel()).remainder(rng.choice((3, 7))).sub(1).to(o.dtype).reshape(o.shape)
              for o in ends]  # fmt: skip
        ordinary = all(bool((t.detach().isfinite() & (t.detach() != 0)).all()) for t in leaves)
        twice = twice and leaves[0].dtype == T.float64 and ordinary
        grads = list(T.autograd.grad(ends, kept, gs, allow_unused=True, create_graph=twice))
        live = [g for g in grads if g is not None and g.requires_grad]
        if twice and live:
            grads += T.autograd.grad([(g * g).sum() for g in live], kept, allow_unused=True)
    return [(None if t is None else (_kind(t), _numbers(T, t)))
            for t in (*outs, *grads)]  # fmt: skip


def _differs(a: Any, b: Any, kind: str) -> str:
    if a is None or b is None:  # which is another way to say zeros
        other = a or b
        return "" if other is None or not other[1].any() else "is None in one"
    (one, x), (other, y) = a, b
    if one != other or x.shape != y.shape:
        return f"is {one}{x.shape}, not {other}{y.shape}"
    far = max(_FAR.get(kind, 0.0), _FAR.get(one, 0.0)) if x.dtype.kind in "fc" else 0.0
    with np.errstate(all="ignore"):
        there = np.abs(y[np.isfinite(y)]) if far else np.zeros(0)
        beside = far * max(1.0, float(there.max(initial=0)))
        close = np.isclose(x, y, far, beside, equal_nan=True)
    if np.all(close):
        return ""
    at = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(~close)))[: x.ndim]
    there = f"{x[at]}, not {y[at]}" if x.ndim else f"{x}, not {y}"
    return f"differs at {at} of {x.shape}: {there} ({int(np.sum(~close))} do)"


def differences(ours: Any, theirs: Any, name: str, seed: int) -> list[str]:
    """Where the results are not those of the peer."""
    a, b = found(ours, name, seed, True), found(theirs, name, seed, True)
    if isinstance(a, Exception) or isinstance(b, Exception):
        both = isinstance(a, Exception) and isinstance(b, Exception)
        if both or isinstance(b, NotImplementedError) or "view size is not" in str(b):
            return []
        return [f"{name} {seed}: {a if isinstance(a, Exception) else 'no error'!r}, "
                f"not {b if isinstance(b, Exception) else 'a result'!r}"[:300]]  # fmt: skip
    a, b = (list(r) + [None] * (max(len(a), len(b)) - len(r)) for r in (a, b))
    kind = _kind(_drawn(name, ours, seed)[1][0])
    wrong = [(k, _differs(x, y, kind)) for k, (x, y) in enumerate(zip(a, b))]
    return [f"{name} {seed} {kind}: result {k} {w}" for k, w in wrong if w]


def bits(T: Any, name: str, seed: int) -> list[str]:
    """Where compiled code does not give the same bits, or a map over one more dimension other
    numbers: a product of another shape may add up in another order."""
    run, given = _drawn(name, T, seed)
    if any(not t.is_floating_point() for t in given):
        return []

    def every(*tensors: Any) -> list[Any]:
        leaves = [t.detach().requires_grad_() for t in tensors]
        outs = _listed(run(*leaves))
        ends = [o for o in outs if o.requires_grad]
        grads = T.autograd.grad(ends, leaves, [o.detach() + 1 for o in ends], allow_unused=True)
        return [o.detach() for o in outs] + [g for g in grads if g is not None]

    try:
        plain = every(*given)
    except Exception:
        return []
    compiled = T.compile(every)
    wrong = [f"{name} {seed}: compiled result {k} differs (call {turn})"
             for turn in range(3)
             for k, (a, b) in enumerate(zip(plain, compiled(*given)))
             if not _same(T, a, b)]  # fmt: skip
    try:
        mapped = T.func.vmap(lambda *a: tuple(_listed(run(*a))))(*(T.stack([t, t]) for t in given))
    except Exception as error:
        return [*wrong, f"{name} {seed}: mapped: {error}"[:300]]
    kind = _kind(given[0])
    for k, (a, b) in enumerate(zip(plain, mapped)):
        for one in b:
            found = _differs((_kind(one), _numbers(T, one)), (_kind(a), _numbers(T, a)), kind)
            wrong += [f"{name} {seed}: mapped result {k} {found}"] if found else []
    return wrong


def _kind(t: Any) -> str:
    return str(t.dtype).split(".")[-1]


def _same(T: Any, a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and np.array_equal(_numbers(T, a), _numbers(T, b), equal_nan=True)
