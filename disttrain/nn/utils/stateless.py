"""``functional_call`` under its older name."""

from __future__ import annotations

from typing import Any

from ...func import functional_call as _functional_call
from ...trace import warn
from ..module import Module


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    args: object = None,
    kwargs: object = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """As ``func.functional_call``, which is to be used instead."""
    warn(
        "`nn.utils.stateless.functional_call` is deprecated. Please use "
        "`torch.func.functional_call` instead",
        FutureWarning,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


__all__ = ["functional_call"]
