"""Tables of 8-bit rows, each on a grid from its least to its greatest number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import nn, ops
from ...core import Tensor, wrap
from ...errors import ConfigError
from ...nn import functional as F
from ...ops.primitives import quantization as prim
from ...ops.primitives.gathering import take
from .. import types
from ..grids import Grid
from ..observers import default_float_qparams_observer
from ..tensor import QuantizedTensor, made
from . import weights


class _Table(nn.Module):
    """Keeps rows as ``uint8_weight``, their scales as ``weight_scale``, and their zero points,
    which are no whole numbers, as ``weight_zero_point``."""

    uint8_weight: Tensor
    weight_scale: Tensor
    weight_zero_point: Tensor

    def _make(self, rows: int, width: int) -> None:
        self.num_embeddings, self.embedding_dim = rows, width
        self.register_buffer("uint8_weight", wrap(np.zeros((rows, width), np.uint8)))
        self.register_buffer("weight_scale", ops.ones(rows))
        self.register_buffer("weight_zero_point", ops.zeros(rows))

    def set_weight(self, w: QuantizedTensor) -> None:
        """Take another weight, of quint8 with a grid for each row."""
        if w.kind is not types.quint8 or w.grid.axis != 0:
            raise ConfigError(
                f"{type(self).__name__}: needed a weight of quint8 with a grid for each row; "
                "observe it by default_float_qparams_observer"
            )
        scale, zero = w.grid.tensors
        self.uint8_weight = w.levels.detach().clone()
        self.weight_scale, self.weight_zero_point = scale.clone(), zero.float()

    def weight(self) -> QuantizedTensor:
        """The weight as a quantized tensor."""
        grid = Grid(self.weight_scale, self.weight_zero_point, 0)
        return made(self.uint8_weight, grid, types.quint8)

    def _rows(self, index: Tensor) -> Tensor:
        """The rows of these numbers, in float32."""
        rows = F.embedding(index, self.uint8_weight)
        scale, zero = (take(t, index, dim=0) for t in (self.weight_scale, self.weight_zero_point))
        out: Tensor = prim.dequantize(rows, scale.unsqueeze(-1), zero.unsqueeze(-1))
        return out

    @classmethod
    def _observer(cls, mod: Any) -> Any:
        own = getattr(mod, "weight_fake_quant", None)
        if own is not None:
            return own
        qconfig = getattr(mod, "qconfig", None)
        return default_float_qparams_observer() if qconfig is None else qconfig.weight()

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, "
            f"dtype={types.quint8!r}, qscheme={self.weight().qscheme()!r}"
        )


class Embedding(_Table):
    """Integers (...) to rows (..., embedding_dim), in float32."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        dtype: Any = types.quint8,
    ) -> None:  # fmt: skip
        super().__init__()
        if types.quantized(dtype, "Embedding") is not types.quint8:
            raise ConfigError(f"quantized Embedding: dtype={dtype!r} given; needed quint8")
        self._make(num_embeddings, embedding_dim)
        self.padding_idx = padding_idx

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Embedding:
        """One for a table that was trained, by the observer of weights in its qconfig."""
        observed = weights.observed(mod.weight, cls._observer(mod))
        out = cls(mod.num_embeddings, mod.embedding_dim, mod.padding_idx)
        out.set_weight(observed)
        return out

    def forward(self, indices: Tensor) -> Tensor:
        return self._rows(indices)

    def _get_name(self) -> str:
        return "QuantizedEmbedding"


class EmbeddingBag(_Table):
    """Bags of integers to sums, means or maxima of rows, in float32."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "sum",
        include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._make(num_embeddings, embedding_dim)
        self.mode, self.include_last_offset = mode, include_last_offset
        self.padding_idx = padding_idx

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> EmbeddingBag:
        """One for a table that was trained, by the observer of weights in its qconfig."""
        observed = weights.observed(mod.weight, cls._observer(mod))
        out = cls(
            mod.num_embeddings, mod.embedding_dim, mod.mode, mod.include_last_offset,
            mod.padding_idx,
        )  # fmt: skip
        out.set_weight(observed)
        return out

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        flat = indices.reshape(-1)
        rows = self._rows(flat)  # bags are taken of these rows, by their places
        places = ops.arange(flat.shape[0]).reshape(indices.shape)
        if self.padding_idx is not None:
            keep = (flat != self.padding_idx).unsqueeze(1)
            if self.mode != "sum":
                raise ConfigError("quantized EmbeddingBag: padding_idx is for mode='sum'")
            rows = ops.where(keep, rows, ops.zeros_like(rows))
        return F.embedding_bag(
            places, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )  # fmt: skip

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"


__all__ = ["Embedding", "EmbeddingBag"]
