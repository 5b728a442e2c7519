"""How a tensor prints: values through numpy's printer, then what differs from the default."""

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


def set_printoptions(
    precision: int | None = None, threshold: int | None = None, edgeitems: int | None = None,
    linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """How tensors print on the calling rank."""
    options = context.current().slot("ops.printing", lambda: dict(_DEFAULTS))
    if profile in ("default", "short", "full"):
        options.update(_DEFAULTS)
        options["precision"] = 2 if profile == "short" else 4
        options["threshold"] = 10**9 if profile == "full" else 1000
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems,
             "linewidth": linewidth, "sci_mode": sci_mode}  # fmt: skip
    options.update({k: v for k, v in given.items() if v is not None})


def text(self: Tensor, *, tensor_contents: object = None) -> str:
    """``tensor([...], dtype=..., grad_fn=...)``."""
    prefix = "Parameter containing:\n" if type(self).__name__ == "Parameter" else ""
    level = getattr(self, "interp", None)
    if level is not None and not level.adopts:
        return f"traced tensor(shape={list(self.shape)}, dtype={self.dtype!r}, {level})"
    parts = [_values(self)]
    kind = self.dtype
    usual = (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool)
    if self.is_meta:
        parts.append("device='meta'")
        parts.append(f"size={tuple(self.shape)}")
    elif self.device.index is not None:
        parts.append(f"device='{self.device}'")
    if self.shape.numel() == 0 and self.ndim > 1 and not self.is_meta:
        parts.append(f"size={tuple(self.shape)}")
    if kind not in usual:
        parts.append(f"dtype={kind!r}")
    tangent = None if level is None else getattr(self, "tangent", None)
    if tangent is not None:
        parts.append(f"tangent={tangent}")
    node = self.graph_node()
    if node is not None:
        own = node.__class__ is AccumulateGrad
        parts.append("requires_grad=True" if own else f"grad_fn=<{node.name()}>")
    return f"{prefix}tensor({', '.join(parts)})"


def _values(self: Tensor) -> str:
    if self.is_meta:
        return "..."
    options = context.current().slot("ops.printing", lambda: dict(_DEFAULTS))
    array = values_of(self) if self.device.index is not None else self.array
    if array.dtype.kind == "V" or array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.size == 0:
        return "[]"
    form = _float_format(array, options) if array.dtype.kind == "f" else None
    return np.array2string(
        array, separator=", ", prefix="tensor(",
        formatter=None if form is None else {"float_kind": form},
        threshold=options["threshold"], edgeitems=options["edgeitems"],
        max_line_width=options["linewidth"],
    )  # fmt: skip


def _float_format(array: np.ndarray, options: dict) -> Callable[[Any], str]:
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

    few = decide if decide.size <= 1000 else np.concatenate([decide[:500], decide[-500:]])
    width = max((len(form(v)) for v in few), default=1)
    return lambda v: form(v).rjust(width)
