"""What ``compile`` was asked for: PyTorch's words, and what they mean here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import CaptureError
from .passes import FAST, NONE, ORDER, Pass, recomputing

# Whether work on devices is recorded as graphs.
_MODES = {
    None: False, "default": False, "reduce-overhead": True, "max-autotune": True,
    "max-autotune-no-cudagraphs": False, "lite": False,
}  # fmt: skip

# PyTorch's names (those of its eager ones replay what was captured as it was), and our own.
_PLAIN = frozenset(
    "eager eager_noexcept eager_debug aot_eager aot_eager_decomp_partition "
    "aot_eager_default_partitioner pre_dispatch_eager".split()
)
_BACKENDS = _PLAIN | frozenset(
    "inductor aot_ts ts cudagraphs openxla openxla_eval tvm llvm cuda".split()
)

Backend = Callable[[Any, list], Callable[..., Any]]


@dataclass(frozen=True)
class Settings:
    """``recorded``: whether work on devices becomes CUDA graphs. ``passes``: what graphs on the
    host go through. ``backend``: what makes something to call of a graph, where not a replay.
    ``dynamic``: whether sizes are symbols (None: those that change)."""

    recorded: bool = False
    fullgraph: bool = False
    passes: tuple[Pass, ...] = ORDER
    backend: Backend | None = None
    dynamic: bool | None = None

    @property
    def asks(self) -> bool:
        """Whether numbers that Python reads may part a function into paths."""
        return not self.fullgraph and self.backend is None and not self.recorded


def settings_of(
    fullgraph: bool,
    backend: object,
    mode: str | None,
    options: dict[str, Any] | None,
    fast_math: bool,
    dynamic: bool | None = None,
) -> Settings:
    """Of the words of a call; ``CaptureError`` for words that have no meaning."""
    if mode not in _MODES:
        raise CaptureError(
            f"compile: Unrecognized mode={mode}, should be one of: "
            f"{', '.join(m for m in _MODES if m)}"
        )
    if mode is not None and options is not None:
        raise CaptureError(
            "compile: Either mode or options can be specified, but both can't be specified at the "
            "same time."
        )
    own = backend if not isinstance(backend, str) and callable(backend) else None
    if own is None and backend not in _BACKENDS:
        raise CaptureError(
            f"compile: Invalid backend: {backend!r}; known are {', '.join(sorted(_BACKENDS))}, "
            "which all capture and replay ('cudagraphs' records CUDA graphs besides), and a "
            "function of your own: (graph, example inputs) -> callable"
        )
    recorded = _MODES[mode] or backend == "cudagraphs"
    recorded |= bool((options or {}).get("triton.cudagraphs"))
    passes = NONE if own is not None or backend in _PLAIN else FAST if fast_math else ORDER
    if own is not None or recorded:
        dynamic = False
    budget = (options or {}).get("activation_memory_budget")
    if budget is None:
        return Settings(recorded, fullgraph, passes, own, dynamic)
    if not isinstance(budget, (int, float)) or not 0 <= budget <= 1:
        raise CaptureError(
            f"compile: activation_memory_budget={budget!r} given; a share between 0 (hold as "
            "little as possible) and 1 (compute nothing twice) is needed"
        )
    if passes is not NONE:
        passes = recomputing(budget, passes)
    return Settings(recorded, fullgraph, passes, own, dynamic)
