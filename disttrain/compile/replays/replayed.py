"""Programs of a device's arrays as CUDA graphs: recorded once, then one launch for many steps.

The first run is eager, so that kernels are compiled and libraries have their memory; the second is
recorded. Arguments are copied to where the graph reads them; results are copied out, so that no
later run writes to them. Everything that the graph makes lies in a pool that all compiled functions
of a rank share: only one of them runs at a time, and streams wait for each other.

Knows programs by their steps and slots (``replay``), and devices by their platform.
"""

from __future__ import annotations

import threading
import weakref
from operator import is_
from typing import Any

from ...backends.device.array import DeviceArray
from ...backends.fused.casts import copied
from ...context import current
from ...core.random import Generator
from ...core.recording import Recording
from ...trace import warn
from ..instruction import Var
from .device_updates import raw_of, run_together
from .parts import DEVICE, FIXED, HOST, Facts, Part, divide

_SHARED = "compile.replayed"  # the slot of what a rank's recordings share, by device


class Shared:
    """What the recordings of one device share: memory, a stream to record on, whose turn it is."""

    def __init__(self, platform: Any, index: int) -> None:
        self.pool, self.line = platform.graph_pool(), platform.stream(index)
        self.lock = threading.RLock()
        self.event = platform.event()
        self.last: Any = None  # the stream of the last run


def shared(platform: Any, index: int) -> Shared:
    """That of the calling rank, which lives as long as a recording does."""
    known: Any = current().slot(_SHARED, weakref.WeakValueDictionary)
    key = (id(platform), index)
    found = known.get(key)
    if found is None:
        found = known[key] = Shared(platform, index)
    return found


class Player:
    """Runs the steps of one program. ``why``: what kept steps from being recorded, by step."""

    def __init__(self, program: Any, name: str) -> None:
        self.program, self.name = program, name
        self.why: dict[int, str] = {}
        self.places: dict[int, str] = {}  # by slot; found out by the first run
        self.parts: list[Part] | None = None
        self.recordings: dict[int, Recording] = {}  # by number of the part
        self._ends: list[weakref.finalize] = []  # of recordings
        self.static: dict[int, DeviceArray] = {}  # by slot: where the graphs have it
        self.made: dict[int, list[int]] = {}  # by number of the part: what it gives to others
        self.captured: list[Any] = []  # raw arrays, whose addresses are part of the graphs
        inputs, self.count = len(program.graph.inputs), len(program.given)
        owned = {at for at, _ in program.owned}
        self.fixed = [i for i in range(inputs, self.count) if i not in owned]
        self.inputs = [*range(inputs), *sorted(owned)]

    def __call__(self, values: list) -> list:
        """The values of all slots that are wanted; ``values`` has those of what is given."""
        there = _home(values[: self.count])
        if there is None or there.platform.capturing() or self._aliased(values):
            self.program.execute(values)
            return values
        if not self.places:
            self._look(values, there)
            return values
        self.shared = shared(there.platform, there.index)
        with self.shared.lock, there:
            return self._run(values, there.platform)

    def _aliased(self, values: list) -> bool:
        """Whether an argument lies in memory that is written to under another name."""
        given = [(i, values[i]) for i in range(self.count)]
        arrays = [(i, a) for i, a in given if a.__class__ is DeviceArray and a.size]
        written = {id(a.memory): i for i, a in arrays if i in self.program.writes}
        return any(written.get(id(a.memory), i) != i for i, a in arrays)

    def _look(self, values: list, there: Any) -> None:
        """Run step by step, and see where the values are."""
        program, places = self.program, {}
        for at, value in enumerate(values):
            given = at < self.count
            places[at] = DEVICE if _is_there(value, there) else HOST if given else FIXED
        for step in program.steps:
            program.do(step, values, drop=False)
            prim, where = step.prim, {places[i] for i in step.given}
            pure = not (prim.random or prim.mutates or prim.checks)
            for slot in step.made:
                fixed = where <= {FIXED} and pure
                there_now = _is_there(values[slot], there)
                places[slot] = DEVICE if there_now else FIXED if fixed else HOST
        self.places = places

    # -- a run -----------------------------------------------------------------------------------
    def _run(self, values: list, platform: Any) -> list:
        now = [raw_of(values[i]) for i in self.fixed]
        if self.parts is None or not all(map(is_, now, self.captured)):
            self.forget()
            self.parts, self.captured = divide(self._facts(), self.places, self._roots()), now
        self._in_turn(platform)
        given = {i: values[i] for i in self.inputs if values[i].__class__ is DeviceArray}
        self._bring(given, values)
        failed = None
        for number, part in enumerate(self.parts):
            if not part.recorded:
                self._single(part, values)
                continue
            self._bring({i: values[i] for i in part.takes}, values)
            recording = self.recordings.get(number)
            if recording is None:
                failed = failed or self._record(number, part, values, platform)
                if number not in self.recordings:
                    for i in part.steps:
                        self.program.do(self.program.steps[i], values)
                    continue
                recording = self.recordings[number]
            for slot in self.made[number]:
                values[slot] = self.static[slot]
            recording.replay()
        back = [i for i in given if i in self.program.writes]
        copied([self.static[i].data for i in back], [given[i].data for i in back])
        values = self._out(values, given)
        self.shared.last = platform.current_stream()
        self.shared.event.record(self.shared.last)
        if failed is not None:
            self._say(*failed)
            self.forget()
        return values

    def _in_turn(self, platform: Any) -> None:
        """What comes next waits for the last run of whoever shares the memory."""
        now, last = platform.current_stream(), self.shared.last
        if last is not None and last.handle != now.handle:
            now.wait_event(self.shared.event)

    def _bring(self, arrays: dict[int, Any], values: list) -> None:
        """Copy arrays to where the graphs read them."""
        arrays = {i: a for i, a in arrays.items() if a.__class__ is DeviceArray}
        for i, a in arrays.items():
            if i not in self.static:
                self.static[i] = _blank(a)
        copied([a.data for a in arrays.values()], [self.static[i].data for i in arrays])
        for i in arrays:
            values[i] = self.static[i]

    def _single(self, part: Part, values: list) -> None:
        """Steps one by one; updates by one rule with the same numbers together."""
        steps = [self.program.steps[i] for i in part.steps]
        at = 0
        while at < len(steps):
            done = run_together(steps, at, values)
            if not done:
                self.program.do(steps[at], values, drop=False)
            at += done or 1

    def _out(self, values: list, given: dict) -> list:
        """``values`` with the arguments that were given, and results in memory of their own."""
        program = self.program
        values = [given.get(i, v) for i, v in enumerate(values)]
        wanted = [v for v in program.graph.results() if program.slots[v] >= self.count]
        roots = {program.slots[program.base.get(v, v)] for v in wanted}
        fresh = [i for i in sorted(roots) if i >= self.count and i in self.static]
        made = [_blank(values[i]) for i in fresh]
        copied([values[i].data for i in fresh], [a.data for a in made])
        for i, a in zip(fresh, made, strict=True):
            values[i] = a
        for v in wanted:
            root = program.slots[program.base.get(v, v)]
            if v in program.base and (root in fresh or root < self.count):
                values[program.slots[v]] = self._view(v, values)
        return values

    def _view(self, var: Var, values: list) -> Any:
        """A view, made again over what it is a view of."""
        program, chain = self.program, []
        while var in program.viewed:
            chain.append(program.viewed[var])
            var = chain[-1][0].args[0]
        array = values[program.slots[var]]
        for ins, part in reversed(chain):
            more = [values[program.slots[a]] if isinstance(a, Var) else a for a in ins.args[1:]]
            found = ins.prim.compute((array, *more), ins.params)
            array = found if part is None else found[part]
        return array

    # -- recording -----------------------------------------------------------------------------
    def _facts(self) -> list[Facts]:
        return [
            Facts(
                tuple(s.given), tuple(s.made), tuple(s.given[k] for k in s.prim.mutates),
                s.prim.view, i in self.why or s.prim.kinds or s.prim.together is not None,
            )
            for i, s in enumerate(self.program.steps)
        ]  # fmt: skip

    def _roots(self) -> dict[int, int]:
        slots = self.program.slots
        return {slots[v]: slots[b] for v, b in self.program.base.items()}

    def _record(self, number: int, part: Part, values: list, platform: Any) -> Any:
        """Record a part; or the steps that could not be, and why."""
        program, at = self.program, part.steps[0]
        used = [program.steps[i].params.get("generator") for i in part.steps]
        own = [g for g in used if isinstance(g, Generator) and g.device.type == platform.kind]
        recording = Recording(platform, self.shared.line, self.shared.pool, own)
        stay = {program.slots[program.base.get(v, v)] for v in program.graph.results()}
        inside = list(values)
        failed: tuple[list[int], Exception] | None = None
        try:
            recording.begin()
            try:
                for at in part.steps:
                    program.do(program.steps[at], inside, drop=False)
                    for slot in set(program.steps[at].gone) - stay:
                        inside[slot] = None
            except Exception as why:
                failed = [at], why
            finally:
                recording.end()
        except Exception as why:  # what was recorded is no graph; nobody knows which step it was
            failed = failed or (list(part.steps), why)
        if failed is not None:
            recording.reset()
            return failed
        made = [slot for i in part.steps for slot in program.steps[i].made]
        self.made[number] = [slot for slot in made if inside[slot] is not None]
        self.static.update({slot: inside[slot] for slot in self.made[number]})
        self.recordings[number] = recording
        self._ends.append(weakref.finalize(self, recording.reset))
        return None

    def _say(self, steps: list[int], why: Exception) -> None:
        names = list(dict.fromkeys(self.program.steps[i].prim.name.strip("_") for i in steps))
        self.why.update(dict.fromkeys(steps, str(why)))
        warn(
            f"compile: {self.name}: {', '.join(names)} cannot be part of a CUDA graph and runs "
            f"beside it: {why}",
        )

    def forget(self) -> None:
        """Let the recordings go; the next run makes new ones."""
        while self._ends:
            self._ends.pop()()
        self.parts, self.recordings, self.static = None, {}, {}
        self.made = {}


def _home(values: list) -> Any:
    """The device of the first of ``values`` that lies on one."""
    return next((a.here() for a in values if a.__class__ is DeviceArray), None)


def _is_there(a: object, there: Any) -> bool:
    return a.__class__ is DeviceArray and a.index == there.index and a.platform is there.platform


def _blank(a: DeviceArray) -> DeviceArray:
    """Memory for the values of ``a``, laid out alike."""
    with a.here() as there:
        return a.like(there.platform.xp.empty_like(a.data))
