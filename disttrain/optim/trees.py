"""Optimizers as three functions of whole trees, made of functions of single arrays.

    adam = over_trees(of_rule("adam"))
    init, update, get_params = adam(1e-3)
    state = init(params)
    state = update(step, gradients, state)

The state is a tuple of leaves with its forms beside it, so that it is a tree in turn. ``flatten``:
of what registry the trees are; its forms put leaves together again by ``unflatten``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import tree
from . import functional

Flatten = Callable[[Any], tuple[list, Any]]
REGISTRY = tree.Registry()


class OptimizerState(NamedTuple):
    """The leaves of each parameter's state, the form of the parameters, those of the states."""

    packed_state: tuple
    tree_def: Any
    subtree_defs: tuple


class Optimizer(NamedTuple):
    """The three functions."""

    init_fn: Callable
    update_fn: Callable
    params_fn: Callable


def over_trees(maker: Callable, flatten: Flatten = REGISTRY.flatten) -> Callable[..., Optimizer]:
    """Functions of trees of what ``maker`` gives for an array."""

    @functools.wraps(maker)
    def make(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = maker(*args, **kwargs)

        def init_tree(params: Any) -> OptimizerState:
            leaves, form = flatten(params)
            return packed([init(x) for x in leaves], form, flatten)

        def update_tree(step: Any, gradients: Any, state: OptimizerState) -> OptimizerState:
            leaves, form = flatten(gradients)
            said = (
                "was passed a gradient tree that did not match the parameter tree structure with "
                "which it was initialized: parameter tree"
            )
            _same(said, state[1], "grad tree", form)
            new = [update(step, g, s) for g, s in zip(leaves, states(state), strict=True)]
            out = packed(new, form, flatten)
            for before, after in zip(state[2], out[2], strict=True):
                _same("produced an output structure that did not match its input structure: input",
                      before, "output", after)  # fmt: skip
            return out

        def params_of(state: OptimizerState) -> Any:
            return state[1].unflatten([get_params(s) for s in states(state)])

        return Optimizer(init_tree, update_tree, params_of)

    return make


def _same(said: str, one: Any, word: str, other: Any) -> None:
    if one != other:
        raise TypeError(f"optimizer update function {said} {one} and {word} {other}.")


def packed(kept: list, form: Any, flatten: Flatten = REGISTRY.flatten) -> OptimizerState:
    """What is kept of each parameter, as one state."""
    flat = [flatten(s) for s in kept]
    return OptimizerState(tuple(tuple(f[0]) for f in flat), form, tuple(f[1] for f in flat))


def states(state: OptimizerState) -> list:
    """What is kept of each parameter."""
    return [form.unflatten(leaves) for form, leaves in zip(state[2], state[0], strict=True)]


class JoinPoint:
    """Where the state of one parameter stands in a tree of states."""

    def __init__(self, subtree: Any) -> None:
        self.subtree = subtree

    def __iter__(self) -> Iterator:
        yield self.subtree


def unpacked(state: OptimizerState) -> Any:
    """The state as a tree like the parameters', to be written to files."""
    return state[1].unflatten([JoinPoint(s) for s in states(state)])


def repacked(marked: Any, flatten: Flatten = REGISTRY.flatten) -> OptimizerState:
    """The inverse of ``unpacked``."""
    points, form = flatten(marked)
    return packed([p.subtree for p in points], form, flatten)


def of_rule(
    name: str, take: Callable = lambda x: x, give: Callable = lambda x: x
) -> Callable[..., tuple]:
    """What ``over_trees`` makes an optimizer of: the rule ``name`` of ``functional``, its rate (a
    number or a schedule) in front. ``take`` makes tensors of a program's arrays, ``give`` arrays of
    tensors; numbers stay."""
    lone, update = name == "sgd", functional.RULES[name].update

    def taken(x: Any) -> Any:
        return x if isinstance(x, (int, float)) else take(x)

    def out(state: Any) -> Any:
        found = tree.map(lambda a: a if isinstance(a, int) else give(a), state)
        return found[0] if lone else found

    def maker(step_size: Any, *args: Any, **kwargs: Any) -> tuple:
        rate = functional.schedule(step_size)

        def step(i: Any, g: Any, state: Any) -> Any:
            kept = tree.map(taken, (state,) if lone else state)
            return out(update(taken(i), taken(rate(i)), take(g), kept, *args, **kwargs))

        def params(state: Any) -> Any:
            return state if lone else state[0].reshape(state[3]) if name == "sm3" else state[0]

        return (lambda x: out(functional.begin(name, take(x)))), step, params

    maker.__name__ = maker.__qualname__ = name
    return maker
