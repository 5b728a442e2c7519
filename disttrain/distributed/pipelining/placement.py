"""Which rank each stage lies on. Pure."""

from __future__ import annotations

from ...errors import ConfigError


def looped(num_ranks: int, num_stages: int) -> tuple[int, ...]:
    """Round and round: stage s on rank s mod ``num_ranks``."""
    _divides(num_ranks, num_stages)
    return tuple(s % num_ranks for s in range(num_stages))


def vee(num_ranks: int, num_stages: int) -> tuple[int, ...]:
    """Down and up again: the first and the last stage share rank 0."""
    _divides(num_ranks, num_stages)
    legs = [divmod(s, num_ranks) for s in range(num_stages)]
    return tuple(at if leg % 2 == 0 else num_ranks - 1 - at for leg, at in legs)


def _divides(num_ranks: int, num_stages: int) -> None:
    if num_ranks < 1 or num_stages < 1 or num_stages % num_ranks:
        raise ConfigError(
            f"pipeline: {num_stages} stages on {num_ranks} ranks; needed is the same number of "
            "stages on every rank"
        )
