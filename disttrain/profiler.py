"""What a piece of a program spends its time on: every operation and every collective, as events.

    with profile(record_shapes=True) as prof:
        step()
    print(prof.key_averages().table())
    prof.export_chrome_trace("trace.json")

Operations are seen by an interpreter at the gate, collectives by standing in for the verbs of the
rank's groups while the block runs. So nothing of this costs anything outside the block; inside, an
operation takes the gate's slow way. The events of one thread are recorded, that of the block.

Knows the gate and the groups; no layers.
"""

from __future__ import annotations

import enum
import json
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from . import context
from .comm.group.group import ProcessGroup
from .comm.transports.shm.hub import HUBS
from .core.tensor import Tensor
from .errors import ConfigError

VERBS = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "broadcast", "all_gather", "gather"),
    *("all_gather_single", "all_gather_coalesced", "reduce_scatter", "reduce_scatter_single"),
    *("all_to_all", "all_to_all_single", "scatter", "barrier", "isend", "irecv"),
)
_NAMES = {
    "all_reduce_coalesced": "all_reduce",
    "all_gather_coalesced": "all_gather",
    "all_gather_single": "_all_gather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "isend": "send",
    "irecv": "recv",
}
_MAKERS = ("split", "new_group")


class _NamedComm(threading.local):
    name: str | None = None


named_comm = _NamedComm()  # what a thread's collectives are called (``distributed.record_comm``)


@dataclass
class Event:
    """One operation. Times are in microseconds; ``start`` counts from the block's begin.

    ``is_async``: it was started and ended elsewhere than where the program stood meanwhile, as
    collectives may. ``input_shapes`` are empty unless they were asked for.
    """

    name: str
    start: float
    cpu_time: float
    is_async: bool = False
    input_shapes: list[Any] = field(default_factory=list)
    thread: int = 0
    count: int = 1

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time_total(self) -> float:
        return self.cpu_time * self.count


class Averages(list):
    """Events added up by name. ``cpu_time`` of each is the mean."""

    def table(self, sort_by: str | None = "cpu_time_total", row_limit: int = 100) -> str:
        """The rows as text, the longest first."""
        rows = sorted(self, key=lambda e: -getattr(e, sort_by)) if sort_by else list(self)
        width = max([len(e.name) for e in rows] + [4])
        lines = [f"{'Name':<{width}}  {'CPU total':>12}  {'CPU mean':>12}  {'Calls':>8}"]
        lines += [
            f"{e.name:<{width}}  {e.cpu_time_total:>10.1f}us  {e.cpu_time:>10.2f}us  {e.count:>8}"
            for e in rows[:row_limit]
        ]
        return "\n".join(lines)


class profile:  # noqa: N801  (PyTorch's name)
    """Record what the block does. ``record_shapes``: also the shapes of inputs.

    ``use_cuda`` must be false: there is no such device here. ``enabled=False`` records nothing.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, record_shapes: bool = False
    ) -> None:
        if use_cuda:
            raise ConfigError("profile: use_cuda=True given; this version computes on the CPU only")
        self.enabled, self.record_shapes = enabled, record_shapes
        self.function_events: list[Event] = []
        self._stack = ExitStack()
        self._begin = 0

    def __enter__(self) -> profile:
        if self.enabled:
            self._begin = perf_counter_ns()
            self._stack.enter_context(context.interpreter(_Operations(self)))
            for group in _groups():
                self._watch(group)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def events(self) -> list[Event]:
        return self.function_events

    def key_averages(self, group_by_input_shape: bool = False) -> Averages:
        """The events added up by name (and by shapes)."""
        found: dict[tuple, list[Event]] = {}
        for e in self.function_events:
            key = (e.name, str(e.input_shapes) if group_by_input_shape else "")
            found.setdefault(key, []).append(e)
        rows = []
        for same in found.values():
            mean = sum(e.cpu_time for e in same) / len(same)
            shapes = same[0].input_shapes if group_by_input_shape else []
            first = same[0]
            rows.append(Event(first.name, first.start, mean, first.is_async, shapes, 0, len(same)))
        return Averages(rows)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as JSON for chrome://tracing or Perfetto."""
        rows = [
            {
                "name": e.name, "ph": "X", "ts": e.start, "dur": e.cpu_time, "pid": os.getpid(),
                "tid": e.thread, "args": {"shapes": [list(s) for s in e.input_shapes]},
            }
            for e in self.function_events
        ]  # fmt: skip
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"traceEvents": rows}, f)

    def note(self, name: str, since: int, shapes: Iterable, is_async: bool = False) -> None:
        """Add an event that began at ``since`` and ends now."""
        shapes = list(shapes) if self.record_shapes else []
        start, took = (since - self._begin) / 1e3, (perf_counter_ns() - since) / 1e3
        thread = threading.get_ident()
        self.function_events.append(Event(name, start, took, is_async, shapes, thread))

    # -- collectives --------------------------------------------------------------------------

    def _watch(self, group: ProcessGroup) -> None:
        """Stand in for the verbs of one group until the block ends."""
        for verb in VERBS:
            setattr(group, verb, self._timed(verb, getattr(group, verb)))
            self._stack.callback(group.__dict__.pop, verb, None)
        for verb in _MAKERS:
            setattr(group, verb, self._making(getattr(group, verb)))
            self._stack.callback(group.__dict__.pop, verb, None)

    def _timed(self, verb: str, call: Callable) -> Callable:
        own = f"gloo:{_NAMES.get(verb, verb)}"

        def timed(*args: object, **kwargs: object) -> Any:
            name = named_comm.name or own
            since, shapes = perf_counter_ns(), _shapes(verb, args)
            work = call(*args, **kwargs)
            if hasattr(work, "on_end"):
                work.on_end(lambda _: self.note(name, since, shapes, is_async=True))
            else:
                self.note(name, since, shapes, is_async=True)
            return work

        return timed

    def _making(self, make: Callable) -> Callable:
        def made(*args: object, **kwargs: object) -> Any:
            group = make(*args, **kwargs)
            if group is not None:
                self._watch(group)
            return group

        return made


class Profiler(profile):
    """``torch.profiler.profile``: the same record, with steps and a callback at its end.

    ``activities`` may name the CPU only. ``step()`` marks where a step of training ends.
    """

    def __init__(
        self,
        *,
        activities: Iterable | None = None,
        on_trace_ready: Callable[[Profiler], Any] | None = None,
        record_shapes: bool = False,
    ) -> None:
        wrong = [a for a in activities or () if a is not ProfilerActivity.CPU]
        if wrong:
            raise ConfigError(f"profile: activities={wrong} given; there is ProfilerActivity.CPU")
        super().__init__(record_shapes=record_shapes)
        self._ready, self._step, self._since = on_trace_ready, 0, 0

    def start(self) -> None:
        self.__enter__()

    def stop(self) -> None:
        self.__exit__()

    def __enter__(self) -> Profiler:
        super().__enter__()
        self._since = self._begin
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self._ready is not None:
            self._ready(self)

    def step(self) -> None:
        """A step ends here: it is an event, from the end of the one before."""
        self.note(f"ProfilerStep#{self._step}", self._since, [])
        self._step, self._since = self._step + 1, perf_counter_ns()


class ProfilerActivity(enum.Enum):
    """What a ``Profiler`` may watch."""

    CPU = 0


@contextmanager
def record_function(name: str, args: str | None = None):
    """Make the block an event of its own in every ``profile`` around it."""
    seen = open_profiles()
    since = perf_counter_ns()
    try:
        yield
    finally:
        for each in seen:
            each.note(name, since, [])


def open_profiles() -> list[profile]:
    """The profiles that the calling thread is in."""
    return [i.profile for i in context.thread.stack if isinstance(i, _Operations)]


class _Operations:
    """The interpreter: lets every operation pass, and notes how long it took."""

    dynamic, draws, level = True, False, -1

    def __init__(self, to: profile) -> None:
        self.profile = to

    def __str__(self) -> str:
        return "profile"

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        since = perf_counter_ns()
        out = forward(prim, args, params)
        shapes = (tuple(a.shape) for a in args if isinstance(a, Tensor))
        self.profile.note(f"aten::{prim.name}", since, shapes)
        return out

    def on_read(self, t: Tensor) -> None:
        """Reading costs nothing worth an event."""

    def on_array(self, t: Tensor, frame: object) -> None:
        """As ``on_read``."""

    def on_walk(self) -> None:
        """Backward is seen as its operations."""

    def on_stream(self) -> None:
        """Who draws is seen as an operation."""


def _groups() -> list[ProcessGroup]:
    """The groups that this rank is in."""
    hubs = context.current().slots.get(HUBS, ())
    return [group for hub in hubs for t in hub.open if (group := t.group()) is not None]


def _shapes(verb: str, args: tuple) -> list[tuple]:
    """The shapes of what a verb is given: its input, where outputs come first."""
    if not args:
        return []
    places = {"all_gather": 1, "all_gather_single": 1, "all_gather_coalesced": 1, "scatter": 1}
    places |= {"reduce_scatter": 1, "reduce_scatter_single": 1, "all_to_all": 1}
    given = args[places.get(verb, 0)]
    arrays = given if isinstance(given, (list, tuple)) else [given]
    return [_shape(a) for a in arrays if a is not None]


def _shape(array: Any) -> tuple:
    """A complex array counts as its real view, as PyTorch's collectives send it."""
    return (*array.shape, 2) if array.dtype.kind == "c" else tuple(array.shape)
