"""Rows of a table by number, and sums of them bag by bag."""

from __future__ import annotations

from ...core import Tensor, no_grad
from ...core.annotations import DeviceLike, DTypeLike
from ...errors import DTypeError, PaddingError, ShapeError, cause
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter, empty


class Embedding(Module):
    """Integers (...) to rows (..., embedding_dim) of ``weight``, which starts as N(0, 1).

    Row ``padding_idx`` starts as zeros and gets no gradient. ``max_norm``, ``norm_type``,
    ``scale_grad_by_freq`` and ``sparse`` are those of ``functional.embedding``.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise PaddingError(
                    "Embedding: padding_idx must be within num_embeddings="
                    f"{num_embeddings}; {padding_idx} given"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        shape = (num_embeddings, embedding_dim)
        if _weight is None:
            self.weight = Parameter(empty(shape, dtype, device), requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != shape:
                raise ShapeError(
                    f"Embedding: weight of shape {list(_weight.shape)} given; needed {list(shape)}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An Embedding over a given (num, dim) table, frozen unless told otherwise."""
        if embeddings.ndim != 2:
            raise ShapeError(
                f"Embedding.from_pretrained: a table of shape {list(embeddings.shape)} given; "
                "needed 2 dimensions"
            )
        rows, cols = embeddings.shape
        return cls(
            rows, cols, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings,
            freeze,
        )  # fmt: skip

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None and not self.weight.is_meta:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input: Tensor) -> Tensor:
        try:
            return F.embedding(
                input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
                self.scale_grad_by_freq, self.sparse,
            )  # fmt: skip
        except (ShapeError, DTypeError) as error:
            raise type(error)(
                f"{self!r}: needed integer indices in [0, {self.num_embeddings}). ({error})"
            ) from cause(error)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text


class EmbeddingBag(Module):
    """Bags of integers to (bags, embedding_dim): sums, means or maxima of rows of ``weight``, which
    starts as N(0, 1). Arguments and inputs are those of ``functional.embedding_bag``."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        table = Embedding(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq,
            sparse, _weight, False, device, dtype,
        )  # fmt: skip
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx, self.weight = table.padding_idx, table.weight
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.mode, self.include_last_offset = mode, include_last_offset

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """One over a given (num, dim) table, frozen unless told otherwise."""
        if embeddings.ndim != 2:
            raise ShapeError(
                f"EmbeddingBag.from_pretrained: a table of shape {list(embeddings.shape)} given; "
                "needed 2 dimensions"
            )
        rows, cols = embeddings.shape
        out = cls(
            rows, cols, max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
            include_last_offset, padding_idx,
        )  # fmt: skip
        out.weight.requires_grad = not freeze
        return out

    reset_parameters = Embedding.reset_parameters

    def forward(
        self, input: Tensor, offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        return text
