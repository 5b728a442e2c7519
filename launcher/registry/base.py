"""What every registry can do. Keys are short texts, values bytes; all of one job."""

from __future__ import annotations

from dataclasses import dataclass, field

from disttrain.errors import LaunchError


class RegistryLost(LaunchError):
    """The registry cannot be reached just now, or does not answer. Trying again may help."""


class LeaseEnded(LaunchError):
    """The registry has ended this node's lease: the others go on without it, or will soon."""


@dataclass(frozen=True)
class Snapshot:
    """All entries at one moment. A later one that differs has a larger ``revision``."""

    revision: int
    entries: dict[str, bytes] = field(default_factory=dict)


class Registry:
    """One node's way to the entries that all nodes of a job share.

    An entry that was put with a lease is there until ``ttl`` seconds after the last time that its
    node has confirmed it, by the registry's own monotonic clock. No method blocks for longer than
    ``patience`` seconds; then, and wherever it cannot be reached, it raises ``RegistryLost``. A
    change that has raised it may have been made all the same.
    """

    ttl: float
    patience: float
    pause = 0.1  # seconds between two looks at it
    outlives_jobs = False  # entries without a lease stay for a while when all nodes have gone

    @property
    def where(self) -> str:
        """What it is and where, for messages."""
        raise NotImplementedError

    def name(self, key: str) -> str:
        """What people find an entry by."""
        return key

    def has_gone(self) -> bool:
        """Is it known that the registry is there no more? Silence proves nothing: a network that is
        cut, and a process that is stopped, come back."""
        return False

    def put_leased(self, key: str, value: bytes) -> None:
        """Set ``key``, under this node's lease, which begins anew (also one that had ended)."""
        raise NotImplementedError

    def renew(self) -> None:
        """Confirm this node's lease. Raises ``LeaseEnded`` where the registry has ended it."""
        raise NotImplementedError

    def keep(self, key: str) -> None:
        """Let what ``compare_swap`` has set stay: where entries outlive a job, they do not for long
        after the last node has called this."""

    def compare_swap(self, key: str, expected: bytes | None, new: bytes) -> bool:
        """Set ``key`` to ``new`` if it is ``expected`` now (None: if it is not there). Whether it
        was; no two calls on all nodes succeed with the same ``expected``, if every ``new`` is a
        value that was never there before."""
        raise NotImplementedError

    def read(self) -> Snapshot:
        """All entries of the job at one moment, among them every change that was made before."""
        raise NotImplementedError

    def publish(self, key: str, value: bytes, seconds: float = 5.0) -> None:
        """Set what people may look at, and no node follows: no entry, it is not read by ``read``.
        It goes some seconds later, or with this node's lease; at once, where there is no place
        for it."""

    def published(self, prefix: str) -> dict[str, bytes]:
        """All that was published under keys that begin so, without that beginning."""
        return {}

    def delete(self, key: str) -> None:
        """Remove ``key``, if it is there."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections. Entries under this node's lease go when that ends."""
        raise NotImplementedError
