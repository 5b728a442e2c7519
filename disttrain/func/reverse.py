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


def _argnums(where: str, argnums: int | Sequence[int], count: int) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -count <= n < count:
            raise ConfigError(f"{where}: argnums={argnums} given for {count} arguments")
    return tuple(n % count for n in numbers)


def chosen(
    where: str, func: Callable, argnums: int | Sequence[int], args: tuple, kwargs: dict
) -> tuple[tuple, Callable]:
    """The arguments ``argnums`` of ``args``, and ``func`` as a function of those alone."""
    numbers = _argnums(where, argnums, len(args))

    def of(*values: object) -> Any:
        full = list(args)
        for n, value in zip(numbers, values, strict=True):
            full[n] = value
        return func(*full, **kwargs)

    return tuple(args[n] for n in numbers), of


def vjp(func: Callable, *primals: object, has_aux: bool = False) -> tuple:
    """(``func(*primals)``, a function from cotangents to the inputs' cotangents)."""
    leaves, rebuild = tree.flatten(primals)
    recording = thread.grad_enabled
    with enable_grad():  # (what is pulled back later may be recorded, when this is not)
        inputs = [_alias(x) for x in leaves]
        with Inside("vjp", inputs).running():
            result = func(*rebuild(inputs))
    aux = None
    leave_private(inputs)
    if has_aux:
        result, aux = result
    outs, unflatten = tree.flatten(result)
    outs = [_output("vjp", o) for o in outs]
    outside = followed(outs, inputs)
    keep = recording and outside

    def pull(*cotangents: Tensor | dict | list) -> Any:
        given = tree.leaves(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(given) != len(outs):
            raise ConfigError(f"vjp: {len(given)} cotangents given for {len(outs)} results")
        create = thread.grad_enabled and (outside or followed(given, ()))
        pairs = [(o, g) for o, g in zip(outs, given, strict=True) if o.requires_grad]
        return rebuild(_pull(pairs, inputs, create))

    answer = unflatten(outs if keep else [_cut(o) for o in outs])
    aux = aux if keep else tree.map(_cut, aux)
    return (answer, pull, aux) if has_aux else (answer, pull)


def _output(where: str, out: Tensor) -> Tensor:
    if not isinstance(out, Tensor):
        raise AutogradError(
            f"{where}: the function returned a {type(out).__name__}; it must return tensors"
        )
    return out


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
        inputs = [_alias(x) for x in leaves]
        recording = thread.grad_enabled
        inside = Inside("grad", (*inputs, *tree.leaves((args, kwargs))))
        with enable_grad(), inside.running():
            value = of(*rebuild(inputs))
        leave_private(inputs)
        aux = None
        if has_aux:
            value, aux = value
        if not isinstance(value, Tensor) or value.shape.numel() != 1 or value.ndim:
            what = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise AutogradError(
                f"grad: the function must return a scalar tensor; it returned {what}"
            )
        keep = recording and followed([value], inputs)
        rows = _scalar_rows(value, inputs, keep)
        if not keep:
            value, aux = _cut(value), tree.map(_cut, aux)
        grads = rebuild(rows)
        grads = grads[0] if isinstance(argnums, int) else grads
        return grads, (value, aux) if has_aux else value

    return wrapped


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
