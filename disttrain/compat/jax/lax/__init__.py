"""``jax.lax``: names and conventions over ``func``, ``arrays.general`` and ``ops``."""

from __future__ import annotations

import sys
from typing import Any

from ....arrays import general
from ....func.implicit import Implicit
from ....func.structured import ControlFlow
from ...publish import MissingName, lacking
from . import collectives
from .lifting import BORDER, LIFTING, of_leaves, reducing

_TREES = {"reduce": reducing, "reduce_window": reducing, "stop_gradient": of_leaves,
          "optimization_barrier": of_leaves}  # fmt: skip
_PLAIN = frozenset("broadcast_shapes conv_dimension_numbers padtype_to_pads".split())
_STRONG = frozenset(
    "argmax argmin top_k convert_element_type bitcast_convert_type real imag iota "
    "broadcasted_iota approx_max_k approx_min_k empty".split()
)
_FLOW = "associative_scan cond fori_loop map scan switch while_loop"


def _face(name: str, value: Any) -> Any:
    if isinstance(value, type) or name in _PLAIN or not callable(value):
        return value
    if name in _TREES:
        return _TREES[name](name, value)
    return LIFTING.annotated(name, value, name in _STRONG)


IMPLICIT = Implicit(BORDER)
FLOW = ControlFlow(
    BORDER,
    "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic "
    "start/stop values. Try using lax.scan, or using fori_loop with static start/stop.",
)
NAMES: dict[str, Any] = {
    **{name: _face(name, value) for name, value in general.NAMES.items()},
    **collectives.NAMES,
    **{name: getattr(FLOW, name) for name in _FLOW.split()},
    "custom_root": IMPLICIT.custom_root,
    "custom_linear_solve": IMPLICIT.custom_linear_solve,
    "PrecisionLike": Any,
}
globals().update(NAMES)


def __getattr__(name: str) -> Any:
    raise MissingName(lacking(f"jax.lax.{name}", sys.modules[__name__]))
