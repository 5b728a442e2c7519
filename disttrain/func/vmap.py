"""vmap: a function of one example, applied to a batch at once.

Each operation runs once, with a batch dimension, by its primitive's batch rule; a primitive
without one runs per example, which a warning says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from .. import tree
from ..context import thread
from ..core.gate import Primitive, Tracer, gate
from ..core.random import States
from ..core.tensor import Tensor
from ..errors import CaptureError, ConfigError, DimError
from ..ops.functions import inplace
from ..ops.functions.creation import create
from ..ops.functions.views import join, split
from ..ops.primitives.batching import front, fronted
from ..ops.primitives.views import expand, permute, reshape
from ..trace import warn
from . import batch_dims
from .batch_collectives import COLLECTIVES, SAME
from .batch_dims import UNSET
from .functions import batch_function
from .levels import Level, check, is_written, renew, settle
from .named import Named

_new = object.__new__
FALLBACK_WARNINGS = "func.vmap.fallback_warnings"  # the rank's slot: whether they are given


class BatchTracer(Tracer):
    """A value with a batch dimension at ``bdim`` of ``inner``, which the function does not see."""

    bdim: int | None
    differs = False  # along a varying axis: whether it stands for one value for each example

    def meta(self) -> tuple:
        shape, kind = self.inner.meta()
        if self.bdim is not None:
            shape = shape[: self.bdim] + shape[self.bdim + 1 :]
        return tuple(shape), kind

    def steps(self) -> tuple:
        steps = super().steps()
        return steps if self.bdim is None else steps[: self.bdim] + steps[self.bdim + 1 :]

    def _data(self) -> Tensor:
        raise CaptureError(
            "vmap: accessing `data` under vmap transform is not allowed: writes to it would go "
            "unnoticed; use .detach()"
        )


class Batch(Level):
    """One active vmap over ``size`` examples."""

    draws = True
    name = "vmap"

    collectives = COLLECTIVES

    def __init__(
        self, size: int, randomness: str, axis_name: Hashable = None, varying: bool = False
    ) -> None:
        super().__init__()
        self.size, self.randomness = size, randomness
        self.axis_name, self.varying = axis_name, varying

    def again(self) -> Batch:
        """Another level over as many examples, under the same name."""
        return Batch(self.size, self.randomness, self.axis_name, self.varying)

    def index(self) -> BatchTracer:
        """The number of each example."""
        return self.wrap(create.arange(self.size), 0)

    def differs(self, tracer: Any) -> bool:
        """Whether the value may differ between the examples."""
        return tracer.bdim is not None or tracer.differs

    def wrap(self, inner: Tensor, bdim: int | None) -> BatchTracer:
        out = _new(BatchTracer)
        out.inner, out.bdim, out.interp = inner, bdim, self
        return out

    def moves(self, tracer: Any) -> bool:
        return tracer.bdim is not None

    def lift(self, value: Tensor) -> BatchTracer:
        return self.wrap(value, None)

    def detached(self, tracer: Tracer) -> BatchTracer:
        assert isinstance(tracer, BatchTracer)
        out = self.wrap(tracer.inner.detach(), tracer.bdim)
        out.differs = tracer.differs
        return out

    def aligned(self, old: Any, new: Any) -> tuple[Tensor, BatchTracer]:
        if old.bdim == new.bdim:
            return old.inner, new
        inner = fronted(new.inner, new.bdim, self.size)
        return fronted(old.inner, old.bdim, self.size), self.wrap(inner, 0)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        check(self, prim)
        if prim.__class__ is Named and params["axis"] is self:
            return self._collective(prim, args[0], params)
        if self.varying:
            return self._marked(self._run(prim, args, params), args)
        return self._run(prim, args, params)

    def _run(self, prim: Primitive, args: tuple, params: dict) -> Any:
        inners = tuple(a.inner if self.owns(a) else a for a in args)
        dims = tuple(a.bdim if self.owns(a) else None for a in args)
        if prim.random:
            return self._random(prim, inners, dims, params)
        if all(d is None for d in dims):
            out = prim(*inners, **params)
            return self._wrapped(out, (None,) * len(out) if prim.multi else None)
        out, out_dims = batch_rule(prim)(inners, dims, params, self.size)
        return self._wrapped(out, out_dims)

    def _collective(self, prim: Primitive, x: Any, params: dict) -> Any:
        inner, dim = self.collectives[prim.name](x.inner, x.bdim, self.size, params)
        out = self.wrap(inner, dim)
        out.differs = self.varying and prim.name not in SAME
        return out

    def _marked(self, out: Any, args: tuple) -> Any:
        """``out``, which differs between the examples if one of ``args`` does."""
        if any(self.owns(a) and self.differs(a) for a in args):
            for o in out if isinstance(out, tuple) else (out,):
                o.differs = True
        return out

    def summed(self, r: Any) -> Any:
        """``r`` outside, all examples added."""
        return _leave(self, r, 0).sum(0)

    def apply_function(self, cls: type, args: tuple, kwargs: dict) -> Any:
        return batch_function(self, cls, args, kwargs)

    def leave(self, out: Tensor, place: int) -> Tensor:
        """``out`` outside of the batch, with the batch as dimension ``place``."""
        return _leave(self, out, place)

    def _wrapped(self, out: Any, dims: Any) -> Any:
        if isinstance(out, tuple):
            dims = dims if isinstance(dims, tuple) else (dims,) * len(out)
            return tuple(self.wrap(o, d) for o, d in zip(out, dims, strict=True))
        return self.wrap(out, dims)

    def check_draw(self, name: str, by: tuple, target: Tensor | None = None) -> None:
        """Refuse a draw that depends on the values ``by``, or is written over ``target``, where
        the examples could not get what they are to get: the same, or each its own."""
        self._check_same(name, [_batch_of(self, v) for v in by])
        if target is None or self.randomness != "different":
            return
        if all(_batch_of(self, v) is None for v in (target, *by)):
            raise CaptureError(
                f"{name}: Vmap does not support different inplace randomness on an unbatched "
                f"tensor, one from outside the batch (shape {list(target.shape)}); use the "
                "out-of-place form"
            )

    def _check_same(self, name: str, dims: Any) -> None:
        if self.randomness == "same" and any(d is not None for d in dims):
            raise CaptureError(
                f"{name}: Vmap does not currently support same randomness with a batched tensor "
                "input: what is drawn depends on the values, which differ; use 'different'"
            )

    def _random(self, prim: Primitive, inners: tuple, dims: tuple, params: dict) -> Any:
        if self.randomness == "error":
            raise CaptureError(
                f"{prim.name}: called random operation while in randomness error mode: random "
                "numbers inside vmap; say whether every example gets its own "
                "(randomness='different') or all the same (randomness='same')"
            )
        if prim.name in _BY_VALUE:
            self._check_same(prim.name, dims)
        run: Any = _Draw(prim, self.randomness == "same")
        with self.below():
            if run.same and all(d is None for d in dims):
                return self._wrapped(run(*inners, **params), None)
            out, dim = per_example(run)(inners, dims, params, self.size)
        return self._wrapped(out, dim)


def _batch_of(level: Batch, value: Any) -> int | None:
    """Where ``value``, of this level or a higher one, has the batch; None: nowhere."""
    while isinstance(value, Tracer):
        if isinstance(value, BatchTracer) and level.owns(value):
            return value.bdim
        value = value.inner
    return None


_BY_VALUE = (  # draws from the distributions given
    "bernoulli", "binomial", "multinomial", "poisson", "standard_dirichlet", "standard_gamma",
    "standard_von_mises",
)  # fmt: skip


class _Draw:
    """A drawing primitive, called as others are; ``same``: with the same numbers every time."""

    def __init__(self, prim: Primitive, same: bool) -> None:
        self.prim, self.multi, self.same, self.state = prim, prim.multi, same, None

    def __call__(self, *args: Any, generator: Any, **params: Any) -> Any:
        if self.same:
            self.state = generator.get_state() if self.state is None else self.state
            generator.set_state(self.state)
        return gate(self.prim, args, {**params, "generator": generator})


def batch_rule(prim: Primitive) -> Callable:
    """The primitive's rule, the elementwise one, or the loop over examples."""
    if prim.batch is not None:
        return prim.batch
    if prim.elementwise:
        return functools.partial(_elementwise, prim)
    if thread.rank.slots.get(FALLBACK_WARNINGS, True):
        warn(f"vmap: {prim.name} has no batch rule and runs once per example")
    return per_example(prim)


def _elementwise(prim: Primitive, args: tuple, dims: tuple, params: dict, size: int) -> tuple:
    rank = max(
        len(a.meta()[0]) - (d is not None)
        for a, d in zip(args, dims, strict=True)
        if isinstance(a, Tensor)
    )
    aligned = [
        a if d is None else _aligned(front(a, d), rank) for a, d in zip(args, dims, strict=True)
    ]
    return prim(*aligned, **params), 0


def _aligned(a: Tensor, rank: int) -> Tensor:
    """Batch dimension first, then ones up to ``rank`` dimensions."""
    shape = a.meta()[0]
    missing = rank - (len(shape) - 1)
    return reshape(a, shape=(shape[0], *(1,) * missing, *shape[1:])) if missing else a


def per_example(prim: Primitive) -> Callable:
    """A batch rule that runs ``prim`` once per example and stacks the results."""

    def rule(args: tuple, dims: tuple, params: dict, size: int) -> tuple:
        rows = []
        for i in range(size):
            one = [
                a if d is None else split.select(a, d, i) for a, d in zip(args, dims, strict=True)
            ]
            rows.append(prim(*one, **params))
        if prim.multi:
            outs = tuple(join.stack(column) for column in zip(*rows, strict=True))
            return outs, (0,) * len(outs)
        return join.stack(rows), 0

    return rule


def vmap(
    func: Callable,
    in_dims: object = 0,
    out_dims: object = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
    axis_name: Hashable = None,
    axis_size: int | None = None,
    in_axes: object = UNSET,
    out_axes: object = UNSET,
) -> Callable:
    """``func`` over a batch: ``in_dims`` says which dimension of each argument is the batch (None:
    none; a tree of them for nested arguments), ``out_dims`` where it goes in the results (None: the
    result is one for all examples, and need not be a tensor).

    ``randomness``: 'error', 'different' (each example draws its own numbers) or 'same'.
    ``axis_name``: what collectives inside (``psum``, ``all_gather`` ...) call the batch;
    ``axis_size``: how many examples there are, for functions that no argument tells.
    ``in_axes``, ``out_axes``: other names of ``in_dims`` and ``out_dims``.
    """
    in_dims = batch_dims.either("in", in_dims, in_axes)
    out_dims = batch_dims.either("out", out_dims, out_axes)
    if randomness not in ("error", "different", "same"):
        raise ConfigError(
            "vmap: Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness!r}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ConfigError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    if chunk_size is not None and axis_name is not None:
        raise ConfigError(
            "vmap: chunk_size and axis_name are given; collectives need all examples at once"
        )

    @functools.wraps(func)
    def batched(*args: Tensor | dict, **kwargs: object) -> Any:
        entries = batch_dims.spread_in(in_dims, args, axis_size is not None)
        batch_dims.check_out_dims(out_dims)
        leaves, rebuild = tree.flatten(args, with_none=True)
        dims = batch_dims.checked(leaves, entries)
        size = batch_dims.size_of(leaves, dims, axis_size)
        if chunk_size is None or chunk_size >= size:
            level = Batch(size, randomness, axis_name)
            return run_batch(level, func, leaves, rebuild, dims, out_dims, kwargs)
        return _in_chunks(
            func, leaves, rebuild, dims, size, out_dims, randomness, kwargs, chunk_size
        )

    return batched


def run_batch(
    level: Batch, func: Callable, leaves: list, rebuild: Callable, dims: list, out_dims: object,
    kwargs: dict,
) -> Any:  # fmt: skip
    """``func`` on its arguments, those with a dimension in ``dims`` as values of ``level``."""
    with level.running():
        inputs = [x if d is None else level.wrap(x, d) for x, d in zip(leaves, dims, strict=True)]
        result = settle(func(*rebuild(inputs), **kwargs))
        for x, tracer, d in zip(leaves, inputs, dims, strict=True):
            if d is not None and is_written(tracer, x):
                _write_back(level, x, tracer, d)
        settle(result)
    outs, unflatten = tree.flatten(result, with_none=True)
    places = batch_dims.spread_out(out_dims, result)
    return unflatten([_leave(level, o, d, func) for o, d in zip(outs, places, strict=True)])


def _write_back(level: Batch, given: Tensor, tracer: BatchTracer, dim: int) -> None:
    """Write over an argument what was written over its examples, which are parts of it again: so
    that results which are, or are views of, what was written share its memory."""
    inplace.copy_(given, _leave(level, tracer, dim))
    renew(tracer, level.wrap(given, dim))


def _leave(level: Batch, out: object, place: int | None, func: object = None) -> Any:
    """``out`` as it is outside, with the batch as dimension ``place``."""
    inner: Any = out
    bdim = None
    if isinstance(out, BatchTracer) and level.owns(out):
        inner, bdim = out.inner, out.bdim
    if place is None:
        if bdim is not None:
            raise ConfigError(
                f"vmap: `{_name(func)}` can not return a BatchedTensor when out_dim is None: the "
                "result depends on the batch; say by out_dims where its dimension goes"
            )
        return inner
    if not isinstance(out, Tensor):
        raise ConfigError(
            f"vmap: `{_name(func)}` must only return Tensors, got type {type(out)}. Did you mean "
            "to set out_dims= to None for output?"
        )
    if bdim is None:
        shape = tuple(inner.meta()[0])
        inner, bdim = expand(reshape(inner, shape=(1, *shape)), shape=(level.size, *shape)), 0
    n = len(inner.meta()[0])
    if not -n <= place < n:
        raise DimError(
            f"vmap: Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got "
            f"out_dims={place})"
        )
    order = [i for i in range(n) if i != bdim]
    order.insert(place % n, bdim)
    return inner if order == list(range(n)) else permute(inner, dims=tuple(order))


def _name(func: object) -> str:
    return getattr(func, "__name__", type(func).__name__)


def _in_chunks(
    func: Callable, leaves: list, rebuild: Callable, dims: list, size: int, out_dims: object,
    randomness: str, kwargs: dict, chunk: int,
) -> Any:  # fmt: skip
    parts = []
    state = States() if randomness == "same" else None
    for start in range(0, size, chunk):
        if state is not None:  # the same draws in all chunks
            state.restore()
        n = min(chunk, size - start)
        piece = [
            x if d is None else split.narrow(x, d, start, n)
            for x, d in zip(leaves, dims, strict=True)
        ]
        level = Batch(n, randomness)
        parts.append(run_batch(level, func, piece, rebuild, dims, out_dims, kwargs))
    columns = [tree.leaves(p, with_none=True) for p in parts]
    unflatten = tree.flatten(parts[0], with_none=True)[1]
    places = batch_dims.spread_out(out_dims, parts[0])
    return unflatten(
        [
            c[0] if place is None else join.cat(list(c), place)
            for c, place in zip(zip(*columns, strict=True), places, strict=True)
        ]
    )
