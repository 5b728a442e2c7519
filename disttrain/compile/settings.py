"""What ``compile`` was asked for: PyTorch's words, and what they mean here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import CaptureError
from .options import BUDGET, GRAPHS, checked
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

_OWN_OPTIONS = frozenset(("inductor", "llvm", "cudagraphs", "cuda"))  # which read options

Backend = Callable[[Any, list], Callable[..., Any]]
CAPTURES = 32  # of one function; what has none then runs eagerly


@dataclass(frozen=True)
class Settings:
    """``recorded``: whether work on devices becomes CUDA graphs. ``passes``: what graphs on the
    host go through. ``backend``: what makes something to call of a graph, where not a replay.
    ``dynamic``: whether sizes are symbols (None: those that change). ``limit``: of captures."""

    recorded: bool = False
    fullgraph: bool = False
    passes: tuple[Pass, ...] = ORDER
    backend: Backend | None = None
    dynamic: bool | None = None
    limit: int = CAPTURES

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
    limit: int | None = None,
) -> Settings:
    """Of the words of a call; ``CaptureError`` for words that have no meaning."""
    _check_words(backend, mode, options)
    own: Backend | None = None
    if not isinstance(backend, str) and callable(backend):
        own, words = backend, _words_of(mode, options)
        own = functools.partial(own, **words) if words else own
        options = None
    if options is not None and own is None:
        options = checked(options) if backend in _OWN_OPTIONS else {}
    recorded = _MODES[mode] or backend == "cudagraphs" or bool((options or {}).get(GRAPHS))
    passes = NONE if own is not None or backend in _PLAIN else FAST if fast_math else ORDER
    if own is not None or recorded:
        dynamic = False
    budget = _budget(options or {})
    if budget is not None and passes is not NONE:
        passes = recomputing(budget, passes)
    most = CAPTURES if limit is None else limit
    return Settings(recorded, fullgraph, passes, own, dynamic, most)


def _check_words(backend: object, mode: str | None, options: object) -> None:
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
    if options is not None and not isinstance(options, dict):
        raise CaptureError(
            f"compile: options={options!r} given; a dict of names and values is needed"
        )
    if not (backend in _BACKENDS if isinstance(backend, str) else callable(backend)):
        raise CaptureError(
            f"compile: Invalid backend: {backend!r}; known are {', '.join(sorted(_BACKENDS))}, "
            "which all capture and replay ('cudagraphs' records CUDA graphs besides), and a "
            "function of your own: (graph, example inputs) -> callable"
        )


def _words_of(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """What a backend of the program's own is told besides the graph."""
    found: dict[str, Any] = {} if mode in (None, "default") else {"mode": mode}
    return {**found, "options": options} if options else found


def _budget(options: dict[str, Any]) -> float | None:
    budget = options.get(BUDGET)
    if budget is None or (isinstance(budget, (int, float)) and 0 <= budget <= 1):
        return budget
    raise CaptureError(
        f"compile: activation_memory_budget={budget!r} given; a share between 0 (hold as "
        "little as possible) and 1 (compute nothing twice) is needed"
    )
