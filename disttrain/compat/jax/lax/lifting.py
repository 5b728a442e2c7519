"""``arrays.lifting`` as ``lax`` has it: operands in their own types, over trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....func import over_trees
from ....func.axes import in_groups
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


_OF_GROUPS: dict[str, Callable] = {
    "psum": lambda rows: rows.sum(0, dtype=rows.dtype), "pmean": lambda rows: rows.mean(0),
    "pmax": lambda rows: rows.amax(0), "pmin": lambda rows: rows.amin(0),
    "all_gather": lambda rows: rows,
}  # fmt: skip


def of_leaves(name: str, fn: Callable) -> Callable:
    """``fn`` of one tensor as a function of each leaf of a tree."""
    each = over_trees.of_leaves(BORDER, fn)

    def run(x: Any, *args: Any, axis_index_groups: Any = None, **kwargs: Any) -> Any:
        if axis_index_groups is None:
            return each(x, *args, **kwargs)
        axis = args[0] if args else kwargs.pop("axis_name", None)
        if kwargs or name not in _OF_GROUPS:
            raise NotImplementedError(f"axis_index_groups of {name}")
        joined = lambda t: _OF_GROUPS[name](in_groups(t, axis, axis_index_groups))  # noqa: E731
        return over_trees.of_leaves(BORDER, joined)(x)

    return LIFTING.named(run, name, fn)  # type: ignore[no-any-return]


def reducing(name: str, fn: Callable) -> Callable:
    """``fn(operands, init_values, computation, ...)`` of lists of tensors, as one of trees."""
    return LIFTING.named(over_trees.reducing(BORDER, fn), name, fn)  # type: ignore[no-any-return]
