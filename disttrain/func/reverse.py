"""grad, vjp and what is built on them. Reverse mode needs no level of its own: it is the tape.

The function runs on aliases of its inputs, made at the level that the caller runs in. An input that
the tape follows already stays connected to it, so derivatives of derivatives see it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import tree
from ..core.autograd import grad as tape_grad
from ..core.gate import Tracer
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..errors import AutogradError, ConfigError
from ..ops import create
from ..ops import shape as shaping
from ..ops.views import reshape
from .jvp import jvp
from .levels import innermost
from .vmap import vmap


def _alias(value: Any) -> Any:
    """A tensor of the caller's level that stands for ``value`` as an input to differentiate."""
    if not isinstance(value, Tensor):
        raise ConfigError(f"grad: an input is a {type(value).__name__}; tensors are needed")
    level = innermost()
    if level is not None and not level.owns(value):
        value = level.lift(value)
    if value.requires_grad:
        return reshape(value, shape=tuple(value.meta()[0]))
    out = value.alias() if isinstance(value, Tracer) else value.detach()
    return out.requires_grad_()


def _follows(value: Tensor) -> bool:
    """Whether an outer derivative may want the graph of ``value``."""
    return value.requires_grad or isinstance(value, Tracer)


def _argnums(argnums: int | Sequence[int], count: int) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for n in numbers:
        if not -count <= n < count:
            raise ConfigError(f"grad: argnums={argnums} given for {count} arguments")
    return tuple(n % count for n in numbers)


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """(``func(*primals)``, a function from cotangents to the inputs' cotangents)."""
    leaves, rebuild = tree.flatten(primals)
    keep = any(_follows(x) for x in leaves)
    inputs = [_alias(x) for x in leaves]
    with enable_grad():
        result = func(*rebuild(inputs))
    aux = None
    if has_aux:
        result, aux = result
    outs, unflatten = tree.flatten(result)

    def pull(*cotangents: Any) -> Any:
        given = tree.leaves(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(given) != len(outs):
            raise ConfigError(f"vjp: {len(given)} cotangents given for {len(outs)} results")
        pairs = [(o, g) for o, g in zip(outs, given, strict=True) if o.requires_grad]
        rows = _pull(pairs, inputs, True)
        grads = rebuild([r if keep or _follows(r) and _outer(given) else r.detach() for r in rows])
        return grads

    answer = unflatten([o if keep else _cut(o) for o in outs])
    return (answer, pull, aux) if has_aux else (answer, pull)


def _outer(values: Sequence[Any]) -> bool:
    return any(isinstance(v, Tensor) and _follows(v) for v in values)


def _cut(out: Tensor) -> Tensor:
    return out if isinstance(out, Tracer) else out.detach()


def _pull(pairs: list, inputs: list, create_graph: bool) -> list:
    if not pairs:
        return [_zeros(x) for x in inputs]
    rows = tape_grad(
        [o for o, _ in pairs], inputs, [g for _, g in pairs], retain_graph=True,
        create_graph=create_graph, allow_unused=True,
    )  # fmt: skip
    return [_zeros(x) if r is None else r for x, r in zip(inputs, rows, strict=True)]


def _zeros(x: Tensor) -> Tensor:
    return x.detach() * 0 if isinstance(x, Tracer) else create.zeros_like(x)


def grad_and_value(
    func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable:
    """As ``grad``, also returning the value: (gradients, value) or (gradients, (value, aux))."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = _argnums(argnums, len(args))
        leaves, rebuild = tree.flatten(tuple(args[n] for n in numbers))
        outer = any(_follows(x) for x in tree.leaves(args) if isinstance(x, Tensor))
        inputs = [_alias(x) for x in leaves]
        full = list(args)
        for n, value in zip(numbers, rebuild(inputs), strict=True):
            full[n] = value
        with enable_grad():
            value = func(*full, **kwargs)
        aux = None
        if has_aux:
            value, aux = value
        if not isinstance(value, Tensor) or value.shape.numel() != 1 or value.ndim:
            what = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise AutogradError(
                f"grad: the function must return a scalar tensor; it returned {what}"
            )
        rows = _scalar_rows(value, inputs)
        if not outer:
            rows = [r.detach() if not isinstance(r, Tracer) else r for r in rows]
            value = _cut(value)
        grads = rebuild(rows)
        grads = grads[0] if isinstance(argnums, int) else grads
        return grads, (value, aux) if has_aux else value

    return wrapped


def _scalar_rows(value: Tensor, inputs: list) -> list:
    if not value.requires_grad:
        return [_zeros(x) for x in inputs]
    rows = tape_grad([value], inputs, create_graph=True, allow_unused=True)
    return [_zeros(x) if r is None else r for x, r in zip(inputs, rows, strict=True)]


def grad(func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """The gradient of a function with a scalar result, with respect to arguments ``argnums``."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped


def value_and_grad(
    func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable:
    """As ``grad_and_value``, the value first."""
    both = grad_and_value(func, argnums, has_aux)
    return functools.wraps(func)(lambda *args, **kwargs: both(*args, **kwargs)[::-1])


def _basis(x: Tensor) -> Tensor:
    """All unit tensors of the shape of ``x``: [numel, *shape]."""
    n = x.shape.numel()
    return shaping.reshape(create.eye(n, dtype=x.dtype), (n, *x.meta()[0]))


def jacrev(func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable:
    """The Jacobian, a row per element of the result: [*result, *input] per argument."""

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        numbers = _argnums(argnums, len(args))

        def of(*chosen: Any) -> Any:
            full = list(args)
            for n, value in zip(numbers, chosen, strict=True):
                full[n] = value
            return func(*full)

        out, pull, *aux = vjp(of, *[args[n] for n in numbers], has_aux=has_aux)
        rows = vmap(pull)(_basis(out))
        shape = tuple(out.meta()[0])
        parts = [shaping.reshape(r, (*shape, *r.meta()[0][1:])) for r in rows]
        answer = parts[0] if isinstance(argnums, int) else tuple(parts)
        return (answer, aux[0]) if has_aux else answer

    return wrapped


def jacfwd(
    func: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False,
    *, randomness: str = "error",
) -> Callable:  # fmt: skip
    """The Jacobian, a column per element of the input: [*result, *input] per argument."""

    @functools.wraps(func)
    def wrapped(*args: Any) -> Any:
        numbers = _argnums(argnums, len(args))
        parts, extra = [], None
        for n in numbers:
            x = args[n]

            def along(direction: Tensor, n: int = n, x: Tensor = x) -> Any:
                def of(value: Tensor) -> Any:
                    return func(*args[:n], value, *args[n + 1 :])

                return jvp(of, (x,), (direction,), has_aux=has_aux)[1:]

            moved = vmap(along, out_dims=-1, randomness=randomness)(_basis(x))
            column, *aux = moved
            extra = aux[0] if aux else None
            parts.append(shaping.reshape(column, (*column.meta()[0][:-1], *x.meta()[0])))
        answer = parts[0] if isinstance(argnums, int) else tuple(parts)
        return (answer, extra) if has_aux else answer

    return wrapped


def hessian(func: Callable, argnums: int = 0) -> Callable:
    """The matrix of second derivatives of a scalar function: forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)


def functional_call(module: Any, parameters: dict, args: Any = (), kwargs: Any = None) -> Any:
    """``module(*args)`` with other parameters and buffers, by name. The module is as before after it."""
    args = args if isinstance(args, tuple) else (args,)
    before = []
    try:
        for name, value in parameters.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path) if path else module
            table = owner._parameters if leaf in owner._parameters else owner._buffers
            if leaf not in table:
                raise ConfigError(
                    f"functional_call: the module has no parameter or buffer {name!r}"
                )
            before.append((table, leaf, table[leaf]))
            table[leaf] = value
        return module(*args, **(kwargs or {}))
    finally:
        for table, leaf, value in reversed(before):
            table[leaf] = value
