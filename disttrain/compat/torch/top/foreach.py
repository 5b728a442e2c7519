"""``torch._foreach_*``: one operation on each tensor of a list, by the tensors' methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import disttrain as dt

from ....core import Tensor
from ....core.writes import opened
from ....errors import ShapeError
from ....ops.functions.linalg import vector_norm

_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p
log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc""".split()
_BINARY = "add sub mul div clamp_min clamp_max maximum minimum pow lerp".split()
_TERNARY = "addcmul addcdiv".split()
_MEANT = {"maximum": "clamp_min", "minimum": "clamp_max"}  # of numbers, and in place


def _each(where: str, first: Sequence[Tensor], other: object) -> Sequence:
    """What goes with each tensor of ``first``: of a list its own, else ``other`` itself."""
    if not isinstance(other, (list, tuple)):
        return [other] * len(first)
    if len(other) != len(first):
        raise ShapeError(
            f"{where}: Tensor lists must have the same number of tensors, got {len(first)} and "
            f"{len(other)}"
        )
    return other


def _applied(where: str, method: str, *lists: object, **options: object) -> tuple:
    """The results of ``method`` of each tensor of the first list."""
    first = next(a for a in lists if isinstance(a, (list, tuple)))
    if not first:
        raise ShapeError(f"{where}: Tensor list must have at least one tensor; an empty one given")
    rows = zip(*[_each(where, first, a) for a in lists], strict=True)
    return tuple([_call(method, row, options) for row in rows])


def _call(method: str, row: tuple, options: dict) -> Any:
    target = row[0]
    if not isinstance(target, Tensor):  # a number to the power of each
        return getattr(dt, method)(*row, **options)
    plain = method.rstrip("_")
    if plain in _MEANT:
        method = method.replace(plain, _MEANT[plain])
    return getattr(target, method)(*row[1:], **options)


def _making(name: str) -> Callable[..., tuple]:
    def foreach(*lists: Tensor | float | list, **options: object) -> tuple:
        return _applied(f"_foreach_{name}", name, *lists, **options)

    return foreach


def _writing(name: str) -> Callable[..., None]:
    def foreach(*lists: float | list, **options: object) -> None:
        with opened():  # (as in PyTorch)
            _applied(f"_foreach_{name}_", f"{name}_", *lists, **options)

    return foreach


def _scaled(make: Callable[..., Any]) -> Callable[..., Any]:
    """For ``addcmul`` and ``addcdiv``: ``value``: a number, a list or a tensor of them."""

    def foreach(
        self: list, tensor1: list, tensor2: list, value: float | list = 1, **kw: object
    ) -> Any:
        if not self:
            raise ShapeError(
                "_foreach: Tensor list must have at least one tensor; an empty one given"
            )
        given = kw.get("scalars", value)
        values = given.tolist() if isinstance(given, Tensor) else given
        rows = [_each("_foreach", self, a) for a in (tensor1, tensor2, values)]
        parts = zip(self, *rows, strict=True)
        made = [make([a], [b], [c], value=v) for a, b, c, v in parts]
        return None if made[0] is None else tuple([m[0] for m in made])

    return foreach


def norms(tensors: Sequence[Tensor], ord: float = 2, dtype: object = None) -> tuple:
    """The norm of each tensor."""
    return tuple([vector_norm(t, ord, dtype=dtype) for t in tensors])


def copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> None:
    """Copy each tensor of ``src`` into that of ``self``."""
    _applied("_foreach_copy_", "copy_", self, src)


def names() -> dict[str, Callable]:
    """The functions by their names in ``torch``."""
    out: dict[str, Callable] = {}
    for name in (*_UNARY, *_BINARY):
        out[name], out[f"{name}_"] = _making(name), _writing(name)
    for name in _TERNARY:
        out[name], out[f"{name}_"] = _scaled(_making(name)), _scaled(_writing(name))
    out |= {"norm": norms, "max": _making("max"), "copy_": copy_, "zero_": _writing("zero")}
    for name, function in out.items():
        function.__name__ = function.__qualname__ = f"_foreach_{name}"
    return {f"_foreach_{name}": function for name, function in out.items()}
