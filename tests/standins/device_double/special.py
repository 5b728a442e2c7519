"""``cupyx.scipy.special`` of the double: its loops, computed by the primitives' own formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain.ops.primitives.bessel  # noqa: F401  (declares primitives)
from disttrain.ops.declare import REGISTRY

from .signatures import Unsupported, choose
from .work import Work

FORMULAS: dict[str, Callable[..., Any]] = {
    "gammaln": lambda x: REGISTRY["lgamma"].forward(x),
    "digamma": lambda x: REGISTRY["polygamma"].forward(x, n=0),
    "psi": lambda x: REGISTRY["polygamma"].forward(x, n=0),
    "erf": lambda x: REGISTRY["erf"].forward(x),
    "erfc": lambda x: REGISTRY["erfc"].forward(x),
    "erfinv": lambda x: REGISTRY["erfinv"].forward(x),
    "i0": lambda x: REGISTRY["i0"].forward(x),
    "i1": lambda x: REGISTRY["i1"].forward(x),
    "gammainc": lambda a, x: REGISTRY["igamma"].forward(a, x),
    "gammaincc": lambda a, x: REGISTRY["igammac"].forward(a, x),
    "zeta": lambda s, x: REGISTRY["zeta"].forward(s, x),
    **{
        n: lambda *args, n=n: REGISTRY[n].forward(*args)
        for n in ("entr", "erfcx", "i0e", "i1e", "log_ndtr", "ndtri", "xlog1py")
    },
    **{
        n: lambda x, of=of: REGISTRY[of].forward(x)
        for n, of in {
            "j0": "bessel_j0",
            "j1": "bessel_j1",
            "y0": "bessel_y0",
            "y1": "bessel_y1",
            "k0": "modified_bessel_k0",
            "k1": "modified_bessel_k1",
            "k0e": "scaled_modified_bessel_k0",
            "k1e": "scaled_modified_bessel_k1",
        }.items()
    },
}  # (polygamma takes arrays alone: an order that is a number fails there in ``where``)


def special(platform: Any, name: str) -> Callable[..., Any]:
    """The function of that name."""
    if name not in FORMULAS:
        raise Unsupported(f"cupyx.scipy.special.{name}: the double has no formula for it")

    def call(*args: Any) -> Any:
        work = Work(platform, name)
        hidden = [work.operand(a) for a in args]
        taken, (given,) = choose(name, args, what="special")
        typed = [np.asarray(a).astype(t) for a, t in zip(hidden, taken)]
        return work.run(lambda: np.asarray(FORMULAS[name](*typed)).astype(given))

    return call
