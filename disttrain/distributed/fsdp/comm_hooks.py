"""Reductions for ``FullyShardedDataParallel.register_comm_hook``: means, in the gradients' own type
or in half types on the wire.

``hook(state, gradient)`` reduces in place, ``hook(state, gradient, shard)`` writes a rank's part.
Sums are divided in two steps, half before and half after, so that half types neither overflow nor
lose small values.
"""

from __future__ import annotations

from typing import Any

from ...core.types import dtypes
from ...errors import ConfigError
from ..collectives import tensors


class DefaultState:
    """The group to reduce over, and the divisors before and after the sum."""

    def __init__(self, process_group: Any) -> None:
        if process_group is None:
            raise ConfigError(
                f"{type(self).__name__}: None given; Expected to pass in an explicit ProcessGroup"
            )
        self.process_group = process_group
        self.world_size = int(process_group.size)
        before = 1
        while self.world_size % before == 0 and self.world_size / before > before:
            before *= 2
        self.gradient_predivide_factor = float(before)
        self.gradient_postdivide_factor = self.world_size / before


class LowPrecisionState(DefaultState):
    """Gradients come back in ``parameter_type``."""

    def __init__(self, process_group: object, parameter_type: Any = dtypes.float32) -> None:
        super().__init__(process_group)
        self.parameter_type = parameter_type


def allreduce_hook(state: DefaultState, grad: tensors.Tensor) -> None:
    """The mean over the group, in place."""
    grad.div_(state.gradient_predivide_factor)
    tensors.all_reduce(grad, group=state.process_group)
    grad.div_(state.gradient_postdivide_factor)


def reduce_scatter_hook(state: DefaultState, grad: tensors.Tensor, output: tensors.Tensor) -> None:
    """This rank's part of the mean, into ``output``."""
    grad.div_(state.gradient_predivide_factor)
    tensors.reduce_scatter_single(output, grad, group=state.process_group)
    output.div_(state.gradient_postdivide_factor)


def _in_type(
    kind: dtypes.dtype,
    state: LowPrecisionState,
    grad: tensors.Tensor,
    output: tensors.Tensor | None,
) -> None:
    low = grad.to(kind)
    if output is None:
        allreduce_hook(state, low)
        grad.data = low.to(state.parameter_type)
        return
    part = output.to(kind)
    reduce_scatter_hook(state, low, part)
    output.data = part.to(state.parameter_type)


def fp16_compress_hook(
    state: LowPrecisionState, grad: tensors.Tensor, output: tensors.Tensor | None = None
) -> None:
    """The mean, in float16 on the wire."""
    _in_type(dtypes.float16, state, grad, output)


def bf16_compress_hook(
    state: LowPrecisionState, grad: tensors.Tensor, output: tensors.Tensor | None = None
) -> None:
    """The mean, in bfloat16 on the wire."""
    _in_type(dtypes.bfloat16, state, grad, output)


LOW_PRECISION_HOOKS = (fp16_compress_hook, bf16_compress_hook)
