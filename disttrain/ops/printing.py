"""How a tensor prints: its values in brackets, then what differs from the default. As PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import context
from ..core.classes import values_of
from ..core.node import AccumulateGrad
from ..core.tensor import Tensor
from ..core.types import dtypes

_DEFAULTS = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_PROFILES: dict[str, dict] = {
    "default": {},
    "short": {"precision": 2, "edgeitems": 2},
    "full": {"threshold": float("inf")},
}


def set_printoptions(
    precision: int | None = None, threshold: int | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """How tensors print on the calling rank."""
    chosen = options()
    if profile in _PROFILES:
        chosen.update(_DEFAULTS)
        chosen.update(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems,
             "linewidth": linewidth, "sci_mode": sci_mode}  # fmt: skip
    chosen.update({k: v for k, v in given.items() if v is not None})


def text(self: Tensor, *, tensor_contents: object = None) -> str:
    """``tensor([...], dtype=..., grad_fn=...)``."""
    prefix = "Parameter containing:\n" if type(self).__name__ == "Parameter" else ""
    level = getattr(self, "interp", None)
    if level is not None and not level.adopts:
        return f"traced tensor(shape={list(self.shape)}, dtype={self.dtype!r}, {level})"
    parts = []
    kind = self.dtype
    usual = dtypes.get_default_dtype()
    empty = not self.shape.numel()
    if self.is_meta:
        parts.append("device='meta'")
        parts.append(f"size={tuple(self.shape)}")
    elif self.device.index is not None:
        parts.append(f"device='{self.device}'")
    if empty and self.ndim > 1 and not self.is_meta:
        parts.append(f"size={tuple(self.shape)}")
    if kind is not usual and (empty or kind not in (dtypes.int64, dtypes.bool, usual.to_complex())):
        parts.append(f"dtype={kind!r}")
    tangent = None if level is None else getattr(self, "tangent", None)
    node = self.graph_node()
    if node is not None:
        own = node.__class__ is AccumulateGrad
        parts.append("requires_grad=True" if own else f"grad_fn=<{node.name()}>")
    if tangent is not None:
        parts.append(f"tangent={tangent}")
    return prefix + with_suffixes(f"tensor({contents(self, len('tensor('))}", parts, len("tensor("))


def options() -> dict:
    """How tensors print on the calling rank."""
    return context.current().slot("ops.printing", lambda: dict(_DEFAULTS))


def with_suffixes(said: str, parts: list[str], indent: int) -> str:
    """``said``, then the parts, on lines that are no wider than asked, and a bracket."""
    width = len(said.rpartition("\n")[2]) + 2  # (with what closes it)
    for part in parts:
        if width + len(part) + 2 > options()["linewidth"]:
            said, width = f"{said},\n{' ' * indent}{part}", indent + len(part)
        else:
            said, width = f"{said}, {part}", width + len(part) + 2
    return said + ")"


def contents(self: Tensor, indent: int) -> str:
    """The values in brackets, whose lines begin after ``indent`` columns."""
    if self.is_meta:
        return "..."
    array = values_of(self) if self.device.index is not None else self.array
    if array.size == 0:
        return "[]"
    if array.dtype == dtypes.key.np:
        array = array.view(np.uint64)
    if array.dtype.kind == "V" or array.dtype == np.float16:
        array = array.astype(np.float32)
    chosen = options()
    short = array.size > chosen["threshold"]
    shown = _edges(array, chosen["edgeitems"]) if short else array
    return _Writer(chosen, short, *_form(shown, chosen)).write(array, indent)


def _edges(array: np.ndarray, count: int) -> np.ndarray:
    """The elements of which a shortened text consists."""
    for axis, size in enumerate(array.shape):
        if size > 2 * count:
            at = np.r_[:count, size - count : size]
            array = np.take(array, at, axis)
    return array


class _Writer:
    """Nested brackets of elements, which ``form`` gives as texts of one ``width``."""

    def __init__(self, chosen: dict, short: bool, form: Callable[[Any], str], width: int) -> None:
        self.line, self.edge, self.short = chosen["linewidth"], chosen["edgeitems"], short
        self.form, self.width = form, width

    def write(self, array: np.ndarray, indent: int) -> str:
        if array.ndim == 0:
            return self.form(array[()])
        if array.ndim == 1:
            return self._row(array, indent)
        parts = self._picked(array, lambda a: self.write(a, indent + 1), "...")
        between = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
        return f"[{between.join(parts)}]"

    def _row(self, array: np.ndarray, indent: int) -> str:
        many = max(1, (self.line - indent) // (self.width + 2))
        parts = self._picked(array, self.form, " ...")
        lines = [", ".join(parts[i : i + many]) for i in range(0, len(parts), many)]
        return f"[{(',' + chr(10) + ' ' * (indent + 1)).join(lines)}]"

    def _picked(self, array: np.ndarray, say: Callable[[Any], str], rest: str) -> list[str]:
        if not self.short or len(array) <= 2 * self.edge:
            return [say(a) for a in array]
        last = array[len(array) - self.edge :]
        return [*(say(a) for a in array[: self.edge]), rest, *(say(a) for a in last)]


def _form(array: Any, chosen: dict) -> tuple[Callable[[Any], str], int]:
    """How one element is written, and how wide it is."""
    if array.dtype.kind == "c":
        real, wide = _float_form(array.real, chosen)
        imaginary, deep = _float_form(array.imag, chosen)

        def both(v: Any) -> str:
            part = imaginary(v.imag).lstrip()
            return f"{real(v.real)}{'' if part[0] == '-' else '+'}{part}j"

        return both, wide + deep + 1
    if array.dtype.kind == "f":
        return _float_form(array, chosen)
    width = max((len(str(v)) for v in array.ravel().tolist()), default=0)
    return lambda v: str(v.item()).rjust(width), width


def _float_form(array: np.ndarray, options: dict) -> tuple[Callable[[Any], str], int]:
    """Torch's choice: scientific when the range is wide, else whole numbers as '1.', else fixed.
    Only finite numbers other than 0 decide how wide a column is."""
    decide = array[np.isfinite(array) & (array != 0)].astype(np.float64)
    size = np.abs(decide)
    whole = bool((decide == np.ceil(decide)).all())
    scientific = options["sci_mode"]
    if scientific is None and decide.size:
        top, low = size.max(), size.min()
        scientific = top / low > 1000.0 or top > 1e8 or (low < 1e-4 and not whole)
    if scientific and decide.size:
        style, dot = f".{options['precision']}e", ""
    else:
        style, dot = (".0f", ".") if whole else (f".{options['precision']}f", "")

    def form(v: np.generic) -> str:
        return format(v, style) + (dot if np.isfinite(v) else "")

    width = max((len(form(v)) for v in decide), default=1)
    return (lambda v: form(v).rjust(width)), width
