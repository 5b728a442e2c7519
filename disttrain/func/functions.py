"""``autograd.Function`` inside jvp and vmap: by the user's own rules, or, for vmap, by running the
function and its backward over the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import tree
from ..context import thread
from ..core.algebra import Algebra
from ..core.backward.function import Function, FunctionCtx, run
from ..core.gate import Tracer
from ..core.grad_mode import enable_grad, no_grad
from ..core.tensor import Tensor
from ..errors import AutogradError, CaptureError
from . import batch_dims
from .levels import Level


class VmapInfo(NamedTuple):
    """What a Function's own ``vmap`` is told of the batch."""

    batch_size: int
    randomness: str


def push_function(level: Any, cls: Any, args: tuple, kwargs: dict) -> Any:
    """``cls`` on dual values: its forward on the primals, its ``jvp`` on the tangents."""
    if thread.grad_enabled and _is_recorded(level, args):
        return run(Recorded, FunctionCtx(), (push_function, level, cls, kwargs, *args), {})
    primals = tuple([a.inner if level.owns(a) else a for a in args])
    if level.deferred:
        return _push_later(level, cls, args, primals, kwargs)
    tangents = tuple([_tangent(level, a) for a in args])
    before = [0 if t is None else t._version for t in tangents]
    ctx = FunctionCtx()
    dirty: list = []

    def mark_dirty(*inputs: Tensor) -> None:
        dirty.extend(inputs)
        FunctionCtx.mark_dirty(ctx, *inputs)

    ctx.mark_dirty = mark_dirty  # type: ignore[method-assign]
    result = _forward(cls, ctx, primals, kwargs)
    several = isinstance(result, tuple)
    outs = result if several else (result,)
    moved = (None,) * len(outs)
    if any(level.owns(a) and a.tangent is not None for a in args):
        moved = _moved(cls, ctx, tangents, len(outs))
    duals = tuple(
        _dual(level, args, primals, (tangents, before), o, t, any(o is d for d in dirty))
        for o, t in zip(outs, moved, strict=True)
    )
    return duals if several else duals[0]


def _moved(cls: Any, ctx: FunctionCtx, tangents: tuple, count: int) -> tuple:
    """What ``cls.jvp`` says: a tangent for each of ``count`` results."""
    ctx._pushing = True
    moved = cls.jvp(ctx, *tangents)
    ctx._pushing = False
    moved = moved if isinstance(moved, tuple) else (moved,) * (1 if count == 1 else 0)
    moved = moved or (None,) * count
    if len(moved) != count:
        raise AutogradError(
            f"{cls.__name__}.jvp returned {len(moved)} tangents for {count} results; one for "
            "each is needed (None where there is none)"
        )
    return moved


def _push_later(level: Any, cls: Any, args: tuple, primals: tuple, kwargs: dict) -> Any:
    """As ``push_function``, for a level whose tangents are not there yet."""
    ctx = FunctionCtx()
    result = _forward(cls, ctx, primals, kwargs)
    if ctx._dirty:
        raise CaptureError(
            f"{cls.__name__}.apply: changes its inputs in place, which {level} cannot follow; "
            "return new tensors, or use jvp"
        )
    several = isinstance(result, tuple)
    outs = result if several else (result,)

    def rule(given: tuple) -> tuple:
        pairs = zip(given, primals, strict=True)
        return _moved(cls, ctx, tuple([_or_zeros(t, p) for t, p in pairs]), len(outs))

    tangents = tuple([a.tangent if level.owns(a) else None for a in args])
    parts = (None,) * len(outs)
    if any(t is not None for t in tangents):
        parts = level.later(rule, tangents, outs)
    duals = tuple(
        level.result(o, p) if isinstance(o, Tensor) else o for o, p in zip(outs, parts, strict=True)
    )
    return duals if several else duals[0]


def _is_recorded(level: Level, args: tuple) -> bool:
    """Whether the tape follows any argument inside the level."""
    return any(level.owns(a) and a.graph_node() is not None for a in args)


def _forward(cls: Any, ctx: FunctionCtx, primals: tuple, kwargs: dict) -> Any:
    """``cls`` on the primals, which fills ``ctx`` for its ``jvp``. Where they are values of another
    transform, that one applies ``cls`` as it does elsewhere."""
    if not any(isinstance(p, Tracer) for p in primals):
        return run(cls, ctx, primals, kwargs)
    if cls.setup_context is Function.setup_context:
        raise CaptureError(
            f"{cls.__name__}.apply: a custom Function inside jvp inside another transform, whose "
            "forward takes ctx; needed are forward(*args) and setup_context(ctx, inputs, output)"
        )
    result = cls.apply(*primals, **kwargs)
    ctx.needs_input_grad = tuple(
        [isinstance(p, Tensor) and p.graph_node() is not None for p in primals]
    )
    with no_grad():
        cls.setup_context(ctx, primals, result)
    return result


def _tangent(level: Any, value: Any) -> Tensor | None:
    """What ``jvp`` gets for an argument: zeros where a tensor has no tangent."""
    return _or_zeros(value.tangent if level.owns(value) else None, value)


def _or_zeros(tangent: Tensor | None, value: Any) -> Tensor | None:
    if tangent is not None:
        return tangent
    if not isinstance(value, Tensor) or value.meta()[1].kind not in "fcV":
        return None
    return Algebra.zeros(*value.meta())


def _dual(level: Any, args: tuple, primals: tuple, given: tuple, out: object, t: Any,
          written: bool) -> Any:  # fmt: skip
    """The result ``out`` with its tangent; an argument itself, where it was changed in place."""
    if not isinstance(out, Tensor):
        return out
    if not written:
        return level.result(out, t)
    i = next(i for i, p in enumerate(primals) if p is out)
    old, version = given[0][i], given[1][i]
    if old is not None and (t is not old or t._version == version):
        raise AutogradError(
            "An inplace custom Function is not modifying the forward mode gradients inplace. If "
            "the forward is modifying an input inplace, then the jvp function must modify the "
            "corresponding gradient inplace"
        )
    if not level.owns(args[i]):
        return level.result(out, t)
    args[i].tangent = t
    return args[i]


def batch_function(level: Any, cls: Any, args: tuple, kwargs: dict) -> Any:
    """``cls`` on batched values: by its own ``vmap``, or by running it over the batch."""
    own = cls.vmap is not Function.vmap
    if own and cls.generate_vmap_rule:
        raise AutogradError(
            f"{cls.__name__}: has both generate_vmap_rule=True and a static method vmap; keep one "
            "of the two"
        )
    if _is_recorded(level, args):
        return run(Recorded, FunctionCtx(), (batch_function, level, cls, kwargs, *args), {})
    if own:
        return _by_own_rule(level, cls, args)
    inners = tuple([a.inner if level.owns(a) else a for a in args])
    dims = tuple([a.bdim if level.owns(a) else None for a in args])
    if not cls.generate_vmap_rule:
        return cls.vmap(None, dims, *args)
    batched = _Batched if cls.setup_context is Function.setup_context else _BatchedInParts
    batch = _Batch(level.again, cls, dims, kwargs)
    with level.below():
        out = batched.apply(batch, *inners)
    return tree.map(lambda o: _wrapped(level, o, 0), out)


def _by_own_rule(level: Any, cls: Any, args: tuple) -> Any:
    """By the ``vmap`` of the Function, which gets containers among its arguments as they are."""
    inners = tree.map(lambda a: a.inner if level.owns(a) else a, args)
    dims = tree.map(lambda a: a.bdim if level.owns(a) else None, args)
    with level.below():
        result = cls.vmap(VmapInfo(level.size, level.randomness), dims, *inners)
    if not isinstance(result, tuple) or len(result) != 2:
        raise AutogradError(
            f"{cls.__name__}.vmap: Expected the vmap staticmethod to have two returns, (output, "
            f"out_dims); it returned {tree.structure(result)}"
        )
    out, out_dims = result
    places = batch_dims.matched(out_dims, out)
    if places is None:
        raise AutogradError(
            f"{cls.__name__}.vmap: returned an incompatible (output, out_dims): out_dims must have "
            f"the structure of the output, {tree.structure(out)}, or be one for all; it is "
            f"{out_dims!r}"
        )
    outs, rebuild = tree.flatten(out, with_none=True)
    return rebuild([_wrapped(level, o, d) for o, d in zip(outs, places, strict=True)])


def _wrapped(level: Any, out: object, dim: int | None) -> Any:
    return level.wrap(out, dim) if isinstance(out, Tensor) else out


class _Batch(NamedTuple):
    level: Callable[[], Any]
    cls: Any
    dims: tuple
    kwargs: dict

    def lift(self, level: Level, value: Tensor | _Batch, dim: int | None) -> Any:
        return value if dim is None else level.wrap(value, dim)  # type: ignore[attr-defined]


class _Batched(Function):
    """Another Function, forward and backward, inside a vmap of its own."""

    @staticmethod
    def forward(ctx: Any, batch: _Batch, *inners: Any) -> Any:
        level = batch.level()
        inner = FunctionCtx()
        inner.needs_input_grad = ctx.needs_input_grad[1:]
        with level.running():
            given = [batch.lift(level, x, d) for x, d in zip(inners, batch.dims, strict=True)]
            result = batch.cls.forward(inner, *given, **batch.kwargs)
            outs = result if isinstance(result, tuple) else (result,)
            left = tuple([level.leave(o, 0) if isinstance(o, Tensor) else o for o in outs])
            _keep(ctx, batch, inner, level, outs, left)
        return left if isinstance(result, tuple) else left[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        batch = ctx.batch
        level = batch.level()
        inner = copy.copy(ctx.inner)
        with level.running():
            inner._to_save = tuple(
                [batch.lift(level, t, d)
                 for t, d in zip(ctx.saved_tensors, ctx.kept_dims, strict=True)]
            )  # fmt: skip
            given = [None if g is None else level.wrap(g, 0) for g in grads]
            result = batch.cls._rule()(inner, *given)
            rows = result if isinstance(result, tuple) else (result,)
            n = len(batch.dims)
            left = [_gradient(level, r, d) for r, d in zip(rows[:n], batch.dims, strict=True)]
        return (None, *left)


class _BatchedInParts(_Batched):
    """The same of a Function with a ``setup_context``, which other transforms may follow, too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(batch: _Batch, *inners: Any) -> Any:  # type: ignore[override]
        level = batch.level()
        with level.running():
            given = [batch.lift(level, x, d) for x, d in zip(inners, batch.dims, strict=True)]
            result = batch.cls.forward(*given)
            outs = result if isinstance(result, tuple) else (result,)
            left = tuple([level.leave(o, 0) if isinstance(o, Tensor) else o for o in outs])
        return left if isinstance(result, tuple) else left[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        batch, *inners = inputs
        level = batch.level()
        inner = FunctionCtx()
        inner.needs_input_grad = ctx.needs_input_grad[1:]
        left = output if isinstance(output, tuple) else (output,)
        with level.running():
            given = [batch.lift(level, x, d) for x, d in zip(inners, batch.dims, strict=True)]
            outs = tuple([level.wrap(o, 0) if isinstance(o, Tensor) else o for o in left])
            several = isinstance(output, tuple)
            batch.cls.setup_context(inner, tuple(given), outs if several else outs[0])
            _keep(ctx, batch, inner, level, outs, left)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        batch = ctx.batch
        level = batch.level()
        inner = copy.copy(ctx.inner)
        with level.running():
            inner._for_forward = tuple(
                [batch.lift(level, t, d)
                 for t, d in zip(ctx.saved_tensors, ctx.forward_dims, strict=True)]
            )  # fmt: skip
            inner._pushing = True
            given = [
                t if t is None else batch.lift(level, t, d)
                for t, d in zip(tangents, batch.dims, strict=True)
            ]
            result = batch.cls.jvp(inner, *given)
            rows = result if isinstance(result, tuple) else (result,)
            left = tuple([None if r is None else level.leave(r, 0) for r in rows])
        return left if isinstance(result, tuple) else left[0]


def _keep(
    ctx: Any, batch: _Batch, inner: FunctionCtx, level: Level, outs: tuple, left: tuple
) -> None:
    """Take over what a Function has told its ``inner`` context inside the batch, whose results
    ``outs`` stand for ``left`` outside."""
    if inner._dirty:
        raise AutogradError(
            f"{batch.cls.__name__}: changes its inputs in place, which generate_vmap_rule cannot "
            "follow; define a static method vmap"
        )
    silent = inner._non_differentiable
    ctx.mark_non_differentiable(
        *[new for new, o in zip(left, outs, strict=True) if any(o is t for t in silent)]
    )
    ctx.set_materialize_grads(inner._materialize)

    def outside(tensors: tuple) -> list:
        results = {id(o): (new, 0) for o, new in zip(outs, left, strict=True)}
        own = [(t.inner, t.bdim) if level.owns(t) else (t, None) for t in tensors]
        return [results.get(id(t), pair) for t, pair in zip(tensors, own, strict=True)]

    kept, forward = outside(inner._to_save), outside(inner._for_forward or ())
    ctx.save_for_backward(*[t for t, _ in kept])
    ctx.save_for_forward(*[t for t, _ in forward])
    inner._to_save, inner._for_forward = (), None
    ctx.batch, ctx.inner = batch, inner
    ctx.kept_dims, ctx.forward_dims = [d for _, d in kept], [d for _, d in forward]


class Recorded(Function):
    """Another Function on values of a level that the tape follows there: its node is recorded
    there, and on the way its forward is recorded below. ``how``: the level's way to apply it."""

    @staticmethod
    def forward(ctx: Any, how: Any, level: Any, cls: Any, kwargs: dict, *args: Any) -> Any:
        plain = tuple([a.alias() if level.owns(a) else a for a in args])
        with enable_grad():
            result = how(level, cls, plain, kwargs)
        outs = result if isinstance(result, tuple) else (result,)
        written = [
            (a, p) for a, p in zip(args, plain, strict=True)
            if p is not a and any(o is p for o in outs)
        ]  # fmt: skip
        for a, p in written:
            a.tangent = p.tangent
        if written:
            ctx.mark_dirty(*[a for a, _ in written])
            own = {id(p): a for a, p in written}
            outs = tuple([own.get(id(o), o) for o in outs])
            result = outs if isinstance(result, tuple) else outs[0]
        everything = (*args, *outs)
        ctx.save_for_backward(*[v for v in everything if isinstance(v, Tensor)])
        ctx.rest = [None if isinstance(v, Tensor) else (v,) for v in everything]
        ctx.cls, ctx.kwargs, ctx.count = cls, kwargs, len(args)
        ctx.several = isinstance(result, tuple)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        cls, inner = ctx.cls, FunctionCtx()
        inner.needs_input_grad = ctx.needs_input_grad[4:]
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if rest is None else rest[0] for rest in ctx.rest]
        args, outs = tuple(values[: ctx.count]), tuple(values[ctx.count :])
        if cls.setup_context is Function.setup_context:
            with no_grad():
                cls.forward(inner, *args, **ctx.kwargs)
        else:
            cls.setup_context(inner, args, outs if ctx.several else outs[0])
        result = cls._rule()(inner, *grads)
        return (None, None, None, None, *(result if isinstance(result, tuple) else (result,)))


def _gradient(level: Any, r: object, dim: int | None) -> Any:
    """The gradient of an input: where that is one for the whole batch, the sum over the batch."""
    if r is None:
        return None
    return level.summed(r) if dim is None else level.leave(r, dim)
