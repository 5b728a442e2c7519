"""JAX's names of transforms, over ``func.trees``."""

from __future__ import annotations

from ...func.trees.jacobians import Transforms
from .flat import BORDER, as_array, float0

_TRANSFORMS = Transforms(BORDER)
_NAMES = "grad hessian jacfwd jacrev jvp linearize value_and_grad vjp vmap"
NAMES = {
    **{n: getattr(_TRANSFORMS, n) for n in _NAMES.split()},
    "jacobian": _TRANSFORMS.jacrev, "float0": float0,
}  # fmt: skip
vjp, vmap = _TRANSFORMS.vjp, _TRANSFORMS.vmap
__all__ = ["NAMES", "as_array", "vjp", "vmap"]
