"""``torch.func``; and ``functorch``, the package that it was before, with what only that has.

The transforms of ``functorch`` warn that they stand in ``torch`` now. ``make_functional`` makes a
module a function of its parameters by position; ``torch.func.functional_call`` does it by name.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import disttrain as dt

from ... import func, tree
from ...context import thread
from ...func import batch_dims, control_flow
from ...func.vmap import FALLBACK_WARNINGS
from ...trace import warn
from ..publish import Shim

_FLOW = ("cond", "map", "scan", "while_loop")  # which stand elsewhere in PyTorch
_MOVED = {"vmap": "torch.vmap", **{n: f"torch.func.{n}" for n in (
    "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "vjp",
)}}  # fmt: skip


def _deprecated(name: str, where: str, run: Any) -> Callable:
    @functools.wraps(run)
    def warned(*args: Any, **kwargs: Any) -> Any:
        warn(
            f"functorch.{name} is deprecated since functorch is part of PyTorch. Please use "
            f"`{where}` instead",
            FutureWarning,
        )
        return run(*args, **kwargs)

    return warned


class FunctionalModuleWithBuffers(dt.nn.Module):
    """A module as a function, called with parameters, buffers, and what the module takes."""

    def __init__(self, stateless_model: Any, names: list[str], buffer_names: list[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = names, buffer_names

    def forward(self, params: Sequence, buffers: Sequence, *args: Any, **kwargs: Any) -> Any:
        """The module's result with these tensors in place of its own."""
        state = dict(zip(self.param_names, params, strict=True))
        state |= zip(self.buffer_names, buffers, strict=True)
        return func.functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without buffers as a function: called with its parameters and what it takes."""

    def forward(self, params: Sequence, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """The module's result with these parameters in place of its own."""
        return super().forward(params, (), *args, **kwargs)


def _parts(model: Any, untracked: bool) -> tuple[Any, dict, dict]:
    """A copy of ``model``, and the parameters and buffers of another, by name."""
    state = copy.deepcopy(model)
    params = dict(state.named_parameters())
    if untracked:
        for p in params.values():
            p.requires_grad_(False)
    return copy.deepcopy(model), params, dict(state.named_buffers())


def make_functional(model: Any, disable_autograd_tracking: bool = False) -> tuple:
    """(``model`` as a function of parameters, a copy of its parameters)."""
    if next(iter(model.buffers()), None) is not None:
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    stateless, params, _ = _parts(model, disable_autograd_tracking)
    return FunctionalModule(stateless, list(params), []), tuple(params.values())


def make_functional_with_buffers(model: Any, disable_autograd_tracking: bool = False) -> tuple:
    """(``model`` as a function of parameters and buffers, copies of these and of those)."""
    stateless, params, buffers = _parts(model, disable_autograd_tracking)
    function = FunctionalModuleWithBuffers(stateless, list(params), list(buffers))
    return function, tuple(params.values()), tuple(buffers.values())


def combine_state_for_ensemble(models: Sequence) -> tuple:
    """Models of one class as one function, with their parameters and buffers stacked."""
    models = list(models)
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    params, buffers = func.stack_module_state(models)
    function, _, _ = make_functional_with_buffers(models[0])
    return function, tuple(params.values()), tuple(buffers.values())


def chunk_vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2
) -> Callable:
    """``vmap`` over a batch in so many ``chunks``."""
    if chunks < 1:
        raise ValueError(f"chunk_vmap: chunks={chunks} given; at least one is needed")

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        size = _batch_size(in_dims, args)
        each = -(-size // chunks)
        mapped = dt.func.vmap(func, in_dims, out_dims, randomness, chunk_size=max(each, 1))
        return mapped(*args, **kwargs)

    return run


def _batch_size(in_dims: Any, args: tuple) -> int:
    leaves = tree.leaves(args, with_none=True)
    dims = batch_dims.checked(leaves, batch_dims.spread_in(in_dims, args))
    return batch_dims.size_of(leaves, dims)


def shows_fallbacks() -> bool:
    """Whether ``vmap`` warns of operations that it runs once per example."""
    return thread.rank.slots.get(FALLBACK_WARNINGS, True)


def show_fallbacks(on: bool) -> None:
    """Set that."""
    thread.rank.slots[FALLBACK_WARNINGS] = on


def modules() -> dict[str, Shim]:
    """``torch.func``, ``functorch`` and its modules."""
    own = (FunctionalModule, FunctionalModuleWithBuffers)
    old = {
        "make_functional": make_functional,
        "make_functional_with_buffers": make_functional_with_buffers,
        "combine_state_for_ensemble": combine_state_for_ensemble,
    }
    moved = {n: _deprecated(n, where, getattr(func, n)) for n, where in _MOVED.items()}
    for n, run in old.items():
        where = "torch.func.stack_module_state" if "ensemble" in n else "torch.func.functional_call"
        moved[n] = _deprecated(n, where, run)
    top = Shim("functorch").give(**moved, **{c.__name__: c for c in own})
    within = Shim("functorch.experimental").take(
        func, ["functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]
    )
    return {
        "torch.func": Shim("torch.func").take(func, [n for n in func.__all__ if n not in _FLOW]),
        "functorch": top,
        "functorch.einops": Shim("functorch.einops").take(func, ["rearrange"]),
        "functorch.experimental": within.give(chunk_vmap=chunk_vmap),
        "functorch.experimental.control_flow": Shim("functorch.experimental.control_flow").take(
            control_flow, ["cond", "map"]
        ),
    }


def inner_names() -> dict[str, Any]:
    """What ``torch._C`` has of them."""
    return {
        "_debug_only_are_vmap_fallback_warnings_enabled": shows_fallbacks,
        "_debug_only_display_vmap_fallback_warnings": show_fallbacks,
    }


__all__ = ["chunk_vmap", "combine_state_for_ensemble", "inner_names", "make_functional",
           "make_functional_with_buffers", "modules"]  # fmt: skip
