"""What layers share that give quantized tensors: the grid of their results, and the check of what
they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Tensor, wrap
from ...errors import ConfigError, DTypeError
from ...nn import Module
from .. import types
from ..grids import Grid
from ..tensor import QuantizedTensor, made


class Output(Module):
    """Gives results on the grid of ``scale`` and ``zero_point``, numbers that state dicts carry."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.kind = types.quint8

    def take_grid(self, module: Any) -> None:
        """The grid that the observer of ``module``'s results has found."""
        observer = getattr(module, "activation_post_process", None)
        if observer is None:
            raise ConfigError(
                f"{type(self).__name__}.from_float: {type(module).__name__} has no observer of its "
                "results (activation_post_process); call prepare() and run it on some data"
            )
        scale, zero = observer.calculate_qparams()
        self.set_grid(float(scale.item()), int(zero.item()), observer.dtype)

    def set_grid(self, scale: float, zero_point: int, kind: Any) -> None:
        """Have results on this grid."""
        self.kind = types.quantized(kind, type(self).__name__)
        self.scale, self.zero_point = scale, zero_point

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("scale", "zero_point"):
            if isinstance(value, Tensor):
                value = value.item()
            self.__dict__.pop("_grid", None)
        super().__setattr__(name, value)

    @property
    def grid(self) -> Grid:
        """As one object, which keeps its tensors."""
        found = self.__dict__.get("_grid")
        if found is None:
            found = self.__dict__["_grid"] = Grid(self.scale, self.zero_point)
        return found

    def quantized_input(self, x: Any) -> QuantizedTensor:
        """``x`` if it is quantized, with one grid."""
        if not isinstance(x, QuantizedTensor):
            raise DTypeError(
                f"{self!r}: {type(x).__name__} given; needed a quantized tensor: put a QuantStub "
                "before it (or QuantWrapper around the model), and convert() the whole"
            )
        if x.grid.axis is not None:
            raise DTypeError(f"{self!r}: needed a tensor with one grid, not {x.qscheme()!r}")
        return x

    def rounded(self, x: Tensor, relu: bool = False) -> QuantizedTensor:
        """``x`` on the grid. ``relu``: with numbers below 0 made 0."""
        grid = self.grid
        low = int(self.zero_point) if relu else None
        return made(grid.levels(x, self.kind, low), grid, self.kind)

    def grid_text(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    # --- state ----------------------------------------------------------------------------------
    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = wrap(np.array(self.scale, np.float32))
        destination[prefix + "zero_point"] = wrap(np.array(self.zero_point, np.int64))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict, strict: bool,
        missing_keys: list[str], *args: Any,
    ) -> None:  # fmt: skip
        given = dict(state_dict)
        for name in ("scale", "zero_point"):
            value = given.pop(prefix + name, None)
            if value is not None:
                setattr(self, name, value)
            elif strict:
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(given, prefix, local_metadata, strict, missing_keys, *args)


__all__ = ["Output"]
