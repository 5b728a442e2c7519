"""Ways to train a model on several ranks, for ``assert_equivalent``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..distributed.ddp import DistributedDataParallel
from ..distributed.fsdp import fully_shard


@dataclass(frozen=True)
class Plan:
    """``wrap(model)`` is called on each of ``num_ranks`` ranks, whose default group is there; what
    it returns is called with the rank's rows of the batch (with all of them, if ``splits_batch`` is
    False: tensor parallelism). The model itself, whose parameters keep their names, is asked for
    gradients and parameters; DTensors are put together."""

    name: str
    num_ranks: int
    wrap: Callable[[Any], Callable[..., Any]]
    splits_batch: bool = True

    def __str__(self) -> str:
        return self.name


def _itself(model: object) -> Any:
    return model


single = Plan("single", 1, _itself)


def ddp(num_ranks: int, **options: Any) -> Plan:
    """``DistributedDataParallel(model, **options)``."""
    return Plan(_named("ddp", num_ranks, options), num_ranks,
                lambda model: DistributedDataParallel(model, **options))  # fmt: skip


def fsdp(num_ranks: int, **options: Any) -> Plan:
    """``fully_shard(model, **options)``."""

    def wrap(model: Any) -> Any:
        fully_shard(model, **options)
        return model

    return Plan(_named("fsdp", num_ranks, options), num_ranks, wrap)


def _named(kind: str, num_ranks: int, options: dict[str, Any]) -> str:
    return f"{kind}({', '.join([str(num_ranks), *(f'{k}={v!r}' for k, v in options.items())])})"
