"""``jax.example_libraries.optimizers``: an optimizer as three functions of pytrees.

``init(params) -> state``, ``update(step, gradients, state) -> state``, ``get_params(state)``. Each
is written for one array and made one for trees by ``optimizer``.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import numpy as jnp
from .. import tree

OptimizerState = namedtuple("OptimizerState", ["packed_state", "tree_def", "subtree_defs"])
tree.register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda aux, children: OptimizerState(children[0], *aux),
)

Schedule = Callable[[Any], Any]


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
            if form != state.tree_def:
                raise TypeError(
                    "optimizer update function was passed a gradient tree that did not match the "
                    "parameter tree structure with which it was initialized: parameter tree "
                    f"{state.tree_def} and grad tree {form}."
                )
            new = [update(step, g, s) for g, s in zip(leaves, _states(state), strict=True)]
            packed = _packed(new, form)
            for before, after in zip(state.subtree_defs, packed.subtree_defs, strict=True):
                if before != after:
                    raise TypeError(
                        "optimizer update function produced an output structure that did not match "
                        f"its input structure: input {before} and output {after}."
                    )
            return packed

        def params_of(state: OptimizerState) -> Any:
            return tree.tree_unflatten(state.tree_def, [get_params(s) for s in _states(state)])

        return Optimizer(init_tree, update_tree, params_of)

    return make


def _packed(states: list, form: Any) -> OptimizerState:
    flat = [tree.tree_flatten(s) for s in states]
    return OptimizerState(tuple(f[0] for f in flat), form, tuple(f[1] for f in flat))


def _states(state: OptimizerState) -> list:
    pairs = zip(state.subtree_defs, state.packed_state, strict=True)
    return [tree.tree_unflatten(form, leaves) for form, leaves in pairs]


def _first(state: tuple) -> Any:
    return state[0]


def _beside_zeros(num: int) -> Callable:
    """The state of an array: itself, and ``num`` zeros like it."""
    return lambda x: (x, *(jnp.zeros_like(x) for _ in range(num)))


# --- optimizers -----------------------------------------------------------------------------------
@optimizer
def sgd(step_size: Any) -> tuple:
    """Steps against the gradient."""
    rate = make_schedule(step_size)
    return (lambda x: x), (lambda i, g, x: x - rate(i) * g), (lambda x: x)


@optimizer
def momentum(step_size: Any, mass: float) -> tuple:
    """Gradient descent with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        v = mass * state[1] + g
        return state[0] - rate(i) * v, v

    return _beside_zeros(1), update, _first


@optimizer
def nesterov(step_size: Any, mass: float) -> tuple:
    """Gradient descent with Nesterov's momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        v = mass * state[1] + g
        return state[0] - rate(i) * (mass * v + g), v

    return _beside_zeros(1), update, _first


def _inverse_root(sums: Any) -> Any:
    return jnp.where(sums > 0, 1.0 / jnp.sqrt(sums), 0.0)


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> tuple:
    """Adagrad (Duchi et al. 2011), with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        x, sums, m = state
        sums = sums + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(sums)) + momentum * m
        return x - rate(i) * m, sums, m

    return _beside_zeros(2), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> tuple:
    """RMSProp (Hinton 2012)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        mean = state[1] * gamma + jnp.square(g) * (1.0 - gamma)
        return state[0] - rate(i) * g / jnp.sqrt(mean + eps), mean

    return _beside_zeros(1), update, _first


@optimizer
def rmsprop_momentum(
    step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9
) -> tuple:
    """RMSProp with momentum."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        x, mean, v = state
        mean = mean * gamma + jnp.square(g) * (1.0 - gamma)
        v = momentum * v + rate(i) * g / jnp.sqrt(mean + eps)
        return x - v, mean, v

    return _beside_zeros(2), update, _first


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> tuple:
    """Adam (Kingma and Ba 2015)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * jnp.square(g) + b2 * v
        mean = m / (1 - jnp.asarray(b1, m.dtype) ** (i + 1))
        square = v / (1 - jnp.asarray(b2, m.dtype) ** (i + 1))
        return x - rate(i) * mean / (jnp.sqrt(square) + eps), m, v

    return _beside_zeros(2), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> tuple:
    """Adamax (ibid.)."""
    rate = make_schedule(step_size)

    def update(i: Any, g: Any, state: tuple) -> tuple:
        x, m, most = state
        m = (1 - b1) * g + b1 * m
        most = jnp.maximum(b2 * most, jnp.abs(g))
        return x - rate(i) / (1 - jnp.asarray(b1, m.dtype) ** (i + 1)) * m / (most + eps), m, most

    return _beside_zeros(2), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> tuple:
    """SM3 (Anil et al. 2019): sums of squares for each index of each dimension alone."""
    rate = make_schedule(step_size)

    def init(x: Any) -> tuple:
        shape, x = x.shape, jnp.atleast_1d(x)
        return x, jnp.zeros_like(x), [jnp.zeros(n, dtype=x.dtype) for n in x.shape], shape

    def update(i: Any, g: Any, state: tuple) -> tuple:
        x, m, sums, shape = state
        spread = [
            s.reshape([-1 if d == k else 1 for d in range(x.ndim)]) for k, s in enumerate(sums)
        ]
        total = functools.reduce(jnp.minimum, spread) + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(total)) + momentum * m
        others = [[d for d in range(x.ndim) if d != k] for k in range(x.ndim)]
        return x - rate(i) * m, m, [total.max(tuple(axes)) for axes in others], shape

    return init, update, lambda state: state[0].reshape(state[3])


# --- schedules ------------------------------------------------------------------------------------
def constant(step_size: float) -> Schedule:
    """Always the same."""
    return lambda i: step_size


def exponential_decay(step_size: float, decay_steps: float, decay_rate: float) -> Schedule:
    """``decay_rate`` for each ``decay_steps``."""
    return lambda i: step_size * decay_rate ** (i / decay_steps)


def inverse_time_decay(
    step_size: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """By one over the time; ``staircase``: only at whole multiples of ``decay_steps``."""
    if staircase:
        return lambda i: step_size / (1 + decay_rate * jnp.floor(i / decay_steps))
    return lambda i: step_size / (1 + decay_rate * i / decay_steps)


def polynomial_decay(
    step_size: float, decay_steps: float, final_step_size: float, power: float = 1.0
) -> Schedule:
    """To ``final_step_size`` by a power of the time that is left."""

    def schedule(i: Any) -> Any:
        left = (1 - jnp.minimum(i, decay_steps) / decay_steps) ** power
        return left * (step_size - final_step_size) + final_step_size

    return schedule


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
    if jnp.ndim(scalar_or_schedule) == 0:
        return constant(scalar_or_schedule)
    raise TypeError(type(scalar_or_schedule))


# --- gradients and states -------------------------------------------------------------------------
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
    assert all(isinstance(p, JoinPoint) for p in points)
    return _packed([p.subtree for p in points], form)
