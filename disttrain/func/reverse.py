"""grad and vjp. Reverse mode needs no level of its own: it is the tape.

The function runs on aliases of its inputs, made at the level that the caller runs in. An input that
the tape follows already stays connected to it, so derivatives of derivatives see it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..context import thread
from ..core.backward.autograd import grad as tape_grad
from ..core.gate import Tracer
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..core.writes import Inside
from ..errors import AutogradError, ConfigError
from ..ops.functions.creation import create
from ..ops.primitives.views import reshape
from .levels import followed, innermost, leave_private
from .numbers import as_tensor, as_tensors

_VJP, _GRAD = "vjp(f, *primals)", "grad_and_value(f)(*args)"


def _alias(value: Tensor) -> Any:
    """A tensor of the caller's level that stands for ``value`` as an input to differentiate."""
    if not isinstance(value, Tensor):
        raise ConfigError(f"grad: an input is a {type(value).__name__}; tensors are needed")
    level = innermost()
    if level is not None and not level.owns(value):
        value = level.lift(value)
    if value.requires_grad and thread.grad_enabled:
        return reshape(value, shape=tuple(value.meta()[0]))
    out = value.alias() if isinstance(value, Tracer) else value.detach()
    return out.requires_grad_()


def _cut(out: Tensor) -> Any:
    """``out`` without its place in the graph of its own level."""
    if not isinstance(out, Tensor) or out.graph_node() is None:
        return out
    return out.alias() if isinstance(out, Tracer) else out.detach()


def _argnums(where: str, argnums: Any, count: int) -> tuple[int, ...]:
    if not _is_number(argnums) and not isinstance(argnums, tuple):
        raise AutogradError(
            f"{where}: argnums must be int or Tuple[int, ...], got: {type(argnums)}"
        )
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise AutogradError(f"{where}: argnums must be non-empty, got argnums=()")
    for n in numbers:
        if not _is_number(n):
            raise AutogradError(f"{where}: each of argnums must be int, got {n!r} in {argnums!r}")
        if not -count <= n < count:
            raise AutogradError(f"{where}: Got argnum={n}, but only {count} positional inputs")
    places = tuple([n % count for n in numbers])
    if len(set(places)) < len(places):
        raise AutogradError(f"{where}: argnums elements must be unique, got argnums={argnums!r}")
    return places


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def split_aux(where: str, result: Any) -> tuple:
    """(output, aux) of a function with ``has_aux``; ``where`` is the transform as it is called."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise AutogradError(
            f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    for leaf in tree.leaves(result[1], with_none=True):
        if not isinstance(leaf, Tensor):
            raise AutogradError(
                f"{where}: aux: Expected tensors, got unsupported type {type(leaf).__name__}"
            )
    return result


def output_leaves(where: str, result: Any) -> tuple[list, Callable]:
    """The leaves of what a function returned, which must be tensors; how they are put together."""
    outs, unflatten = tree.flatten(result)
    if not outs:
        raise AutogradError(
            f"{where}: Expected f to be a function that has non-empty output (got output = "
            f"{result!r})"
        )
    for out in outs:
        if not isinstance(out, Tensor):
            raise AutogradError(
                f"{where}: expected f(*primals) to return only tensors, got unsupported type "
                f"{type(out).__name__}"
            )
    return outs, unflatten


def chosen(
    where: str, func: Callable, argnums: int | Sequence[int], args: tuple, kwargs: dict
) -> tuple[tuple, Callable]:
    """The arguments ``argnums`` of ``args``, and ``func`` as a function of those alone."""
    numbers = _argnums(where, argnums, len(args))

    def of(*values: object) -> Any:
        full = list(tree.map(_unfollowed, args))
        for n, value in zip(numbers, values, strict=True):
            full[n] = value
        return func(*full, **kwargs)

    return tuple(tree.map(as_tensor, args[n]) for n in numbers), of


def _unfollowed(value: Any) -> Any:
    """An argument that is not differentiated: one over the same memory, which may be written to
    and has then a place in the graph that the caller's has not."""
    plain = isinstance(value, Tensor) and value.__class__ is Tensor
    return value.detach() if plain and value.graph_node() is None else value


def vjp(func: Callable, *primals: object, has_aux: bool = False) -> tuple:
    """(``func(*primals)``, a function from cotangents to the inputs' cotangents)."""
    return pulled(func, primals, has_aux)


def pulled(func: Callable, primals: tuple, has_aux: bool, own: Sequence = ()) -> tuple:
    """``vjp`` of a function that may also write to the tensors ``own``."""
    if not callable(func):
        raise ConfigError(f"vjp: Thing passed to transform API must be callable, got {func!r}")
    leaves, rebuild = tree.flatten(primals)
    leaves = as_tensors(leaves)
    recording = thread.grad_enabled
    with enable_grad():  # (what is pulled back later may be recorded, when this is not)
        inputs = [_alias(x) for x in leaves]
        with Inside("vjp", (*inputs, *own)).running():
            result = func(*rebuild(inputs))
    aux = None
    leave_private(inputs)
    if has_aux:
        result, aux = split_aux(_VJP, result)
    outs, unflatten = output_leaves(_VJP, result)
    form = tree.structure(result)
    outside = followed(outs, inputs)
    keep = recording and outside

    def pull(*cotangents: Tensor | dict | list) -> Any:
        whole = cotangents[0] if len(cotangents) == 1 else cotangents
        if tree.structure(whole) != form:
            raise AutogradError(
                "vjp: Expected pytree structure of cotangents to be the same as pytree structure "
                f"of outputs to the function. cotangents: {tree.structure(whole)}, primal output: "
                f"{form}"
            )
        given = [as_tensor(g, o) for g, o in zip(tree.leaves(whole), outs, strict=True)]
        create = thread.grad_enabled and (outside or followed(given, ()))
        pairs = [(o, g) for o, g in zip(outs, given, strict=True) if o.requires_grad]
        return rebuild(_pull(pairs, inputs, create))

    answer = unflatten(outs if keep else [_cut(o) for o in outs])
    aux = aux if keep else tree.map(_cut, aux)
    return (answer, pull, aux) if has_aux else (answer, pull)


def _pull(pairs: list, inputs: list, create: bool) -> list:
    if not pairs:
        return [_zeros(x) for x in inputs]
    rows = tape_grad(
        [o for o, _ in pairs], inputs, [g for _, g in pairs], retain_graph=True,
        create_graph=create, allow_unused=True,
    )  # fmt: skip
    return [_zeros(x) if r is None else r for x, r in zip(inputs, rows, strict=True)]


def _zeros(x: Tensor) -> Tensor:
    return create.zeros(*x.shape, dtype=x.dtype, device=x.device)


def grad_and_value(
    func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable:
    """As ``grad``, also returning the value: (gradients, value) or (gradients, (value, aux))."""

    @functools.wraps(func)
    def wrapped(*args: Tensor | dict, **kwargs: object) -> Any:
        picked, of = chosen("grad", func, argnums, args, kwargs)
        leaves, rebuild = tree.flatten(picked)
        inputs = [_alias(x) for x in as_tensors(leaves)]
        recording = thread.grad_enabled
        inside = Inside("grad", (*inputs, *tree.leaves((args, kwargs))))
        with enable_grad(), inside.running():
            value = of(*rebuild(inputs))
        leave_private(inputs)
        aux = None
        if has_aux:
            value, aux = split_aux(_GRAD, value)
        _check_scalar(value)
        keep = recording and followed([value], inputs)
        rows = _scalar_rows(value, inputs, keep)
        if not keep:
            value, aux = _cut(value), tree.map(_cut, aux)
        grads = rebuild(rows)
        grads = grads[0] if isinstance(argnums, int) else grads
        return grads, (value, aux) if has_aux else value

    return wrapped


def _check_scalar(value: Any) -> None:
    if not isinstance(value, Tensor):
        raise AutogradError(f"{_GRAD}: Expected f(*args) to return a tensor, got {type(value)}")
    if value.ndim:
        raise AutogradError(
            f"{_GRAD}: Expected f(*args) to return a scalar tensor, got tensor with {value.ndim} "
            f"dims, of shape {list(value.shape)}; vjp and jacrev take other functions"
        )


def _scalar_rows(value: Tensor, inputs: list, create: bool) -> list:
    if not value.requires_grad:
        return [_zeros(x) for x in inputs]
    rows = tape_grad([value], inputs, create_graph=create, allow_unused=True)
    return [_zeros(x) if r is None else r for x, r in zip(inputs, rows, strict=True)]


def grad(func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """The gradient of a function with a scalar result, with respect to arguments ``argnums``."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Tensor | dict, **kwargs: object) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped


def value_and_grad(
    func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable:
    """As ``grad_and_value``, the value first."""
    both = grad_and_value(func, argnums, has_aux)
    return functools.wraps(func)(lambda *args, **kwargs: both(*args, **kwargs)[::-1])
