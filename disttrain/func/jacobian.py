"""jacrev, jacfwd, hessian: whole Jacobians, by vmap over vjp or jvp with all unit tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..core.tensor import Tensor
from ..errors import AutogradError, ConfigError
from ..ops.functions.creation import create
from ..ops.functions.views.join import stack
from ..ops.functions.views.split import select
from ..ops.primitives.views import permute, reshape
from .jvp import pushed
from .reverse import chosen, pulled
from .vmap import vmap


def _basis(x: Tensor) -> Tensor:
    """All unit tensors of the shape of ``x``: [numel, *shape]."""
    n = x.shape.numel()
    return reshape(create.eye(n, dtype=x.dtype, device=x.device), shape=(n, *x.meta()[0]))


def _directions(leaves: list, at: int) -> list:
    """Unit tensors for leaf ``at``, zeros for the others; each with the batch in front."""
    n = leaves[at].shape.numel()
    return [
        _basis(x) if i == at else create.zeros(n, *x.shape, dtype=x.dtype, device=x.device)
        for i, x in enumerate(leaves)
    ]


def _check_real(where: str, what: str, leaves: list) -> None:
    for i, x in enumerate(leaves):
        if isinstance(x, Tensor) and x.dtype.is_complex:
            raise AutogradError(
                f"{where}: Expected all {what} to be real but received complex tensor at flattened "
                f"input idx: {i}; take the parts apart with view_as_real"
            )


def jacrev(
    func: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable:
    """The Jacobian, a row per element of the result: [*result, *input] per argument.

    Results and arguments may be trees: the answer is a tree of results of trees of arguments.
    ``chunk_size``: at most so many rows at once (1: one after the other, without ``vmap``).
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ConfigError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Tensor, **kwargs: object) -> Any:
        picked, of = chosen("jacrev", func, argnums, args, kwargs)
        _check_real("jacrev", "inputs", tree.leaves(picked))
        out, pull, *aux = pulled(of, picked, has_aux, tree.leaves((args, kwargs)))
        outs, unflatten = tree.flatten(out)
        _check_real("jacrev", "outputs", outs)
        answers = []
        for i, o in enumerate(outs):
            rows = _rows(lambda *g: pull(unflatten(list(g))), _directions(outs, i), chunk_size)
            rows = tree.map(lambda r, o=o: reshape(r, shape=(*o.shape, *r.shape[1:])), rows)
            answers.append(rows[0] if isinstance(argnums, int) else rows)
        answer = unflatten(answers)
        return (answer, aux[0]) if has_aux else answer

    return wrapped


def _rows(pull: Callable, directions: list, chunk_size: int | None) -> Any:
    """``pull`` of every row of the directions, stacked."""
    count = len(directions[0])
    if chunk_size != 1 or not count:
        return vmap(pull, chunk_size=chunk_size)(*directions)
    rows = [pull(*[select(d, 0, i) for d in directions]) for i in range(count)]
    return tree.map(lambda *same: stack(same), *rows)


def jacfwd(
    func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    *, randomness: str = "error",
) -> Callable:  # fmt: skip
    """The Jacobian, a column per element of the input: [*result, *input] per argument.

    Results and arguments may be trees: the answer is a tree of results of trees of arguments.
    """

    @functools.wraps(func)
    def wrapped(*args: Tensor, **kwargs: object) -> Any:
        picked, of = chosen("jacfwd", func, argnums, args, kwargs)
        leaves, rebuild = tree.flatten(picked)
        _check_real("jacfwd", "inputs", leaves)

        def along(*directions: Tensor) -> Any:
            value, *moved = pushed(
                of, picked, rebuild(list(directions)), has_aux=has_aux,
                own=tree.leaves((args, kwargs)),
            )  # fmt: skip
            _check_real("jacfwd", "outputs", tree.leaves(value))
            return tuple(moved)

        columns: list = []
        moved: Any = None
        for i, x in enumerate(leaves):
            over = vmap(along, out_dims=(0, None) if has_aux else (0,), randomness=randomness)
            moved = over(*_directions(leaves, i))
            columns.append([_last(c, x) for c in tree.leaves(moved[0])])
        unflatten = tree.flatten(moved[0])[1]
        answers = [rebuild(list(row)) for row in zip(*columns, strict=True)]
        answer = unflatten([a[0] if isinstance(argnums, int) else a for a in answers])
        return (answer, moved[1]) if has_aux else answer

    return wrapped


def _last(columns: Tensor, x: Tensor) -> Tensor:
    """[numel, *result] as [*result, *input]."""
    n = len(columns.shape)
    moved = permute(columns, dims=(*range(1, n), 0))
    return reshape(moved, shape=(*moved.shape[:-1], *x.shape))


def hessian(func: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """The matrix of second derivatives of a scalar function: forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)
