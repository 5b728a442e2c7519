"""Run a step compiled and eagerly, on twins of all its state, and compare every number."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt
from disttrain import tree


def frozen(value: Any) -> Any:
    """A value that later writes do not change, for comparing."""
    if isinstance(value, dt.Tensor):
        grad = None if value.grad is None else frozen(value.grad)
        array = value.detach().cpu().numpy().copy()
        return str(value.dtype), array.shape, array.tobytes(), value.requires_grad, grad
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [frozen(v) for v in value]
    if isinstance(value, dict):
        return [(k, frozen(v)) for k, v in value.items()]
    return type(value).__name__, repr(value)


def run(make: Callable, compiled: bool, calls: int, versions: bool = False) -> tuple[list, Any]:
    """``make()`` gives (step, between, look): call the step, look at all numbers, then let
    ``between(i)`` change what it likes. Returns what was seen, and the compiled step. ``versions``:
    look at how often leaves were written to, too."""
    dt.manual_seed(7)
    step, between, look = make()
    if compiled:
        step = dt.compile(step)
    seen = []
    for i in range(calls):
        result = between(i, step)
        state = look()
        tensors = [t for t in tree.leaves(state) if isinstance(t, dt.Tensor)]
        writes = [t._version for t in tensors if t.requires_grad and versions]
        drawn = dt.default_generator.get_state()
        seen.append((frozen(tree.leaves(result)), frozen(state), writes, frozen(drawn)))
    return seen, step


def difference(make: Callable, calls: int) -> str | None:
    """Where the compiled step and the eager one part, if they do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, _ = run(make, False, calls, True)
        try:
            found, step = run(make, True, calls, True)
        except Exception as error:
            return f"compiled raises {type(error).__name__}: {error}"
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if a != b:
            return f"call {i}: eager {a}\ncompiled {b}\n{step.explain()}"
    return None


def check(make: Callable, calls: int = 5, warns: bool | None = None) -> Any:
    """Compiled equals eager, call by call. ``warns``: whether it must (not) say that it runs
    eagerly."""
    expected, _ = run(make, False, calls)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found, step = run(make, True, calls)
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        assert a == b, f"call {i} differs: eager {a}, compiled {b}\n{step.explain()}"
    said = [str(w.message) for w in seen if "runs eagerly" in str(w.message)]
    assert warns is None or bool(said) == warns, (said, step.explain())
    assert len(said) <= 1, said
    return step
