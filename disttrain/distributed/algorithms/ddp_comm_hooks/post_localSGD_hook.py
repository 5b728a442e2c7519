"""A communication hook for post-local SGD: averages over all ranks first, then over few."""

from __future__ import annotations

import logging
from typing import Any

from ....core.tensor import Tensor
from ....futures import Future
from ...ddp import GradBucket
from ...groups.new_group import new_subgroups
from ...groups.process_group import ProcessGroup
from .debugging_hooks import noop_hook
from .default_hooks import averaged

_log = logging.getLogger(__name__)


class PostLocalSGDState:
    """``process_group``: who averages gradients for the first ``start_localSGD_iter`` iterations
    (None: all ranks). ``subgroup``: who does so afterwards (None: the ranks of a host), unless
    ``post_local_gradient_allreduce`` is False: then nobody."""

    __slots__ = (
        "iter",
        "post_local_gradient_allreduce",
        "process_group",
        "start_localSGD_iter",
        "subgroup",
    )

    def __init__(
        self,
        process_group: ProcessGroup | None,
        subgroup: Any,
        start_localSGD_iter: int,  # noqa: N803
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count an iteration when its last bucket comes."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_localSGD_iter:
                _log.info("Start to apply local SGD after %s iterations.", self.iter)


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:  # noqa: N802
    """Average gradients over all ranks while ``state`` warms up, then over its subgroup. A model
    averager, with as many warm-up steps, has to average the parameters then."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return averaged(state.process_group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return noop_hook(None, bucket)
    if state.subgroup is None:
        state.subgroup = new_subgroups()[0]
    return averaged(state.subgroup, bucket.buffer())


__all__ = ["PostLocalSGDState", "post_localSGD_hook"]
