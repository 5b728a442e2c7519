"""The names of ``jax.lax`` and what they mean: rows over ``func``, ``arrays.general``, ``ops``."""

from __future__ import annotations

from typing import Any

from ....arrays import general
from ....core.tensor import Tensor
from ....func.implicit import Implicit
from ....func.structured import ControlFlow
from ....func.structured_bodies import Border
from .. import tree
from ..array import wrap
from ..transforms import as_array
from ..types import result_kind
from . import collectives
from .lifting import lifted, of_leaves, over_trees

_TREES = {"reduce": over_trees, "reduce_window": over_trees, "stop_gradient": of_leaves,
          "optimization_barrier": of_leaves}  # fmt: skip
_PLAIN = frozenset("broadcast_shapes conv_dimension_numbers padtype_to_pads".split())
_FLOW = "associative_scan cond fori_loop map scan switch while_loop"


def _taken(leaf: Any) -> tuple[Tensor, bool]:
    array = as_array(leaf)
    return array._value, array.weak_type


def _face(name: str, value: Any) -> Any:
    if isinstance(value, type) or name in _PLAIN or not callable(value):
        return value
    return _TREES.get(name, lifted)(name, value)


BORDER = Border(tree.default_registry, _taken, wrap, lambda *kinds: result_kind(*kinds)[0])
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
