"""Batch normalisation over the batches of all ranks. Knows groups, not how bytes travel."""

from __future__ import annotations

from typing import Any

from ...comm.group.default_group import default_group
from ...core import Tensor, no_grad
from ...core.annotations import DeviceLike, DTypeLike
from ...errors import ShapeError, UninitializedError
from ...ops.functions.nn.sync_norm import sync_batch_norm
from ..module import Module
from ..parameter import is_lazy
from .batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Normalises each channel of (N, C, ...) over the batches of all ranks of ``process_group``
    (None: the default group) as if they were one batch.

    Batches may differ in size between ranks, and be empty. In evaluation, without a group and in a
    group of one it is a batch norm like any other.
    """

    layout = "(N, C, ...)"

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ) -> None:
        settings = (eps, momentum, affine, track_running_stats, device, dtype)
        super().__init__(num_features, *settings, bias=bias)
        self.process_group = process_group

    def _check(self, input: Tensor) -> None:
        shape = input.shape
        if len(shape) < 2 or shape[1] != self.num_features or not self.num_features:
            raise ShapeError(
                f"{self!r}: input of shape {list(shape)} given; needed {self.layout} with "
                f"num_features={self.num_features} channels (at least 2 dimensions, at least one "
                "channel)"
            )

    def forward(self, input: Tensor) -> Tensor:
        group = default_group() if self.process_group is None else self.process_group
        if not self.training or getattr(group, "size", 1) == 1:  # outsiders have no group
            return super().forward(input)
        self._check(input)
        momentum = self._count_batch()
        keep = self.track_running_stats
        return sync_batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            group,
            momentum,
            self.eps,
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """``module`` with every batch norm in it replaced by one over ``process_group``, with the
        same parameters and statistics. A batch norm itself gives a new module; one that stands in
        several places stays one."""
        return cls._converted(module, process_group, {})

    @classmethod
    def _converted(
        cls, module: Module, process_group: object, known: dict[Module, Module]
    ) -> Module:
        if module in known:
            return known[module]
        out = module
        if isinstance(module, _BatchNorm):
            out = cls._like(module, process_group)
        known[module] = out
        for name, child in module._modules.items():
            if child is not None:
                out.add_module(name, cls._converted(child, process_group, known))
        return out

    @classmethod
    def _like(cls, module: _BatchNorm, process_group: object) -> SyncBatchNorm:
        if any(is_lazy(t) for t in (*module.parameters(), *module.buffers())):
            raise UninitializedError(
                f"SyncBatchNorm.convert_sync_batchnorm: {module!r} does not know its number of "
                "channels yet; run the model once on a batch, then convert it"
            )
        out = cls(
            module.num_features, module.eps, module.momentum, module.affine,
            module.track_running_stats, process_group, bias=module.bias is not None,
        )  # fmt: skip
        with no_grad():
            for name in ("weight", "bias"):
                if getattr(module, name) is not None:
                    setattr(out, name, getattr(module, name))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(out, name, getattr(module, name))
        out.training = module.training
        return out


__all__ = ["SyncBatchNorm"]
