"""The calls of nccl4py that this package makes, on addresses and counts.

``core`` (``nccl.core``) makes, divides and ends communicators; ``raw`` (``nccl.bindings.nccl``)
moves data: its functions take addresses, where those of ``core`` would look at every array, and
load PyTorch to do so where it is installed. Knows the binding; no rank, no transport.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.device.platform import Platform
from ....errors import CommError
from ...calls.reduce_ops import ReduceOp
from .reductions import Native, native

BYTES = "UINT8"


class Library:
    """The binding for arrays of one platform."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        found = platform.collectives()
        self.core, self.raw = found.core, found.raw
        self.success = int(self.raw.Result.Success)
        self.in_progress = int(self.raw.Result.InProgress)
        self.failures = (self.raw.NCCLError, self.core.NcclInvalid)

    def dtype(self, name: str) -> int:
        return int(getattr(self.core.NcclDataType, name))

    def op(self, name: str) -> int:
        return int(getattr(self.core.NcclRedOp, name))

    def native(self, op: ReduceOp, dtype: np.dtype, num_ranks: int, index: int) -> Native | None:
        """See ``reductions.native``."""
        return native(op, dtype, num_ranks, self.platform.properties(index).major)

    def at(self, array: Any) -> int:
        """Where it begins."""
        return self.platform.address(array) if array.size else 0

    def new_id(self) -> bytes:
        """What the ranks of a new communicator meet by."""
        return bytes(self.core.get_unique_id())

    def connect(self, unique_id: bytes, rank: int, size: int) -> Any:
        """Begin to connect; all ranks call it."""
        given = self.core.UniqueId.from_bytes(unique_id)
        return self.core.Communicator.init(size, rank, given, self.config())

    def config(self) -> Any:
        """Of communicators whose calls do not wait: whoever waits for them looks for failures."""
        return self.core.NCCLConfig(blocking=False)

    def handle(self, comm: Any) -> Any:
        """What ``raw`` calls a communicator of ``core``."""
        return self.raw.Comm(comm.ptr)

    def error(self, where: str, comm: Any, code: int) -> CommError:
        """What NCCL says of a communicator that is in trouble."""
        try:
            text = comm.get_last_error() if comm.is_valid else ""
        except self.failures:
            text = ""
        name = self.core.get_error_string(code)
        return CommError(f"{where}: NCCL reports: {name}{': ' + text if text else ''}")
