"""The default registry: on a store of the job's own, which the first node's keeper holds.

That process ends leases, by its own monotonic clock; when its node is lost, so is the registry.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from disttrain.comm.store import TCPStore
from disttrain.comm.store.tls import Tls
from disttrain.errors import CommError

from .base import LeaseEnded, Registry, RegistryLost, Snapshot

_ENTRIES = "dtrun/"  # in front of every key
_SHOWN = "\0shown/"  # ... of what is published; hidden keys are no change to who follows entries
_LISTENS = 0.3  # seconds to find out whether anybody listens at its port
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
        tls: Tls | None = None,
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
            tls=tls,
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

    def has_gone(self) -> bool:
        """A process that has ended leaves a port at which its machine refuses; one that is stopped
        leaves one that is still accepted."""
        try:
            socket.create_connection((self._store.host, self._store.port), _LISTENS).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            pass
        return False

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """What a store raises, as a registry does. Who answers afterwards may be another store,
        with revisions of its own."""
        try:
            yield
        except (CommError, OSError) as error:
            self._last = Snapshot(0)
            raise RegistryLost(f"{self.where}: {error}") from error

    def put_leased(self, key: str, value: bytes) -> None:
        with self._asked():
            self._store.lease(_ENTRIES + key, value, self.ttl)
        self._leased[key] = None

    def renew(self) -> None:
        with self._asked():
            held = [self._store.renew(_ENTRIES + key, self.ttl) for key in self._leased]
        if not all(held):
            self._leased.clear()
            raise LeaseEnded(f"{self.where} has ended this node's lease of {self.ttl:g} s")

    def compare_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        with self._asked():
            return self._store.compare_set(_ENTRIES + key, expected or b"", new) == new

    def read(self) -> Snapshot:
        with self._asked():
            revision, entries = self._store.since(_ENTRIES, self._last.revision)
        if entries is not None:
            found = {key.removeprefix(_ENTRIES): value for key, value in entries.items()}
            self._last = Snapshot(revision, found)
        return self._last

    def publish(self, key: str, value: bytes, seconds: float = 5.0) -> None:
        with self._asked():
            self._store.lease(_SHOWN + key, value, seconds)

    def published(self, prefix: str) -> dict[str, bytes]:
        with self._asked():
            found = self._store.since(_SHOWN + prefix)[1] or {}
        return {key.removeprefix(_SHOWN + prefix): value for key, value in found.items()}

    def delete(self, key: str) -> None:
        self._leased.pop(key, None)  # what cannot be deleted now goes with its lease
        with self._asked():
            self._store.delete_key(_ENTRIES + key)

    def close(self) -> None:
        self._store.close()
