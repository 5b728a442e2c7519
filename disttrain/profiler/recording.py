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

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns
from typing import Any

from .. import context
from ..comm.group.group import ProcessGroup
from ..comm.transports.shm.hub import HUBS
from ..core.node import next_seq
from ..core.observers import OperationObserver
from ..core.tensor import Tensor
from ..errors import ConfigError
from . import chakra, chrome, cost
from .events import ANNOTATION, CALL, COLLECTIVE, OPERATION, Averages, Event, averages

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


class profile:  # noqa: N801  (PyTorch's name)
    """Record what the block does. ``record_shapes``: also the shapes of inputs. ``profile_memory``:
    the bytes that operations take, and when they are given back. ``with_stack``: the lines of the
    program. ``with_flops``: how many multiplications and additions products take.

    ``use_cuda`` must be false: there is no such device here. ``enabled=False`` records nothing.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
        record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_modules: bool = False,
    ) -> None:  # fmt: skip
        if use_cuda or use_device not in (None, "cpu"):
            given = f"use_device={use_device!r}" if use_device else "use_cuda=True"
            raise ConfigError(f"profile: {given} given; this version computes on the CPU only")
        self.enabled, self.record_shapes = enabled, record_shapes
        self.profile_memory, self.with_stack = profile_memory, with_stack
        self.with_flops, self.with_modules = with_flops, with_modules
        self.function_events: list[Event] = []
        self.memory_events: list[tuple[float, int, int]] = []  # time, bytes, address
        self.facts: dict[str, Any] = {}  # what a trace says besides
        self._stack = ExitStack()
        self._begin = self._base = 0
        self._sent: Counter = Counter()

    def __enter__(self) -> profile:
        if self.enabled:
            self._begin, self._base = perf_counter_ns(), time.time_ns()
            self._record()
        return self

    def _record(self) -> None:
        """Look on from now on."""
        self._stack.enter_context(context.interpreter(_Operations(self)))
        for group in _groups():
            self._watch(group)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def events(self) -> list[Event]:
        return self.function_events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> Averages:
        """The events added up by name (by shapes, by the first lines of stacks)."""
        return averages(self.function_events, group_by_input_shape, group_by_stack_n)

    def total_average(self) -> Event:
        """All events as one."""
        return self.key_averages().total_average()

    def table(self, **options: Any) -> str:
        """``key_averages().table()``."""
        return self.key_averages().table(**options)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return self.key_averages().self_cpu_time_total

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as JSON for chrome://tracing or Perfetto; compressed where ``path``
        ends with .gz. ``merge_chrome_traces`` makes one of several ranks'."""
        facts = {
            "record_shapes": self.record_shapes, "profile_memory": self.profile_memory,
            "with_stack": self.with_stack, "with_flops": self.with_flops,
            "host_name": socket.gethostname(), "baseTimeNanoseconds": self._base, **self.facts,
        }  # fmt: skip
        content = chrome.trace(self.function_events, self.memory_events, os.getpid(), facts)
        chrome.write(path, content)

    def export_chakra_trace(self, name: str) -> str:
        """Write the events to ``NAME.RANK.et`` in MLCommons' Chakra format, and return that path.
        With ``record_shapes`` it says how much was sent (four bytes an element), with
        ``with_flops`` what products took."""
        info = self.facts.get("distributedInfo", {})
        return str(chakra.write_events(self.function_events, name, info.get("rank", 0)))

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write a line for each stack, outermost line first, with the microseconds spent there:
        for flame graphs. Needs ``with_stack=True``."""
        times: Counter = Counter()
        self.key_averages()  # which says what ran inside of what
        for e in self.function_events:
            if e.stack:
                times[";".join([*reversed(e.stack), e.name])] += int(getattr(e, metric))
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{stack} {count}\n" for stack, count in times.items() if count > 0)

    def note(
        self, name: str, since: int, shapes: Iterable, is_async: bool = False, kind: str = CALL,
        **parts: Any,
    ) -> Event:  # fmt: skip
        """Add an event that began at ``since`` and ends now."""
        shapes = list(shapes) if self.record_shapes else []
        start, took = (since - self._begin) / 1e3, (perf_counter_ns() - since) / 1e3
        event = Event(
            name, start, took, is_async, shapes, threading.get_ident(), kind=kind, **parts
        )
        self.function_events.append(event)
        return event

    def taken(self, outs: list[Tensor]) -> int:
        """The bytes of ``outs``, new arrays, which are seen to be given back, too."""
        total = 0
        for count, address, free in cost.arrays(outs):
            total += count
            self.memory_events.append(((perf_counter_ns() - self._begin) / 1e3, count, address))
            free(self._given_back, count, address)
        return total

    def _given_back(self, count: int, address: int) -> None:
        self.memory_events.append(((perf_counter_ns() - self._begin) / 1e3, -count, address))

    # -- collectives --------------------------------------------------------------------------

    def _watch(self, group: ProcessGroup) -> None:
        """Stand in for the verbs of one group until the block ends."""
        for verb in VERBS:
            setattr(group, verb, self._timed(verb, group, getattr(group, verb)))
            self._stack.callback(group.__dict__.pop, verb, None)
        for verb in _MAKERS:
            setattr(group, verb, self._making(getattr(group, verb)))
            self._stack.callback(group.__dict__.pop, verb, None)

    def _told(self, verb: str, group: ProcessGroup, args: tuple) -> dict[str, Any]:
        """What a trace says of a collective; "Flow" is the same on all ranks that take part."""
        me, first = int(group.rank), 0
        key: tuple = (group.name, "collective")
        if verb in ("isend", "irecv"):
            peer = next((a for a in args[1:] if isinstance(a, int)), 0)
            pair = (me, peer) if verb == "isend" else (peer, me)
            key, first = (group.name, *pair), pair[0]
        number, self._sent[key] = self._sent[key], self._sent[key] + 1
        self.facts.setdefault(
            "distributedInfo",
            {"rank": group.ranks[me], "world_size": int(group.size), "backend": group.backend},
        )
        return {
            "Collective name": _NAMES.get(verb, verb), "Process Group Name": str(group.name),
            "Process Group Ranks": list(group.ranks), "Group size": int(group.size),
            "Group rank": me, "Flow from": first, "Flow": f"{key}:{number}",
        }  # fmt: skip

    def _timed(self, verb: str, group: ProcessGroup, call: Callable) -> Callable:
        own = f"gloo:{_NAMES.get(verb, verb)}"

        def timed(*args: object, **kwargs: object) -> Any:
            name = named_comm.name or own
            since, shapes = perf_counter_ns(), _shapes(verb, args)
            details = self._told(verb, group, args)
            how: dict[str, Any] = {"is_async": True, "kind": COLLECTIVE, "details": details}
            work = call(*args, **kwargs)
            if hasattr(work, "on_end"):
                work.on_end(lambda _: self.note(name, since, shapes, **how))
            else:
                self.note(name, since, shapes, **how)
            return work

        return timed

    def _making(self, make: Callable) -> Callable:
        def made(*args: object, **kwargs: object) -> Any:
            group = make(*args, **kwargs)
            if group is not None:
                self._watch(group)
            return group

        return made


@contextmanager
def record_function(name: str, args: str | None = None):
    """Make the block an event of its own in every ``profile`` around it."""
    seen = open_profiles()
    since = perf_counter_ns()
    try:
        yield
    finally:
        for each in seen:
            each.note(name, since, [], kind=ANNOTATION)


def open_profiles() -> list[profile]:
    """The profiles that the calling thread is in."""
    return [i.profile for i in context.thread.stack if isinstance(i, _Operations)]


class _Operations(OperationObserver):
    """The interpreter: lets every operation pass, and notes how long it took."""

    def __init__(self, to: profile) -> None:
        self.profile = to

    def __str__(self) -> str:
        return "profile"

    def process(self, prim: Any, args: tuple, params: dict, forward: Callable) -> Any:
        to, since = self.profile, perf_counter_ns()
        out = forward(prim, args, params)
        took = perf_counter_ns()
        shapes = (tuple(a.shape) for a in args if isinstance(a, Tensor))
        walk = context.thread.walking
        forward_nr = -1 if walk is None or walk.at is None else walk.at.seq
        event = to.note(f"aten::{prim.name}", since, shapes, kind=OPERATION, forward_nr=forward_nr)
        event.cpu_time = (took - since) / 1e3
        if prim.differentiable:  # the node that comes next is the one of this operation
            event.sequence_nr = next_seq() + 1
        if to.profile_memory and not (prim.view or prim.mutates):
            outs = out if isinstance(out, tuple) else (out,)
            event.cpu_memory_usage = to.taken([o for o in outs if isinstance(o, Tensor)])
        if to.with_flops:
            event.flops = cost.flops(prim.name, args, out)
        if to.with_stack:
            event.stack = cost.lines()
        return out


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
