"""How large buckets may grow: from what a program says to limits in bytes. Pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 1 << 20
DEFAULT_CAP_MB = 25
FIRST_CAP_MB = 1
NO_LIMIT = sys.maxsize


@dataclass(frozen=True)
class BucketCaps:
    """Limits in bytes. ``per_bucket_bytes_caps``: one for each bucket, where they are given."""

    bucket_bytes_cap: int
    per_bucket_bytes_caps: tuple[int, ...]
    first_bucket_bytes_cap: int

    @classmethod
    def create(
        cls,
        bucket_cap_mb: float | None,
        bucket_cap_mb_list: Sequence[float] | None = None,
        use_python_reducer: bool = False,
    ) -> BucketCaps:
        """From MiB. Without any, buckets of 25 MiB, the first one of 1, so that communication
        starts early."""
        given = [] if bucket_cap_mb is None else [bucket_cap_mb]
        each = tuple(int(mb * MIB) for mb in bucket_cap_mb_list or ())
        cap = int(max(bucket_cap_mb_list or given or [DEFAULT_CAP_MB]) * MIB)
        first = cap if given or each else FIRST_CAP_MB * MIB
        return cls(cap, each, first)

    @property
    def bucket_cap_mb(self) -> int:
        """The limit in whole MiB."""
        return self.bucket_bytes_cap // MIB

    @property
    def has_custom_per_bucket_caps(self) -> bool:
        """Whether each bucket has a limit of its own."""
        return bool(self.per_bucket_bytes_caps)

    def limits(self) -> list[int]:
        """The limit of the first bucket, of the second, ...; the last one holds for the rest."""
        if self.per_bucket_bytes_caps:
            return list(self.per_bucket_bytes_caps)
        if self.first_bucket_bytes_cap < self.bucket_bytes_cap:
            return [self.first_bucket_bytes_cap, self.bucket_bytes_cap]
        return [self.bucket_bytes_cap]

    def compute_bucket_size_limits(
        self, static_graph: bool, find_unused_parameters: bool
    ) -> tuple[list[int], list[int]]:
        """The limits of the first iteration, and those of rebuilt buckets where they are given.

        Before it is known in which order gradients come, they travel in one bucket: unless buckets
        are not rebuilt.
        """
        if self.per_bucket_bytes_caps:
            return self.limits(), self.limits()
        once = static_graph or not find_unused_parameters
        return ([NO_LIMIT] if once else self.limits()), []
