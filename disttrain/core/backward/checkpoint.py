"""Activation checkpointing: forget what a part of the forward saved, and run it again in backward.

Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv:1604.06174.

Two ways. The usual one records the forward as always, with saved-tensor hooks that keep nothing but
a number for each saved tensor; the first that backward asks for runs the function again, up to the
last tensor that was saved, and all are there. So closures, keyword arguments, results of any form,
second derivatives and nesting need nothing special. ``use_reentrant=True`` is the older way: one
node whose backward runs the function again, recorded, and a backward pass of its own inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from warnings import warn

from ... import tree
from ...context import thread
from ...errors import AutogradError
from ..effects import Again, Effect, performed
from ..grad_mode import enable_grad
from ..random import States
from ..saved import Complete, Packed, saving
from ..tensor import Tensor
from ..types.casting import casting
from .autograd import backward_into
from .function import Function
from .sink import accumulate


class CheckpointError(AutogradError):
    """What ran again in backward was not what had run in forward."""


class _Streams(Effect):
    """Where the streams of random numbers are as a call begins."""

    alone = True
    states: States

    def __call__(self, *tensors: Tensor) -> None:
        self.states = States()

    def __repr__(self) -> str:
        return "<random numbers>"


class _Restored(_Streams):
    """The streams go back to where they were ``then``."""

    def __init__(self, then: _Streams) -> None:
        self.then, self.inside = then, False

    def __call__(self, *tensors: Tensor) -> None:
        super().__call__()
        self.inside = True
        self.then.states.restore()

    def break_off(self) -> None:
        if self.inside:
            self.inside = False
            self.states.restore()


class _Left(_Streams):
    """The streams go on from where they were before ``inside``."""

    def __init__(self, inside: _Restored) -> None:
        self.inside = inside

    def __call__(self, *tensors: Tensor) -> None:
        self.inside.break_off()


def _streams(preserve: bool) -> _Streams | None:
    if not preserve:
        return None
    effect = _Streams()
    performed("save_streams", effect)
    return effect


@contextmanager
def _random_numbers(then: _Streams | None) -> Iterator[None]:
    """The block draws the numbers that follow ``then`` (None: it goes on with today's)."""
    if then is None:
        yield
        return
    inside = _Restored(then)
    performed("restore_streams", inside)
    try:
        yield
    finally:
        performed("leave_streams", _Left(inside))


def _once_more(values: list) -> None:
    """What is computed of these, kept since forward, is not what was computed then."""
    tensors = [x for x in values if isinstance(x, Tensor)]
    if tensors:
        performed("run_again", Again(), tensors)


class _Input:
    """A tensor argument, kept until the function runs again (by the hooks around, if there are)."""

    def __init__(self, t: Tensor) -> None:
        self.requires_grad = t.requires_grad
        packed = bool(thread.saving)
        self.kept: Any = Packed(t, None, thread.saving[-1]) if packed else t

    def again(self) -> Tensor:
        t = self.kept.tensor() if self.kept.__class__ is Packed else self.kept
        t = t.detach()
        return t.requires_grad_() if self.requires_grad else t


class _Frame:
    """One checkpointed call: how to run it again, and what it saved."""

    def __init__(
        self, function: Callable, args: tuple, kwargs: dict, preserve: bool, around: Callable,
        check: bool,
    ) -> None:  # fmt: skip
        self.function, self.around, self.check = function, around, check
        self.state = _streams(preserve)
        self.early_stop = thread.checkpoint_early_stop
        self.autocast = thread.autocast
        leaves, self.rebuild = tree.flatten((args, kwargs))
        self.inputs = [_Input(x) if isinstance(x, Tensor) else x for x in leaves]
        self.metas: list = []
        self.rows: dict[int, Tensor] = {}

    def pack(self, t: Tensor) -> int:
        self.metas.append(t.meta())
        return len(self.metas) - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.rows:
            self.rows.clear()
            self._run_again()
        return self.rows.pop(number)

    def _run_again(self) -> None:
        values = [x.again() if x.__class__ is _Input else x for x in self.inputs]
        _once_more(values)
        args, kwargs = self.rebuild(values)
        count = 0

        def keep(t: Tensor) -> Tensor:
            nonlocal count
            if count < len(self.metas):
                self._compare(count, t)
                self.rows[count] = t
            count += 1
            if count == len(self.metas) and self.early_stop:
                raise Complete
            return t

        try:
            with _random_numbers(self.state), casting(self.autocast), self.around(), enable_grad():
                with saving(keep, lambda t: t):
                    self.function(*args, **kwargs)
        except Complete:
            return
        if count != len(self.metas):
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward "
                f"and recomputation ({len(self.metas)} and {count}); the function must do the same "
                "both times: look for state that it changes"
            )

    def _compare(self, number: int, t: Tensor) -> None:
        if self.check and t.meta() != self.metas[number]:
            shape, kind = self.metas[number]
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata "
                f"than during the forward pass: saved tensor {number} was {kind}{list(shape)} and "
                f"is {t.meta()[1]}{list(t.shape)}; the function must do the same both times"
            )


class _Again(Function):
    """Runs ``fn`` without recording; its backward runs it once more, recorded."""

    @staticmethod
    def forward(ctx: Any, fn: Callable, preserve: bool, *args: Any) -> Any:
        ctx.fn = fn
        ctx.rng, ctx.autocast = _streams(preserve), thread.autocast
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return fn(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        if thread.walking.needed is not None:
            raise AutogradError(
                "checkpoint: When use_reentrant=True, checkpoint is incompatible with .grad() or "
                "passing an `inputs` parameter to .backward(). To resolve this error, you can "
                "either set use_reentrant=False, or call .backward() without `inputs`."
            )
        args = list(ctx.args)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = t.detach()
            if t.requires_grad:
                args[i].requires_grad_()
        _once_more(args)
        with _random_numbers(ctx.rng), casting(ctx.autocast), enable_grad():
            out = ctx.fn(*args)
        outs = out if isinstance(out, tuple) else (out,)
        pairs = [
            (o, g)
            for o, g in zip(outs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad and g is not None
        ]
        if not pairs:
            raise AutogradError(
                "checkpoint: none of output has requires_grad=True, this checkpoint() is not "
                "necessary"
            )
        inputs = {id(a._node) for a in args if isinstance(a, Tensor)}
        around = thread.walking.sink  # which may write elsewhere than into .grad

        def sink(acc: Any, g: Any, own: bool) -> None:
            (accumulate if id(acc) in inputs else around)(acc, g, own)

        backward_into(sink, [o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *[a.grad if isinstance(a, Tensor) else None for a in args])


def checkpoint(
    function: Callable[..., Any],
    *args: object,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[AbstractContextManager, AbstractContextManager]] | None = None,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: object,
) -> Any:
    """``function(*args, **kwargs)``, keeping its arguments and not what it saves for backward.

    It runs again in backward, with the same random numbers when ``preserve_rng_state``, and must do
    the same: shapes and types of what it saves are compared (unless ``determinism_check="none"``).
    ``context_fn`` gives two blocks, for the forward and for the second run. ``early_stop``: that
    run ends when all is there that was saved. ``use_reentrant=True``: see above; then results are
    tensors, first derivatives only, and an input must require grad.
    """
    if use_reentrant:
        return _reentrant(function, args, kwargs, preserve_rng_state, context_fn)
    forward_block, again_block = context_fn() if context_fn else (nullcontext(), nullcontext())
    if not thread.grad_enabled:
        with forward_block:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, preserve_rng_state, lambda: again_block,
                   determinism_check != "none")  # fmt: skip
    frame.early_stop = frame.early_stop and early_stop
    with forward_block, saving(frame.pack, frame.unpack):
        return function(*args, **kwargs)


def _reentrant(
    function: Callable, args: tuple, kwargs: dict, preserve: bool, context_fn: object
) -> Any:
    if kwargs or context_fn is not None:
        raise ValueError(
            f"checkpoint: Unexpected keyword arguments: {', '.join(kwargs) or 'context_fn'}; with "
            "use_reentrant=True the function's arguments go by position: use use_reentrant=False"
        )
    if thread.grad_enabled and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
        warn(
            "None of the inputs have requires_grad=True. Gradients will be None: set "
            "use_reentrant=False, which does not need it",
            stacklevel=3,
        )
    return _Again.apply(function, preserve, *args)


def checkpoint_sequential(
    functions: Any, segments: int, input: object, use_reentrant: bool | None = None, **options: Any
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
        input = checkpoint(_chain(steps[start:end]), input, use_reentrant=use_reentrant, **options)
    return _chain(steps[end:])(input)


def _chain(steps: Sequence) -> Callable:
    def run(x: object) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether second runs of calls made in this block end early."""
    before, thread.checkpoint_early_stop = thread.checkpoint_early_stop, enable
    try:
        yield
    finally:
        thread.checkpoint_early_stop = before
