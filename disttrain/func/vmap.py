"""vmap: a function of one example, applied to a batch at once.

Each operation runs once, with a batch dimension, by its primitive's batch rule; a primitive
without one runs per example, which a warning says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import tree
from ..core.gate import Primitive, Tracer, gate
from ..core.random import States
from ..core.tensor import Tensor
from ..errors import CaptureError, ConfigError, ShapeError
from ..ops.functions import inplace
from ..ops.functions.views import join, split
from ..ops.primitives.batching import front, fronted
from ..ops.primitives.views import expand, permute, reshape
from ..trace import warn
from .functions import batch_function
from .levels import Level, check, settle

_new = object.__new__


class BatchTracer(Tracer):
    """A value with a batch dimension at ``bdim`` of ``inner``, which the function does not see."""

    bdim: int | None

    def meta(self) -> tuple:
        shape, kind = self.inner.meta()
        if self.bdim is not None:
            shape = shape[: self.bdim] + shape[self.bdim + 1 :]
        return tuple(shape), kind

    def _data(self) -> Tensor:
        raise CaptureError(
            "vmap: accessing `data` under vmap transform is not allowed: writes to it would go "
            "unnoticed; use .detach()"
        )


class Batch(Level):
    """One active vmap over ``size`` examples."""

    draws = True
    name = "vmap"

    def __init__(self, size: int, randomness: str) -> None:
        super().__init__()
        self.size, self.randomness = size, randomness

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
        return self.wrap(tracer.inner.detach(), tracer.bdim)

    def aligned(self, old: Any, new: Any) -> tuple[Tensor, BatchTracer]:
        if old.bdim == new.bdim:
            return old.inner, new
        inner = fronted(new.inner, new.bdim, self.size)
        return fronted(old.inner, old.bdim, self.size), self.wrap(inner, 0)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        check(self, prim)
        inners = tuple(a.inner if self.owns(a) else a for a in args)
        dims = tuple(a.bdim if self.owns(a) else None for a in args)
        if prim.random:
            return self._random(prim, inners, dims, params)
        if all(d is None for d in dims):
            out = prim(*inners, **params)
            return self._wrapped(out, (None,) * len(out) if prim.multi else None)
        out, out_dims = batch_rule(prim)(inners, dims, params, self.size)
        return self._wrapped(out, out_dims)

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

    def _random(self, prim: Primitive, inners: tuple, dims: tuple, params: dict) -> Any:
        if self.randomness == "error":
            raise CaptureError(
                f"{prim.name}: random numbers inside vmap; say whether every example gets its own "
                "(randomness='different') or all the same (randomness='same')"
            )
        if self.randomness == "same" and prim.name in _BY_VALUE and set(dims) != {None}:
            raise CaptureError(
                f"{prim.name}: Vmap does not currently support same randomness with a batched "
                "tensor input: what is drawn depends on the values, which differ; use 'different'"
            )
        run: Any = _Draw(prim, self.randomness == "same")
        with self.below():
            if run.same and all(d is None for d in dims):
                return self._wrapped(run(*inners, **params), None)
            out, dim = per_example(run)(inners, dims, params, self.size)
        return self._wrapped(out, dim)


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
) -> Callable:
    """``func`` over a batch: ``in_dims`` says which dimension of each argument is the batch (None:
    none; a tree of them for nested arguments), ``out_dims`` where it goes in the results.

    ``randomness``: 'error', 'different' (each example draws its own numbers) or 'same'.
    """
    if randomness not in ("error", "different", "same"):
        raise ConfigError(f"vmap: randomness={randomness!r}; needed 'error', 'different' or 'same'")

    @functools.wraps(func)
    def batched(*args: Tensor | dict, **kwargs: object) -> Any:
        leaves, rebuild = tree.flatten(args)
        dims = _spread(in_dims, args, leaves)
        size = _size(leaves, dims)
        if chunk_size is None or chunk_size >= size:
            return _run(func, leaves, rebuild, dims, size, out_dims, randomness, kwargs)
        return _in_chunks(
            func, leaves, rebuild, dims, size, out_dims, randomness, kwargs, chunk_size
        )

    return batched


def _spread(in_dims: Any, args: tuple, leaves: list) -> list:
    """One entry of ``in_dims`` per leaf: an entry stands for everything below it."""
    if in_dims is None or isinstance(in_dims, int):
        return [in_dims if isinstance(leaf, Tensor) else None for leaf in leaves]
    if len(in_dims) != len(args):
        raise ConfigError(
            f"vmap: in_dims has {len(in_dims)} entries for {len(args)} arguments; give one for each"
        )
    out: list = []
    for entry, arg in zip(in_dims, args, strict=True):
        _spread_into(entry, arg, out)
    return out


def _spread_into(entry: dict | int | tuple | None, arg: Tensor | dict | tuple, out: list) -> None:
    if entry is None or isinstance(entry, int):
        below = tree.leaves(arg)
        out.extend(entry if isinstance(leaf, Tensor) else None for leaf in below)
        return
    pairs = (
        [(entry[k], arg[k]) for k in arg]
        if isinstance(arg, dict)
        else list(zip(entry, arg, strict=True))
    )
    for sub_entry, sub_arg in pairs:
        _spread_into(sub_entry, sub_arg, out)


def _size(leaves: list, dims: list) -> int:
    found: dict[int, int] = {}
    for i, (leaf, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            continue
        if leaf.ndim == 0 or not -leaf.ndim <= d < leaf.ndim:
            raise ShapeError(
                f"vmap: argument leaf {i} of shape {list(leaf.shape)} has no dimension {d} to map "
                "over"
            )
        dims[i] = d % leaf.ndim
        found[i] = leaf.shape[dims[i]]
    if not found:
        raise ConfigError("vmap: no argument is mapped over; at least one in_dims must be a number")
    if len(set(found.values())) > 1:
        sizes = ", ".join(f"leaf {i}: {n}" for i, n in found.items())
        raise ShapeError(f"vmap: the mapped dimensions have different sizes ({sizes})")
    return next(iter(found.values()))


def _run(
    func: Callable, leaves: list, rebuild: Callable, dims: list, size: int, out_dims: object,
    randomness: str, kwargs: dict,
) -> Any:  # fmt: skip
    level = Batch(size, randomness)
    with level.running():
        inputs = [x if d is None else level.wrap(x, d) for x, d in zip(leaves, dims, strict=True)]
        result = settle(func(*rebuild(inputs), **kwargs))
        written = [
            (x, tracer, d)
            for x, tracer, d in zip(leaves, inputs, dims, strict=True)
            if d is not None and _is_written(tracer, x)
        ]
    for x, tracer, d in written:
        inplace.copy_(x, _leave(level, tracer, d))
    outs, unflatten = tree.flatten(result)
    places = _places(out_dims, result)
    return unflatten([_leave(level, o, d) for o, d in zip(outs, places, strict=True)])


def _is_written(tracer: BatchTracer, given: Tensor) -> bool:
    """Whether an input was changed in place: its value inside is no more the one that was given."""
    tracer.graph_node()
    return tracer.inner is not given


def _places(out_dims: Any, result: Any) -> list:
    """One entry of ``out_dims`` per leaf of ``result``."""
    if out_dims is None or isinstance(out_dims, int):
        return [out_dims] * len(tree.leaves(result))
    if not isinstance(result, (tuple, list)) and len(out_dims) == 1:
        result = (result,)
    out: list = []
    try:
        if len(out_dims) != len(result):
            raise ValueError("other structure")
        _spread_into(out_dims, result, out)
    except (TypeError, ValueError, KeyError):
        raise ConfigError(
            f"vmap: out_dims={out_dims!r} does not have the structure of the function's result"
        ) from None
    return out


def _leave(level: Batch, out: object, place: int | None) -> Any:
    if not isinstance(out, Tensor):
        raise ConfigError(f"vmap: the function returned a {type(out).__name__}; tensors are needed")
    inner: Tensor = out
    bdim = None
    if isinstance(out, BatchTracer) and level.owns(out):
        inner, bdim = out.inner, out.bdim
    if place is None:
        if bdim is not None:
            raise ConfigError("vmap: out_dims is None for a result that depends on the batch")
        return inner
    if bdim is None:
        shape = tuple(inner.meta()[0])
        inner, bdim = expand(reshape(inner, shape=(1, *shape)), shape=(level.size, *shape)), 0
    n = len(inner.meta()[0])
    target = place % n
    order = [i for i in range(n) if i != bdim]
    order.insert(target, bdim)
    return inner if order == list(range(n)) else permute(inner, dims=tuple(order))


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
        parts.append(_run(func, piece, rebuild, dims, n, out_dims, randomness, kwargs))
    columns = [tree.leaves(p) for p in parts]
    unflatten = tree.flatten(parts[0])[1]
    places = _places(out_dims, parts[0])
    return unflatten(
        [
            c[0] if place is None else join.cat(list(c), place)
            for c, place in zip(zip(*columns, strict=True), places, strict=True)
        ]
    )
