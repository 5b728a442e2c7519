"""Random numbers of CUDA devices, under PyTorch's names. Each device of a rank has a generator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..core.random import (
    Generator,
    device_generator,
    fresh_seed,
    seed_devices,
)
from ..core.tensor import Tensor
from ..core.types.device import device as Device
from .which import device_count, index_of, is_available


def generator(device: object = None) -> Generator:
    """The calling rank's generator of a device."""
    return device_generator(Device("cuda", index_of(device)))


class _Generators:
    """``default_generators[i]``: the calling rank's generator of device ``i``."""

    def __getitem__(self, index: int) -> Generator:
        return generator(index)

    def __len__(self) -> int:
        return device_count()

    def __iter__(self) -> Iterator[Generator]:
        return (self[i] for i in range(len(self)))


default_generators = _Generators()


def manual_seed(seed: int) -> None:
    """Seed the current device's generator. Nothing happens where there is no device."""
    if is_available():
        generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices; also of those that are used later."""
    seed_devices(seed)


def seed() -> None:
    """Seed the current device's generator from the operating system."""
    if is_available():
        generator().seed()


def seed_all() -> None:
    """Seed the generators of all devices from the operating system, all with one seed."""
    seed_devices(fresh_seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return generator().initial_seed()


def get_rng_state(device: object = "cuda") -> Tensor:
    """Where a device's generator is: 16 bytes on the host."""
    return generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The same of all devices."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state(new_state: Tensor, device: object = "cuda") -> None:
    """Put a device's generator to where ``get_rng_state`` found it."""
    generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """The same for all devices."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


__all__ = [
    "default_generators", "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed",
    "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
]  # fmt: skip
