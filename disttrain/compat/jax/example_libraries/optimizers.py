"""``jax.example_libraries.optimizers``: ``dt.optim.functional`` as three functions of trees.

``init(params) -> state``, ``update(step, gradients, state) -> state``, ``get_params(state)``.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ....optim import functional
from ....optim.functional import (
    Schedule,
    constant,
    exponential_decay,
    inverse_time_decay,
    polynomial_decay,
)
from .. import numpy as jnp
from .. import tree
from ..array import Array, unwrap, wrap

OptimizerState = namedtuple("OptimizerState", ["packed_state", "tree_def", "subtree_defs"])
tree.register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda aux, children: OptimizerState(children[0], *aux),
)


class Optimizer(NamedTuple):
    """The three functions."""

    init_fn: Callable
    update_fn: Callable
    params_fn: Callable


def optimizer(opt_maker: Callable) -> Callable[..., Optimizer]:
    """Make functions of trees of what ``opt_maker`` gives for an array."""

    @functools.wraps(opt_maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def init_tree(params: Any) -> OptimizerState:
            leaves, form = tree.tree_flatten(params)
            return _packed([init(x) for x in leaves], form)

        def update_tree(step: Any, gradients: Any, state: OptimizerState) -> OptimizerState:
            leaves, form = tree.tree_flatten(gradients)
            said = (
                "was passed a gradient tree that did not match the parameter tree structure with "
                "which it was initialized: parameter tree"
            )
            _same(said, state[1], "grad tree", form)
            new = [update(step, g, s) for g, s in zip(leaves, _states(state), strict=True)]
            packed = _packed(new, form)
            for before, after in zip(state[2], packed[2], strict=True):
                _same("produced an output structure that did not match its input structure: input",
                      before, "output", after)  # fmt: skip
            return packed

        def params_of(state: OptimizerState) -> Any:
            return tree.tree_unflatten(state.tree_def, [get_params(s) for s in _states(state)])

        return Optimizer(init_tree, update_tree, params_of)

    return make


def _same(said: str, one: Any, word: str, other: Any) -> None:
    if one != other:
        raise TypeError(f"optimizer update function {said} {one} and {word} {other}.")


def _packed(states: list, form: Any) -> OptimizerState:
    flat = [tree.tree_flatten(s) for s in states]
    return OptimizerState(tuple(f[0] for f in flat), form, tuple(f[1] for f in flat))


def _states(state: OptimizerState) -> list:
    pairs = zip(state.subtree_defs, state.packed_state, strict=True)
    return [tree.tree_unflatten(form, leaves) for form, leaves in pairs]


def _made(name: str) -> Callable[..., Optimizer]:
    """The optimizer of a rule of ``functional``: its rate, then what the rule takes."""
    lone, update = name == "sgd", functional.RULES[name].update

    def native(state: Any) -> Any:
        return tree.tree_map(lambda a: a._value if isinstance(a, Array) else a, state)

    def out(state: tuple) -> Any:
        found = tree.tree_map(lambda a: a if isinstance(a, int) else wrap(a), state)
        return found[0] if lone else found

    def maker(step_size: Any, *args: Any, **kwargs: Any) -> tuple:
        rate = make_schedule(step_size)

        def step(i: Any, g: Any, state: Any) -> Any:
            state = (state,) if lone else state
            at, now = native(i), native(rate(i))
            return out(update(at, now, unwrap(g), native(state), *args, **kwargs))

        def params(state: Any) -> Any:
            return state if lone else state[0].reshape(state[3]) if name == "sm3" else state[0]

        return (lambda x: out(functional.begin(name, unwrap(x)))), step, params

    maker.__name__ = maker.__qualname__ = name
    return optimizer(maker)


sgd, momentum, nesterov = _made("sgd"), _made("momentum"), _made("nesterov")
adagrad, adam, adamax, sm3 = _made("adagrad"), _made("adam"), _made("adamax"), _made("sm3")
rmsprop, rmsprop_momentum = _made("rmsprop"), _made("rmsprop_momentum")


def piecewise_constant(boundaries: Any, values: Any) -> Schedule:
    """``values`` between ``boundaries``."""
    boundaries, values = jnp.array(boundaries), jnp.array(values)
    if not boundaries.ndim == values.ndim == 1:
        raise ValueError("boundaries and values must be sequences")
    if boundaries.shape[0] != values.shape[0] - 1:
        raise ValueError("boundaries length must be one shorter than values length")
    return lambda i: values[jnp.sum(i > boundaries)]


def make_schedule(scalar_or_schedule: Any) -> Schedule:
    """A schedule of what is one, or of a number."""
    if callable(scalar_or_schedule):
        return scalar_or_schedule
    if np.ndim(scalar_or_schedule):
        raise TypeError(type(scalar_or_schedule))
    return constant(scalar_or_schedule)


def l2_norm(values: Any) -> Any:
    """The norm of all leaves together."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree.tree_leaves(values)))


def clip_grads(grad_tree: Any, max_norm: Any) -> Any:
    """Gradients of a norm of at most ``max_norm``."""
    norm = l2_norm(grad_tree)
    return tree.tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Where the state of one parameter stands in a tree of states."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """The state as a tree like the parameters', to be written to files."""
    return tree.tree_unflatten(opt_state.tree_def, [JoinPoint(s) for s in _states(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """The inverse of ``unpack_optimizer_state``."""
    points, form = tree.tree_flatten(marked_pytree)
    return _packed([p.subtree for p in points], form)


__all__ = [  # schedules are the native ones
    "JoinPoint", "Optimizer", "OptimizerState", "adagrad", "adam", "adamax", "clip_grads",
    "constant", "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule", "momentum",
    "nesterov", "optimizer", "pack_optimizer_state", "piecewise_constant", "polynomial_decay",
    "rmsprop", "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state",
]  # fmt: skip
NAMES = {name: globals()[name] for name in __all__}
