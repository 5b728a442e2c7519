"""The default registry: on a store of the job's own, which the first node's keeper holds.

That process ends leases, by its own monotonic clock; when its node is lost, so is the registry.
"""

from __future__ import annotations

from disttrain.comm.store import TCPStore
from disttrain.errors import CommError

from .base import LeaseEnded, Registry, RegistryLost, Snapshot

_ENTRIES = "dtrun/"  # in front of every key
JOB = "dtrun"  # what every such store calls its job: ids are compared where both can be told


class EmbeddedRegistry(Registry):
    """``hosts``: whether the store is in this process. ``token``: the job's; without one it is for
    this user's processes on this machine."""

    def __init__(
        self,
        host: str,
        port: int,
        hosts: bool,
        token: bytes | None,
        ttl: float,
        patience: float,
        connect: float,
    ) -> None:
        """Blocks for at most ``connect`` seconds. Raises ``StoreError``, among them ``PortTaken``,
        ``StoreUnreached`` where nobody answers."""
        self.ttl, self.patience, self.hosts = ttl, patience, hosts
        self._store = TCPStore(
            host,
            port,
            None,
            hosts,
            timeout=connect,
            token=token,
            job_id=JOB,
            wait_for_workers=False,
        )
        self._store.set_timeout(patience)
        self._leased: dict[str, None] = {}
        self._last = Snapshot(0)

    @property
    def port(self) -> int:
        return self._store.port

    @property
    def where(self) -> str:
        return f"the job's rendezvous at {self._store.host}:{self._store.port}"

    def put_leased(self, key: str, value: bytes) -> None:
        with _told(self.where):
            self._store.lease(_ENTRIES + key, value, self.ttl)
        self._leased[key] = None

    def renew(self) -> None:
        with _told(self.where):
            held = [self._store.renew(_ENTRIES + key, self.ttl) for key in self._leased]
        if not all(held):
            self._leased.clear()
            raise LeaseEnded(f"{self.where} has ended this node's lease of {self.ttl:g} s")

    def compare_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        with _told(self.where):
            return self._store.compare_set(_ENTRIES + key, expected or b"", new) == new

    def read(self) -> Snapshot:
        with _told(self.where):
            revision, entries = self._store.since(_ENTRIES, self._last.revision)
        if entries is not None:
            found = {key.removeprefix(_ENTRIES): value for key, value in entries.items()}
            self._last = Snapshot(revision, found)
        return self._last

    def delete(self, key: str) -> None:
        with _told(self.where):
            self._store.delete_key(_ENTRIES + key)
        self._leased.pop(key, None)

    def close(self) -> None:
        self._store.close()


class _told:
    """What a store raises, as a registry does."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (CommError, OSError)):
            raise RegistryLost(f"{self._where}: {error}") from error
