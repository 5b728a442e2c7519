"""``arrays.lifting`` as ``lax`` has it: operands in their own types, over trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....func import over_trees
from ....func.structured_bodies import Border
from .. import tree
from ..array import wrap
from ..flat import as_array
from ..numpy.lifting import JaxLifting
from ..types import result_kind


class LaxLifting(JaxLifting):
    """``JaxLifting`` in the words of ``lax``."""

    module = "jax.lax"
    ignored = frozenset(("precision", "out_sharding", "sharding"))

    def value(self, where: str, x: Any, place: int) -> tuple[Tensor, bool]:
        try:
            return taken(x)
        except TypeError:
            raise TypeError(
                f"Error interpreting argument to {where} as a JAX value. The problematic value is "
                f"of type {type(x)} and was passed to {where} at position {place}."
            ) from None


def taken(leaf: Any) -> tuple[Tensor, bool]:
    """The tensor of a leaf, and whether its type is weak."""
    array = as_array(leaf)
    return array._value, array.weak_type


LIFTING = LaxLifting()
BORDER = Border(tree.default_registry, taken, wrap, lambda *kinds: result_kind(*kinds)[0])


def of_leaves(name: str, fn: Callable) -> Callable:
    """``fn`` of one tensor as a function of each leaf of a tree."""
    each = over_trees.of_leaves(BORDER, fn)

    def run(x: Any, *args: Any, axis_index_groups: Any = None, **kwargs: Any) -> Any:
        if axis_index_groups is not None:
            raise NotImplementedError(f"axis_index_groups of {name}")
        return each(x, *args, **kwargs)

    return LIFTING.named(run, name, fn)  # type: ignore[no-any-return]


def reducing(name: str, fn: Callable) -> Callable:
    """``fn(operands, init_values, computation, ...)`` of lists of tensors, as one of trees."""
    return LIFTING.named(over_trees.reducing(BORDER, fn), name, fn)  # type: ignore[no-any-return]
