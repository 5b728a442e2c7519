"""``jax.scipy.stats``: the distributions of ``disttrain.arrays.densities``, with their methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ....arrays import densities, reductions
from ..numpy.lifting import function


def _lifted(name: str, methods: dict[str, Callable]) -> SimpleNamespace:
    """Methods of tensors as methods of arrays, all of whose parameters meet in one type."""
    found = {}
    for method, fn in methods.items():
        parameters = " ".join(inspect.signature(fn).parameters)
        found[method] = function(f"{name}.{method}", fn, parameters, "inexact")
    return SimpleNamespace(**found)


NAMES: dict[str, Any] = {
    name: _lifted(name, densities.methods(name))
    for name in (*densities.CONTINUOUS, *densities.DISCRETE)
}
for _name, _kind in (("dirichlet", "pdf"), ("multivariate_normal", "pdf"), ("multinomial", "pmf")):
    _fn = getattr(densities, _name)
    NAMES[_name] = _lifted(_name, {f"log{_kind}": _fn, _kind: densities.exponential(_fn)})
NAMES["sem"] = function("sem", reductions.sem, "a", "inexact")
globals().update(NAMES)
__all__ = list(NAMES)
