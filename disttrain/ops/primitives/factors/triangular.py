"""Systems of equations with triangular matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import lapack
from ....core.annotations import Shaped, Value
from ....core.gate import Primitive
from ...declare import primitive
from ...promotion import only
from ..failures import no_failure, singular
from ..linalg import one_type
from .parts import Fronted, adjoint, matmul, square, tri


def _forward(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool, check: str = "") -> Any:
    """``check``: who refuses a 0 on the diagonal, or "": then there are infinities."""
    if check:
        zero = np.diagonal(a, 0, -2, -1) == 0
        places = np.argmax(zero, -1) + 1 if a.size else np.zeros(a.shape[:-2], np.int64)
        no_failure(check, np.where(zero.any(-1), places, 0), singular)
    return lapack.solved_triangular(a, b, upper, unit)


def _shape(a: Shaped, b: Shaped, upper: bool, unit: bool, check: str = "") -> tuple:
    if square(a) != b.shape[-2] or tuple(a.shape[:-2]) != tuple(b.shape[:-2]):
        raise ValueError(f"{list(a.shape)} and {list(b.shape)} do not fit")
    return b.shape, b.dtype


def _matrix_rule(g: Value, a: Value, out: Value, upper: bool, unit: bool) -> Any:
    """From a x = b: da x + a dx = db, for the triangle that is read."""
    back = solve_triangular(adjoint(a), g, upper=not upper, unit=unit)
    diagonal = (1 if upper else -1) if unit else 0
    return tri(-matmul(back, adjoint(out)), k=diagonal, upper=upper)


def _samples(rng: np.random.Generator) -> list:
    a = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    return [
        ((a, rng.normal(size=(3, 2))), {"upper": True, "unit": False}),
        ((a, rng.normal(size=(3, 2))), {"upper": False, "unit": False}),
        ((np.stack([a, a.T]), rng.normal(size=(2, 3, 1))), {"upper": False, "unit": True}),
    ]


# x with a x = b; both have the same dimensions before the last two.
solve_triangular: Primitive = primitive(
    "solve_triangular", _forward, "a b",
    vjp={
        "a": _matrix_rule,
        "b": lambda g, a, upper, unit: solve_triangular(
            adjoint(a), g, upper=not upper, unit=unit
        ),
    },
    shape=_shape, samples=_samples, batch=Fronted(lambda: solve_triangular),
    promote=only("linalg.solve_triangular", "fc", one_type("linalg.solve_triangular")),
)  # fmt: skip
solve_triangular.checks = True
