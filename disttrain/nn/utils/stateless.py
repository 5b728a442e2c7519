"""``functional_call`` under its older name."""

from __future__ import annotations

import warnings
from typing import Any

from ...func import functional_call as _functional_call
from ..module import Module


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """As ``func.functional_call``, which is to be used instead."""
    warnings.warn(
        "`nn.utils.stateless.functional_call` is deprecated. Please use "
        "`torch.func.functional_call` instead",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


__all__ = ["functional_call"]
