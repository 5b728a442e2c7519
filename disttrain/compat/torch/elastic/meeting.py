"""``torch.distributed.elastic.utils.store``: workers exchange bytes, and wait, through a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from ....distributed import DistStoreError
from ....errors import StoreError, WaitTimeout

_COUNT, _LAST, _TRACE = "/num_members", "/last_member", "/TRACE"
_SAID = "<val_ignored>"


@contextmanager
def store_timeout(store: Any, timeout: float) -> Iterator[None]:
    """Give ``store`` another timeout (seconds) while the block runs."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """What all have set under ``prefix`` and their number. Rank 0, which may host the store, comes
    back when everybody has read it."""
    data = store.multi_get([f"{prefix}{r}" for r in range(world_size)])
    last = _come(store, world_size, f"{prefix}/finished")
    if rank == 0:
        store.wait([last])
    return data


def synchronize(
    store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300
) -> list[bytes]:
    """Give ``data`` and get everybody's, by rank."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Any, world_size: int, key_prefix: str, barrier_timeout: float = 300,
    rank: int | None = None, rank_tracing_decoder: Callable[[int], str] | None = None,
    trace_timeout: float = 10,
) -> None:  # fmt: skip
    """Wait until ``world_size`` have come. Where they do not in time and ``rank`` is given, rank 0
    finds out who is missing, in ``rank_tracing_decoder``'s words, and the others say to ask it.

    Raises ``DistStoreError``.
    """
    with store_timeout(store, barrier_timeout):
        last = _come(store, world_size, key_prefix)
        try:
            store.wait([last])
        except (StoreError, WaitTimeout) as error:
            if rank is None:
                raise
            name = rank_tracing_decoder or str
            missing = _missing(store, rank, world_size, key_prefix, name, trace_timeout)
            raise DistStoreError(
                f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} "
                f"(world_size={world_size}, {missing}, timeout={barrier_timeout})"
            ) from error


def _come(store: Any, world_size: int, prefix: str) -> str:
    """Say that one more has come; the key that the last one sets."""
    last = f"{prefix}{_LAST}"
    if store.add(f"{prefix}{_COUNT}", 1) == world_size:
        store.set(last, _SAID)
    return last


def _missing(
    store: Any, rank: int, world_size: int, prefix: str, name: Callable[[int], str], timeout: float
) -> str:
    if rank == 0:
        absent = []
        with store_timeout(store, timeout):
            for r in range(1, world_size):
                try:
                    store.wait([f"{prefix}{r}{_TRACE}"])
                except (StoreError, WaitTimeout):
                    absent.append(name(r))
        store.set(f"{prefix}{_TRACE}", _SAID)
        return f"missing_ranks=[{', '.join(absent)}]"
    store.set(f"{prefix}{rank}{_TRACE}", _SAID)
    try:
        store.wait([f"{prefix}{_TRACE}"])
    except (StoreError, WaitTimeout):
        return f"check rank 0 ({name(0)}), which has not answered"
    return f"check rank 0 ({name(0)}) for missing rank info"
