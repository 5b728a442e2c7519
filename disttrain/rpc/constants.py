"""Numbers that programs may name."""

from __future__ import annotations

from .calls.agent import UNSET_TIMEOUT

DEFAULT_RPC_TIMEOUT_SEC: float = 60.0
DEFAULT_INIT_METHOD: str = "env://"
DEFAULT_SHUTDOWN_TIMEOUT: float = 0
DEFAULT_NUM_WORKER_THREADS: int = 16
UNSET_RPC_TIMEOUT: float = UNSET_TIMEOUT
MEETING_SECONDS: float = 300.0  # for all workers to come
