"""``jax.example_libraries.optimizers``: ``dt.optim.trees`` of JAX's trees and arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....optim import functional, trees
from .. import numpy, tree
from ..array import unwrap, wrap

jnp: Any = numpy  # whose names its tables give
tree.register_pytree_node(
    trees.OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda aux, children: trees.OptimizerState(children[0], *aux),
)


def optimizer(opt_maker: Callable) -> Callable[..., trees.Optimizer]:
    """Functions of trees of what ``opt_maker`` gives for an array."""
    return trees.over_trees(opt_maker, tree.tree_flatten)


def piecewise_constant(boundaries: Any, values: Any) -> functional.Schedule:
    """``values`` between ``boundaries``."""
    return functional.piecewise_constant(jnp.array(boundaries), jnp.array(values))


def l2_norm(values: Any) -> Any:
    """The norm of all leaves together."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree.tree_leaves(values)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients of a norm of at most ``max_norm``."""
    norm = l2_norm(grad_tree)
    return tree.tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


NAMES: dict[str, Any] = {
    **{name: optimizer(trees.of_rule(name, unwrap, wrap)) for name in functional.RULES},
    **{name: getattr(trees, name) for name in ("JoinPoint", "Optimizer", "OptimizerState")},
    "pack_optimizer_state": lambda marked: trees.repacked(marked, tree.tree_flatten),
    "unpack_optimizer_state": trees.unpacked, "make_schedule": functional.schedule,
    "optimizer": optimizer, "piecewise_constant": piecewise_constant, "l2_norm": l2_norm,
    "clip_grads": clip_grads,
}  # fmt: skip
for _name in "constant exponential_decay inverse_time_decay polynomial_decay".split():
    NAMES[_name] = getattr(functional, _name)
globals().update(NAMES)
