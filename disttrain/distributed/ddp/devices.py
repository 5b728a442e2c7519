"""Where a wrapped module lies, and where its inputs are to be: ``device_ids`` as PyTorch takes it.

Knows devices and tensors; no group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.tensor import Tensor
from ...core.types.device import device
from ...errors import ConfigError


def input_device(
    params: Sequence[Tensor], device_ids: Sequence[Any] | None, output_device: object
) -> device | None:
    """The device that inputs are moved to before each forward; None: they stay where they are.

    Raises ``ConfigError`` where ``device_ids`` names several devices, or one that the module's
    parameters are not on, or where these are on devices of several kinds.
    """
    if device_ids is not None and len(device_ids) > 1:
        raise ConfigError(
            f"DistributedDataParallel: device_ids can only be None or contain a single element, "
            f"but {list(device_ids)} was given; start one rank for each device"
        )
    where = {p.device for p in params}
    kinds = sorted({d.type for d in where})
    if len(kinds) > 1:
        raise ConfigError(
            "DistributedDataParallel's input module must be on the same type of devices, but "
            f"input module parameters locate in {kinds}; move it to one with module.to()"
        )
    if kinds in ([], ["cpu"], ["meta"]):
        return None
    listed = ", ".join(sorted(map(str, where)))
    if not device_ids and output_device is None:
        if len(where) > 1:
            raise ConfigError(
                f"DistributedDataParallel: the module's parameters are on several devices of one "
                f"rank ({listed}); needed is one device for each rank: start a rank for each, and "
                "cut the module over them by a pipeline (PipelineStage) or fully_shard"
            )
        return None
    if len(where) > 1:
        raise ConfigError(
            "DistributedDataParallel device_ids and output_device arguments only work with "
            f"single-device GPU modules, but got device_ids {device_ids}, output_device "
            f"{output_device}, and module parameters on {listed}; leave them out"
        )
    (found,) = where
    for given in device_ids or ():
        wanted = _of(given, found.type)
        if wanted != found:
            raise ConfigError(
                f"DistributedDataParallel: device_ids={list(device_ids or ())} was given for a "
                f"module whose parameters are on {found}; move it there first: module.to({wanted})"
            )
    return found if device_ids else None


def _of(given: int, kind: str) -> device:
    return device(kind, given) if isinstance(given, int) else device(given)
