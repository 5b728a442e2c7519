"""Are the gradients right? Compare them with central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import AutogradError
from .autograd import grad
from .grad_mode import enable_grad
from .tensor import Tensor, wrap


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **accepted: Any,
) -> bool:
    """Whether the gradients of ``func`` at ``inputs`` agree with differences.

    Inputs that require grad must be float64. Raises ``AutogradError`` naming input, output and
    element (or returns False).
    """
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [i for i, t in enumerate(given) if isinstance(t, Tensor) and t.requires_grad]
    if not checked:
        raise AutogradError("gradcheck: no input requires grad; there is nothing to check")
    for i in checked:
        if given[i].dtype.itemsize < 8:
            raise AutogradError(
                f"gradcheck: input {i} is {given[i].dtype!r}; differences need float64"
            )
    try:
        with enable_grad():
            _compare(func, given, checked, eps, atol, rtol)
    except AutogradError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func: Callable, given: tuple) -> list[Tensor]:
    out = func(*given)
    out = out if isinstance(out, (tuple, list)) else (out,)
    return [o for o in out if isinstance(o, Tensor) and o.dtype.is_floating_point]


def _compare(
    func: Callable, given: tuple, checked: Sequence[int], eps: float, atol: float, rtol: float
) -> None:
    outs = _outputs(func, given)
    for o, out in enumerate(outs):
        numeric = {i: _differences(func, given, i, o, eps) for i in checked}
        exact: dict[int, list] = {i: [] for i in checked}
        for k in range(out.shape.numel()):
            if not out.requires_grad:
                break
            seed = np.zeros(out.array.shape)
            seed.reshape(-1)[k] = 1.0
            rows = grad(
                out, [given[i] for i in checked], wrap(seed), retain_graph=True, allow_unused=True
            )
            for i, row in zip(checked, rows, strict=True):
                size = given[i].array.size
                exact[i].append(np.zeros(size) if row is None else row.array.reshape(-1))
        for i in checked:
            shape = (out.array.size, given[i].array.size)
            ours = np.array(exact[i]).reshape(shape) if exact[i] else np.zeros(shape)
            _same(i, o, ours, numeric[i].reshape(shape), atol, rtol)


def _differences(func: Callable, given: tuple, i: int, o: int, eps: float) -> np.ndarray:
    base = given[i].detach().array
    columns = []
    for k in range(base.size):
        sides = []
        for step in (eps, -eps):
            moved = base.copy()
            moved.reshape(-1)[k] += step
            shifted = wrap(moved).requires_grad_()
            args = tuple(shifted if j == i else t for j, t in enumerate(given))
            sides.append(_outputs(func, args)[o].array.astype(np.float64).reshape(-1).copy())
        columns.append((sides[0] - sides[1]) / (2 * eps))
    return np.array(columns).T if columns else np.zeros((0, 0))


def _same(i: int, o: int, exact: np.ndarray, numeric: np.ndarray, atol: float, rtol: float) -> None:
    bad = np.abs(exact - numeric) > atol + rtol * np.abs(numeric)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise AutogradError(
            f"gradcheck: the gradient of element {row} of output {o} with respect to element "
            f"{column} of input {i} is {exact[row, column]:.8g}; differences say "
            f"{numeric[row, column]:.8g} ({int(bad.sum())} of {bad.size} elements disagree)"
        )


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, **options: Any
) -> bool:
    """``gradcheck`` of the gradients themselves, for random cotangents."""
    given = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outs = _outputs(func, given)
    rng = np.random.default_rng(0)
    if grad_outputs is None:
        seeds = [wrap(rng.standard_normal(o.array.shape)).requires_grad_() for o in outs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    n = len(given)

    def first_derivatives(*args: Any) -> tuple:
        primals = args[:n]
        wanted = [t for t in primals if isinstance(t, Tensor) and t.requires_grad]
        results = _outputs(func, primals)
        rows = grad(results, wanted, list(args[n:]), create_graph=True, allow_unused=True)
        return tuple(r for r in rows if r is not None)

    return gradcheck(first_derivatives, (*given, *seeds), **options)
