"""Batch and instance normalisation: modules with running statistics."""

from __future__ import annotations

from typing import Any

from ...core import Tensor, no_grad
from ...core.annotations import DeviceLike, DTypeLike
from ...core.types import dtypes
from ...errors import ShapeError
from ...trace import warn
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter, UninitializedBuffer, UninitializedParameter, empty, is_lazy
from .lazy import LazyMixin


class _Norm(Module):
    """Settings, affine parameters and running statistics per feature."""

    _version = 2
    allowed: tuple[int, ...] = ()
    layout = ""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, self._parameter(device, dtype) if wanted else None)
        for name in ("running_mean", "running_var"):
            self.register_buffer(
                name, self._statistic(device, dtype) if track_running_stats else None
            )
        counter = empty((), dtypes.int64, device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", counter)
        self.reset_parameters()

    def _parameter(self, device: DeviceLike | None, dtype: DTypeLike | None) -> Parameter:
        return Parameter(empty((self.num_features,), dtype, device))

    def _statistic(self, device: DeviceLike | None, dtype: DTypeLike | None) -> Tensor:
        return empty((self.num_features,), dtype, device)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict, *rest: Any
    ) -> None:
        """A dict of the first version, or one that names no version, may lack the counter."""
        version, counter = local_metadata.get("version"), self.num_batches_tracked
        if (version is None or version < 2) and self.track_running_stats:
            start = counter.detach() if counter is not None else empty((), dtypes.int64).zero_()
            state_dict.setdefault(f"{prefix}num_batches_tracked", start)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches seen."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.constant_(self.num_batches_tracked, 0)

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check(self, input: Tensor) -> None:
        shape = input.shape
        dims = len(shape)
        if dims not in self.allowed or shape[self._feature_dim(dims)] != self.num_features:
            raise ShapeError(
                f"{self!r}: input of shape {list(shape)} given; needed {self.layout} with "
                f"num_features={self.num_features} channels"
            )

    def _feature_dim(self, dims: int) -> int:
        return 1

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Norm):
    """Normalises each channel over the batch; tracks mean and variance for evaluation."""

    normalizes_batches = True  # how transforms know it, which see no layers

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        momentum = self._count_batch()
        by_batch = self.training or self.running_mean is None
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            by_batch,
            momentum,
            self.eps,
        )

    def _count_batch(self) -> float:
        """Count a batch of training; how far it moves the running statistics."""
        momentum = self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked.item())
        return 0.0 if momentum is None else momentum


class BatchNorm1d(_BatchNorm):
    """Over (N, C) or (N, C, L)."""

    allowed, layout = (2, 3), "(N, C) or (N, C, L)"


class BatchNorm2d(_BatchNorm):
    """Over (N, C, H, W)."""

    allowed, layout = (4,), "(N, C, H, W)"


class BatchNorm3d(_BatchNorm):
    """Over (N, C, D, H, W)."""

    allowed, layout = (5,), "(N, C, D, H, W)"


class _InstanceNorm(_Norm):
    """Normalises each channel of each sample."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        settings = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *settings, bias=bias)

    def _feature_dim(self, dims: int) -> int:
        return 0 if dims == self.allowed[0] else 1

    def _check(self, input: Tensor) -> None:
        dims = input.ndim
        if self.affine or self.track_running_stats or dims not in self.allowed:
            super()._check(input)
        elif input.shape[self._feature_dim(dims)] != self.num_features:
            warn(
                f"{self!r}: input's size at dim={self._feature_dim(dims)} does not match "
                f"num_features (shape {list(input.shape)}), which is not used because affine=False",
            )

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        x = input.unsqueeze(0) if input.ndim == self.allowed[0] else input
        out = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum, self.eps,
        )  # fmt: skip
        return out if x is input else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Over (N, C, L) or (C, L)."""

    allowed, layout = (2, 3), "(N, C, L) or (C, L)"


class InstanceNorm2d(_InstanceNorm):
    """Over (N, C, H, W) or (C, H, W)."""

    allowed, layout = (3, 4), "(N, C, H, W) or (C, H, W)"


class InstanceNorm3d(_InstanceNorm):
    """Over (N, C, D, H, W) or (C, D, H, W)."""

    allowed, layout = (4, 5), "(N, C, D, H, W) or (C, D, H, W)"


class _LazyNorm(LazyMixin):
    """A normalisation that learns ``num_features`` from its first input."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(0, *args, **kwargs)  # type: ignore[call-arg]

    def _parameter(self, device: DeviceLike | None, dtype: DTypeLike | None) -> Parameter:
        return UninitializedParameter(device=device, dtype=dtype)

    def _statistic(self, device: DeviceLike | None, dtype: DTypeLike | None) -> Tensor:
        return UninitializedBuffer(device=device, dtype=dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        self.num_features = input.shape[self._feature_dim(input.ndim)]  # type: ignore[attr-defined]
        if not self.has_uninitialized_params():
            return
        for store in (self._parameters, self._buffers):  # type: ignore[attr-defined]
            for value in store.values():
                if is_lazy(value):
                    value.materialize((self.num_features,))
        self.reset_parameters()  # type: ignore[attr-defined]


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm3d
