"""Orthogonal polynomials by their recurrences in three terms (Abramowitz and Stegun, 22.7): torch's
names, and as there without derivatives. Degrees that differ from element to element are taken from
one run up to the largest; of a device it is asked for, and the program waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.annotations import Operand
from ...core.grad_mode import no_grad
from ...core.tensor import Tensor, wrap
from ..primitives import elementwise as el
from ..promotion import float_args, refuse

_WIDE = np.dtype(np.float64)

Step = Callable[[Any, int, Any, Any], Any]  # (x, k, of degree k, of degree k - 1) -> of k + 1


def _chebyshev(x: Any, k: int, p: Any, q: Any) -> Any:
    return x * 2 * p - q


def _hermite(x: Any, k: int, p: Any, q: Any) -> Any:
    return x * 2 * p - q * (2 * k)


def _probabilists(x: Any, k: int, p: Any, q: Any) -> Any:
    return x * p - q * k


def _laguerre(x: Any, k: int, p: Any, q: Any) -> Any:
    return ((2 * k + 1 - x) * p - q * k) / (k + 1)


def _legendre(x: Any, k: int, p: Any, q: Any) -> Any:
    return (x * (2 * k + 1) * p - q * k) / (k + 1)


def _declared(name: str, first: Callable[[Any], Any], step: Step, shifted: bool = False) -> Any:
    """``first``: the polynomial of degree 1; ``shifted``: of 2x - 1."""

    def run(x: Operand, n: Operand) -> Tensor:
        if not isinstance(x, Tensor) and not isinstance(n, Tensor):
            raise TypeError(f"{name}: two numbers given; needed a tensor for x or for n")
        at, degree = float_args((x, n))
        kind = at.meta()[1] if isinstance(at, Tensor) else degree.meta()[1]
        if kind not in (np.dtype(np.float32), _WIDE):
            raise refuse(name, kind)
        with no_grad():
            return el.cast(_evaluated(_wide(at), _wide(degree), first, step, shifted), dtype=kind)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"The polynomials of degrees ``n`` at ``x``: {_TITLES[name]}."
    return run


def _wide(t: Any) -> Tensor:
    return el.cast(t.detach() if isinstance(t, Tensor) else wrap(np.asarray(t)), dtype=_WIDE)


def _evaluated(x: Tensor, n: Tensor, first: Any, step: Step, shifted: bool) -> Tensor:
    n = el.trunc(n)
    x = x * 2 - 1 if shifted else x
    before, here = x * 0 + 1, first(x)
    out = el.where(n < 0, 0.0, el.where(n == 0, before, here))
    most = int(n.max().item()) if n.shape.numel() else 0
    for k in range(1, most):
        before, here = here, step(x, k, here, before)
        out = el.where(n == k + 1, here, out)
    return out


_TITLES = {
    **{
        f"{prefix}chebyshev_polynomial_{letter}": f"Chebyshev's of the {which} kind{of}"
        for letter, which in zip("tuvw", ("first", "second", "third", "fourth"), strict=True)
        for prefix, of in (("", ""), ("shifted_", ", of 2x - 1"))
    },
    "hermite_polynomial_h": "Hermite's, of physicists",
    "hermite_polynomial_he": "Hermite's, of probabilists",
    "laguerre_polynomial_l": "Laguerre's",
    "legendre_polynomial_p": "Legendre's",
}
_FIRST: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x, "u": lambda x: x * 2, "v": lambda x: x * 2 - 1, "w": lambda x: x * 2 + 1,
}  # fmt: skip
POLYNOMIALS = {
    f"{prefix}chebyshev_polynomial_{letter}": _declared(
        f"{prefix}chebyshev_polynomial_{letter}", first, _chebyshev, bool(prefix)
    )
    for letter, first in _FIRST.items()
    for prefix in ("", "shifted_")
} | {
    name: _declared(name, first, step)
    for name, first, step in (
        ("hermite_polynomial_h", lambda x: x * 2, _hermite),
        ("hermite_polynomial_he", lambda x: x, _probabilists),
        ("laguerre_polynomial_l", lambda x: 1 - x, _laguerre),
        ("legendre_polynomial_p", lambda x: x, _legendre),
    )
}
