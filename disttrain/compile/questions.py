"""Questions: numbers that Python reads while a program is captured, and what it saw.

A capture is one path of the program: where Python has read a number of a tensor, the graph asks
whether it is what it was. Where it is not, another path is taken: the replay ends there, and what
it has written and drawn until then is put back, as if it had never begun.

This file knows steps and slots (``replay``), and nothing of how paths are found or captured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ..backends.device.array import DeviceArray
from ..core.gate import Primitive
from ..core.tensor import Tensor, wrap
from ..trace import call_site
from .instruction import Instruction, Var
from .memory import is_laid_out
from .modules import Forward
from .numbers import Check, Uses, uses_of

MOST_PATHS = 24  # of one kind of call
MOST_NUMBERS = 4  # captures because one floating-point number is another one each time
MOST_SAVED = 1 << 24  # bytes that every replay may save, in case that a question is answered anew
_MOST_READ = 1 << 10  # bytes of an array whose numbers are one question
_NUMBERS = frozenset({"item", "_truth", "tolist"})  # what gives numbers of a tensor to Python
_PASSING = frozenset({"note_read", "values_of", "_reading", "on_array"})
# What stands between who runs a program and its own function, and gives back what that gives.
_BETWEEN = ("disttrain.compile.modules", "disttrain.core.grad_mode")


@dataclass(frozen=True)
class Path:
    """What is known of the way that a call takes: ``answers`` to the first questions, the last of
    which is asked at ``site``, of a number of such a ``kind``."""

    answers: tuple[bytes, ...]
    site: str
    kind: str

    def leads_to(self, answers: tuple[bytes, ...]) -> bool:
        """Whether a call of this path may take the one with these answers."""
        return answers[: len(self.answers)] == self.answers


class Otherwise(Exception):  # noqa: N818  (no error: the answer to a question)
    """A question has another answer than on the path that runs. (No path: memory lies otherwise
    than at capture.)"""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self.path = path


class Paths:
    """Those of one kind of call."""

    def __init__(self) -> None:
        self.count = 0
        self.by_site: dict[str, int] = {}
        self.eager: dict[tuple[bytes, ...], str] = {}  # why, by answers

    def eager_since(self, path: Path) -> str | None:
        """Why calls of this path run eagerly, if they do."""
        found = (w for known, w in self.eager.items() if path.answers[: len(known)] == known)
        return next(found, None)

    def more(self, path: Path) -> str | None:
        """Count a new path; why there are too many, if there are."""
        self.count += 1
        times = self.by_site[path.site] = self.by_site.get(path.site, 0) + 1
        if times > (MOST_NUMBERS if path.kind in "fc" else MOST_PATHS) or self.count > MOST_PATHS:
            return (
                f"a number that is read at {path.site} (item(), bool(), an index or a shape that "
                f"depends on it, or the like) was another one in {times} calls. Use tensor "
                "operations such as dt.where, or read it outside"
            )
        return None


class Seen:
    """What Python saw of an array at ``site``, after the answers ``before``: its numbers, or what
    a ``test`` said of its only one."""

    def __init__(
        self, array: np.ndarray, before: tuple[bytes, ...], site: str, test: Check | None
    ) -> None:
        self.before, self.site, self.test = before, site, test
        self.now = self.of(array)
        self.text = str(array.tolist()) if test is None else f"{test} is {bool(self.now[0])}"

    def __repr__(self) -> str:
        return f"{self.text} at {self.site}"

    def of(self, array: np.ndarray) -> bytes:
        """What it would be of another array."""
        return array.tobytes() if self.test is None else bytes([self.test(_number(array))])


def _on_host(array: Any) -> np.ndarray:
    """The numbers of an array, for which the host waits where they are on a device."""
    return array.to_host() if array.__class__ is DeviceArray else array


def _put_back(array: Any, before: Any) -> None:
    """Write what was there to an array of the host's or a device's."""
    if array.__class__ is DeviceArray:
        with array.here():
            array.data[...] = before.data
    else:
        array[...] = before


def _number(array: np.ndarray) -> float:
    """As ``item()`` gives it."""
    return float(array.item()) if array.dtype.kind == "V" else array.item()


def _is_own(value: object) -> bool:
    """Whether a number is an object that nobody else has. (Python has small ints once.)"""
    return type(value) is float or (type(value) is int and not -5 <= value <= 1024)


def _compare(a: Any, *, seen: Seen) -> None:
    now = seen.of(_on_host(a))
    if now != seen.now:
        kind = a.dtype.kind if seen.test is None else "b"
        raise Otherwise(Path((*seen.before, now), seen.site, kind))


# Whether Python would see in ``a`` what it saw when it was captured.
question = Primitive("question", _compare, ("a",))
question.checks = question.kinds = True


def says(name: str, a: Any, *others: Any) -> bool:
    """Whether something is true of how an array lies in memory."""
    if name == "own":
        return a.base is None
    if name == "shares":
        return bool(np.may_share_memory(a, others[0]))
    return bool(getattr(a.flags, name))


def _look(*arrays: Any, name: str, then: bool) -> None:
    if says(name, *arrays) != then:
        raise Otherwise(None)


# Whether a value lies as it did at capture; where not, the replay is not for sizes like these.
lies = Primitive("lies", _look, ("a",))
lies.checks = True

# The value of ``a`` now: a number that the program hands back.
number = Primitive("number", lambda a: a.copy(), ("a",))


class Questions:
    """Those of one capture. ``open``: whether any may be asked."""

    def __init__(self) -> None:
        self.open = False
        self.asked: dict[Var, int] = {}  # how many instructions there were
        self.seen: tuple[bytes, ...] = ()
        self.numbers: dict[int, tuple[object, Tensor]] = {}  # by id: what may be handed back
        self._next: Tensor | None = None  # which the number that is being read stands for
        self._codes: set[Any] = set()  # of the function itself
        self._around: FrameType | None = None  # what has called it

    @contextmanager
    def called(self, fn: Any) -> Iterator[None]:
        """The block calls ``fn``, and takes what that gives."""
        self._codes, self._around = set(_codes(fn)), sys._getframe(2)
        try:
            yield
        finally:
            self._around = None  # (it would keep all that it has)

    def read(self, recorder: Any, t: Tensor, frame: FrameType) -> bool:
        """Python reads ``t`` by ``frame``: note what it sees. False where it may take more than
        numbers (memory, which numpy could write to), or too many."""
        through, reader = frame, frame
        while reader.f_code.co_name in _PASSING and reader.f_back is not None:
            reader = reader.f_back
        if not self._allowed(t, reader):
            return False
        if through.f_code.co_name != "values_of":  # (it is read by and by)
            return reader.f_globals["__name__"] == "disttrain.ops.methods"
        var = recorder.find(t) or recorder.var(t)
        uses = self._uses(t, reader) if t.array.size == 1 else None
        if uses is None or (uses.returned and not _is_own(_number(_on_host(t.array)))):
            self._ask(var, t, recorder.instructions)
            return True
        for test in uses.tests:
            self._put(var, t, recorder.instructions, test)
        if uses.returned:
            self._next = wrap(t.array.copy())
            out = recorder._define(self._next)
            recorder.instructions.append(Instruction(number, (var,), {}, (out,)))
        return True

    def _allowed(self, t: Tensor, reader: FrameType) -> bool:
        if not self.open or t.array.nbytes > _MOST_READ:
            return False
        part, name = reader.f_globals.get("__name__", ""), reader.f_code.co_name
        if part == "disttrain.ops.methods":
            return name in _NUMBERS
        if t.array.__class__ is DeviceArray:
            return False
        return part.startswith("disttrain.ops.functions.") and t.array.dtype.kind in "iub"

    def _ask(self, var: Var, t: Tensor, instructions: list[Instruction]) -> None:
        """For all bits, unless that was asked and nothing was written since."""
        start = self.asked.get(var)
        if start is None or any(ins.prim.mutates for ins in instructions[start:]):
            self.asked[var] = len(instructions)
            self._put(var, t, instructions, None)

    def _put(
        self, var: Var, t: Tensor, instructions: list[Instruction], test: Check | None
    ) -> None:
        seen = Seen(_on_host(t.array), self.seen, call_site(), test)
        self.seen = (*self.seen, seen.now)
        instructions.append(Instruction(question, (var,), {"seen": seen}, ()))

    def _uses(self, t: Tensor, reader: FrameType) -> Uses | None:
        """What becomes of the number that ``reader`` gives to its caller."""
        if reader.f_code.co_name != "item":
            return None
        caller = reader.f_back
        while caller is not None and caller.f_globals.get("__name__") == "disttrain.ops.methods":
            if t.array.dtype.kind in "iub":  # ``float(t)`` makes another number of it
                return None
            caller = caller.f_back
        return None if caller is None else uses_of(caller, self._is_whole(caller))

    def _is_whole(self, frame: FrameType) -> bool:
        """Whether what ``frame`` returns is what the captured call gives."""
        above = frame.f_back
        while above is not None and above.f_globals.get("__name__") in _BETWEEN:
            above = above.f_back
        return frame.f_code in self._codes and above is self._around is not None

    def given(self, value: object) -> None:
        """``value`` is what Python got by the call that reads."""
        if self._next is not None:
            self.numbers[id(value)] = value, self._next
        self._next = None

    def placed(self, leaves: list) -> tuple[list, list[int]]:
        """The leaves of the result with tensors for numbers that were read, and where these are."""
        known = self.numbers
        places = [i for i, leaf in enumerate(leaves) if id(leaf) in known]
        whole = list(leaves)
        for i in places:
            whole[i] = known[id(leaves[i])][1]
        return whole, places


def _codes(fn: Any) -> Iterator[CodeType]:
    """The code of a function, of what it wraps, and of an object's or a module's own method."""
    for _ in range(9):
        fn = type(fn.module).forward if isinstance(fn, Forward) else fn
        code = getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)
        if code is not None:
            yield code
        inside = (getattr(fn, name, None) for name in ("func", "__func__", "__wrapped__"))
        fn = next((f for f in inside if f is not None), None)


def answers(instructions: Sequence[Instruction]) -> tuple[bytes, ...]:
    """What was seen, question by question: the name of a path."""
    return tuple(ins.params["seen"].now for ins in instructions if ins.prim is question)


class Trial:
    """The steps of a program up to its last question, which may be undone."""

    def __init__(self, program: Any, end: int) -> None:
        self.steps = program.steps[:end]
        instructions = program.graph.instructions[:end]
        targets = {ins.args[i] for ins in instructions for i in ins.prim.mutates}
        roots = {program.base.get(v, v) for v in targets}
        self.written = [v for v in program.written if v in roots]
        self.slots = [program.slots[v] for v in self.written]
        drawn = {id(g): g for s in self.steps if s.prim.random and (g := s.params["generator"])}
        self.generators = list(drawn.values())

    @staticmethod
    def of(program: Any) -> Trial | None:
        """That of a program; None where it asks nothing."""
        asks = [i for i, s in enumerate(program.steps) if s.prim in (question, lies)]
        return Trial(program, asks[-1] + 1) if asks else None

    def run(self, values: list, through: Callable[[list, list], None]) -> None:
        """The steps. What they have written and drawn is put back where one fails, as a question
        does that is answered anew (``Otherwise``)."""
        arrays = [values[at] for at in self.slots]
        saved = [a.copy() for a in arrays]
        states = [g.get_state() for g in self.generators]
        try:
            through(self.steps, values)
        except BaseException:
            for array, before in zip(arrays, saved, strict=True):
                _put_back(array, before)
            for g, state in zip(self.generators, states, strict=True):
                g.set_state(state)
            raise

    def why_not(self, tensors: Sequence[Tensor], metas: dict[Var, tuple]) -> str | None:
        """Why it cannot be undone, if it cannot. ``tensors``: all that are given."""
        size = sum(_bytes(metas[v]) for v in self.written)
        seen = self.steps[-1].params.get("seen")
        where = f"at {seen.site}" if seen is not None else "of how memory lies"
        if not all(is_laid_out(tensors[at].array) for at in self.slots):
            return f"a number is read {where} after writes to memory that is spread over ranks"
        if any(step.prim.outward for step in self.steps):
            return f"a number is read {where} after work with other ranks, which cannot be undone"
        if size > MOST_SAVED:
            return (
                f"a number is read {where} after {size >> 20} MB were written to, which every "
                "replay would have to save; read it before, or outside"
            )
        return None


def _bytes(meta: tuple) -> int:
    return int(np.prod(meta[0], dtype=np.int64)) * int(np.dtype(meta[1]).itemsize)
