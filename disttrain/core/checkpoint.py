"""Activation checkpointing: forget what a part of the forward saved, and run it again in backward.

Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import AutogradError
from .autograd import backward as run_backward
from .function import Function
from .grad_mode import enable_grad
from .random import get_rng_state, set_rng_state
from .tensor import Tensor


class _Again(Function):
    """Runs ``fn`` without recording; its backward runs it once more, recorded."""

    @staticmethod
    def forward(ctx: Any, fn: Callable, preserve: bool, anchor: Any, *args: Any) -> Any:
        ctx.fn, ctx.preserve = fn, preserve
        ctx.rng = get_rng_state() if preserve else None
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        out = fn(*args)
        ctx.several = isinstance(out, tuple)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        args = list(ctx.args)
        saved = ctx.saved_tensors
        for i, t in zip(ctx.places, saved, strict=True):
            args[i] = t.detach()
            if t.requires_grad:
                args[i].requires_grad_()
        outs = _recompute(ctx, args)
        pairs = [
            (o, g)
            for o, g in zip(outs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad and g is not None
        ]
        if not pairs:
            raise AutogradError(
                "checkpoint: nothing that the checkpointed function returned requires grad"
            )
        run_backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, None, *[a.grad if isinstance(a, Tensor) else None for a in args])


def _recompute(ctx: Any, args: list) -> tuple:
    now = get_rng_state() if ctx.preserve else None
    if ctx.preserve:
        set_rng_state(ctx.rng)
    try:
        with enable_grad():
            out = ctx.fn(*args)
    finally:
        if ctx.preserve:
            set_rng_state(now)
    return out if isinstance(out, tuple) else (out,)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    debug: bool = False,
    context_fn: Any = None,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, keeping only its inputs for backward.

    The function must be a function of its tensor arguments and of parameters; it runs again in
    backward, with the same random numbers when ``preserve_rng_state``. Returns a tensor or a tuple.
    First derivatives only.
    """

    def call(*inputs: Any) -> Any:
        return function(*inputs, **kwargs)

    # Parameters that the function reads do not show among its arguments, so a leaf that requires
    # grad stands in for them and keeps the node in the graph.
    anchor = None
    if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        first = next((a for a in args if isinstance(a, Tensor)), None)
        if first is None:
            raise AutogradError("checkpoint: at least one tensor argument is needed")
        anchor = _leaf_like(first)
    return _Again.apply(call, preserve_rng_state, anchor, *args)


def _leaf_like(t: Tensor) -> Tensor:
    leaf = t.detach() if t.dtype.is_floating_point else t.detach().float()
    return leaf.requires_grad_()


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **options: Any
) -> Any:
    """A Sequential (or list) of functions, checkpointed in ``segments`` pieces; the last one is
    kept, since its backward comes at once."""
    steps: Sequence = list(functions.children()) if hasattr(functions, "children") else functions
    if segments < 1 or not steps:
        raise AutogradError(
            f"checkpoint_sequential: {segments} segments of {len(steps)} functions; at least one "
            "of each is needed"
        )
    size = max(len(steps) // segments, 1)
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(_chain(steps[start:end]), input, **options)
    return _chain(steps[end:])(input)


def _chain(steps: Sequence) -> Callable:
    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run
