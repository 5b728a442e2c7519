"""Scaling of the loss for gradients in float16, where every rank has a part of the gradients.

A step is skipped on all ranks when one of them finds a gradient that is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...amp import GradScaler
from ...comm.calls.reduce_ops import ReduceOp
from ..groups.process_group import ProcessGroup
from ..groups.state import group_or_default, is_initialized

__outward__ = ()  # what reaches other ranks is done by effects


class ShardedGradScaler(GradScaler):
    """A ``GradScaler`` whose ranks agree: ``unscale_``, and with it ``step``, is a collective of
    ``process_group``. Gradients may be float16, as shards in mixed precision are."""

    refused = ()
    __moving__ = (*GradScaler.__moving__, "process_group")

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )
        self.process_group = process_group

    def _values(self, g: Any) -> Any:
        return super()._values(getattr(g, "_local_tensor", g))

    def _divide(self, optimizer: object) -> bool:
        finite = super()._divide(optimizer)
        if self.process_group is None and not is_initialized():
            return finite
        bad = np.array([0 if finite else 1], np.int64)
        group_or_default(self.process_group).all_reduce(bad, ReduceOp.MAX)
        return not bad[0]
