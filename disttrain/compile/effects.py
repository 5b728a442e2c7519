"""Effects in a capture: collectives and the work of leaves, as instructions that do it again.

What reaches other ranks cannot be computed by a graph. So an instruction keeps the object that did
the work (``core.effects``), and each replay calls it at the same place, with the arrays of that
run: buckets, headers, hooks and waits stay whose they were. While it works nothing is recorded or
watched. It says what it writes to, so the passes know; they neither drop nor move it.

Leaves with a ``store`` of their own are of this kind: each gradient is given to its store as it
comes, under a ``ReplayedWalk``, and what the stores asked for at the end of the walk is done there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from ..backends.device.array import DeviceArray
from ..context import thread
from ..core.effects import Effect
from ..core.gate import Primitive
from ..core.node import AccumulateGrad
from ..core.tensor import Tensor
from .guards.holders import FACT, Holder
from .guards.kinds import meant
from .guards.readers import Answer
from .instruction import Instruction, Var
from .pull import add_gradient, place_gradient, spread_kind
from .work import Work, giving, on_arrays, on_tensors, work_of


class Recorder(Protocol):
    """What is needed of a capture."""

    instructions: list[Instruction]
    entry: list[tuple[Tensor, Any]]
    old: dict[int, tuple]
    vars: dict[int, tuple[Var, Any]]
    written: Any
    keep: list[Any]
    captured: list[Any]
    running: bool

    def var(self, t: Tensor) -> Var: ...
    def find(self, t: Tensor) -> Var | None: ...
    def _bring(self, t: Tensor) -> Var: ...
    def _define(self, t: Tensor) -> Var: ...
    def _refuse(self, why: str) -> None: ...
    def _begin(self) -> None: ...


class Effects:
    """Those of one captured run. ``left``: by id of a leaf, the gradient that its store has left;
    ``first``: by id of a gradient, the name that it had before the work of stores."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.walks: dict[int, ReplayedWalk] = {}
        self.left: dict[int, Tensor | None] = {}
        self.first: dict[int, Var] = {}
        self.counted: set[int] = set()  # tensors whose writers count them in replays, too
        self.said: str | None = None  # what others say cannot be repeated
        self.told: list[Holder] = []  # what the program was told of its rank

    def perform(
        self, name: str, effect: Effect, tensors: tuple[Tensor, ...], writes: tuple[int, ...]
    ) -> Any:
        """Do the work, and write it down: inside of a backward, as a part of its walk."""
        alone = effect.alone
        if effect.counts:
            self.counted.update(id(tensors[i]) for i in writes)
        if thread.walk is not None and not alone:
            effect = Within(self._walk(), effect)
        made = self._do(work_of(name, on_tensors, writes, alone), effect, tensors)
        effect.gave = made is not None
        given = tuple(effect.gives())
        if given:
            prim = work_of(name, giving, (), alone)
            names = tuple(self.recorder._define(t) for t in given)
            last = self.recorder.instructions.pop()
            self.recorder.instructions.append(replace(last, prim=prim, outputs=names))
        return made

    def compute(self, prim: Primitive, args: tuple, params: dict, proceed: Callable) -> Any:
        """Run an operation; what reaches other ranks, which replays do again, is not watched."""
        recorder = self.recorder
        recorder.running = True
        try:
            if spread_kind(args) is None and not prim.outward:
                return proceed(prim, args, params)
            with _unwatched():
                return proceed(prim, args, params)
        finally:
            recorder.running = False

    def apart(self, work: Callable[..., Any], *args: object) -> None:
        """Do what no replay needs to do."""
        with _apart():
            work(*args)

    def rely(self, ask: functools.partial) -> Any:
        """What ``ask`` tells, which replays look at again."""
        with _apart():
            answer = ask()
            self.told.append(Holder(FACT, ask, f"{ask.func.__name__}()", reader=Answer(ask)))
        return answer

    def refuse(self, why: str) -> None:
        """Something is done that no replay would do."""
        self.said = self.said or why
        self.recorder._refuse(why)

    def _do(self, prim: Primitive, effect: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        recorder = self.recorder
        recorder._begin()
        self._check_place(tensors)
        names = tuple(recorder.var(t) for t in tensors)
        before = self._versions()
        for i in prim.mutates:  # (it may take their memory away)
            recorder.written.add(tensors[i].array, tensors[i])
        with _apart():
            made = effect(*tensors)
        self._check_written([tensors[i] for i in prim.mutates], before)
        recorder.instructions.append(Instruction(prim, names, {"effect": effect}, ()))
        return made

    def _check_place(self, tensors: Sequence[Tensor]) -> None:
        known = (t for t, *_ in self.recorder.old.values())
        if any(t.array.__class__ is DeviceArray for t in (*tensors, *known)):
            self.recorder._refuse("it reaches other ranks with tensors on a device")

    def _versions(self) -> list[tuple[Tensor, int]]:
        return [(t, t._version) for t, *_ in self.recorder.old.values()]

    def _check_written(self, writes: list[Tensor], before: list[tuple[Tensor, int]]) -> None:
        """What others do to tensors that they have not said."""
        grads = {id(leaf._grad) for leaf, _ in self.recorder.entry}
        grads |= {id(grad) for _, grad in self.recorder.entry}
        cells = {id(w._st) for w in writes}
        for t, version in before:
            if t._version != version and id(t) not in grads and id(t._st) not in cells:
                self.recorder._refuse(
                    f"a tensor of shape {list(t.shape)} is written to by the hooks of a collective"
                )

    # --- leaves -----------------------------------------------------------------------------
    def check(self, walked: bool) -> None:
        """At the end of a program: what no replay would do for its leaves, where it has ``walked``
        backward; and weights that are not there in a replay."""
        for t in self.recorder.captured:
            if meant(t) is not t:
                self.recorder._refuse(
                    f"it uses a whole weight of shape {list(t.shape)} outside of the call of the "
                    "module that it was sharded with"
                )
        for leaf, before in self.recorder.entry if walked else ():
            node = leaf._node
            if type(node) is not AccumulateGrad:
                continue
            if node.accumulate_hooks:
                self.recorder._refuse(
                    f"a leaf of shape {list(leaf.shape)} has hooks on its gradient, which run when "
                    "it was set; a replay would not run them"
                )
            elif node.store is not None and id(leaf) not in self.left and leaf._grad is not before:
                self.recorder._refuse(
                    f"a leaf of shape {list(leaf.shape)}, which takes gradients in a way of its "
                    "own, got one past the captured backward"
                )

    def store(self, acc: AccumulateGrad, leaf: Tensor, g: Tensor) -> None:
        """Give a leaf its gradient in the way that it has."""
        walk = self._walk()
        given: tuple[Tensor, ...] = (g,)
        if not acc.elsewhere:
            old = leaf._grad
            self._check_old(leaf, old)
            self.recorder.var(leaf)
            walk.stored.append(leaf)
            given = (g,) if old is None else (g, old)
            walk.olds += given[1:]
        writes = tuple(range(1, len(given)))
        self._do(work_of("store_gradient", on_arrays, writes), Stored(walk, acc, leaf), given)
        if not acc.elsewhere:
            self.left[id(leaf)] = leaf._grad

    def place(self, leaf: Tensor, g: Tensor) -> None:
        """Give a leaf its gradient, where one of them is spread over ranks."""
        placed = place_gradient(g, leaf)
        if leaf._grad is None:
            leaf._grad = placed
        else:
            add_gradient(leaf._grad, placed)

    def _check_old(self, leaf: Tensor, old: Tensor | None) -> None:
        """``leaf`` has the gradient ``old``, to which something is going to be added."""
        first = next((grad for known, grad in self.recorder.entry if known is leaf), None)
        if old is not None and old is not first and old is not self.left.get(id(leaf)):
            self.recorder._refuse(
                f"the gradient of a leaf of shape {list(leaf.shape)} was replaced by another "
                "before the backward that adds to it and is averaged over ranks"
            )

    def _walk(self) -> ReplayedWalk:
        """What stands for the walk that is running."""
        known = self.walks.get(id(thread.walk))
        return self._begin_walk(thread.walk) if known is None else known

    def _begin_walk(self, real: Any) -> ReplayedWalk:
        entry = self.recorder.entry
        absent = [leaf for leaf, _ in entry if leaf._grad is None and _stores(leaf)]
        walk = self.walks[id(real)] = ReplayedWalk(real, absent, self.recorder._refuse)
        walk.before = {id(leaf): leaf._grad for leaf, _ in entry}
        self.recorder.keep.append(real)
        self._do(work_of("begin_gradients", on_arrays, ()), Phase(walk, walk.begin), ())
        walk.at = len(self.recorder.instructions) - 1
        real.callbacks.append(lambda: self._finish_walk(walk))
        return walk

    def _finish_walk(self, walk: ReplayedWalk) -> None:
        olds = walk.olds
        finish = work_of("finish_gradients", on_arrays, tuple(range(len(olds))))
        self._do(finish, Phase(walk, walk.finish), olds)
        self._settle_given(walk)
        given = [leaf for leaf, known in walk.given.items() if known]
        leaves = list(dict.fromkeys((*walk.stored, *given)))
        if any(leaf._grad is None for leaf in leaves):
            self.recorder._refuse("gradients are dropped by the hooks of a collective")
            return
        self.left.update((id(leaf), leaf._grad) for leaf in leaves)
        walk.settle()
        names = tuple(self._rename(leaf._grad) for leaf in leaves)
        if leaves:
            effect = {"effect": Gradients(leaves)}
            self.recorder.instructions.append(Instruction(gradients_of, (), effect, names))

    def _settle_given(self, walk: ReplayedWalk) -> None:
        """See what stores have left with other tensors than their leaves: gradients that were
        there are written to somewhere between the beginning of the walk and its end."""
        instructions, written = self.recorder.instructions, list[Var]()
        if not all(walk.sure.values()):
            self.recorder._refuse(
                "a backward does not reach all parameters of a unit; whether they get a gradient "
                "depends on the other ranks"
            )
        for leaf in [leaf for leaf, given in walk.given.items() if given]:
            old = walk.before.get(id(leaf))
            self._check_old(leaf, old)
            if old is None:
                walk.absent.append(leaf)
            elif old.__dict__.get("array") is not None:
                known = self.recorder.find(old)
                written.append(known or self.recorder._bring(old))
                self.recorder.written.add(old.array, old)
        for at in (walk.at, len(instructions) - 1) if written else ():
            ins = instructions[at]
            args = (*ins.args, *written)
            prim = work_of(ins.prim.name, on_arrays, tuple(range(len(args))))
            instructions[at] = replace(ins, prim=prim, args=args)

    def _rename(self, grad: Any) -> Var:
        """A name for what a gradient is from now on."""
        known = self.recorder.vars.get(id(grad))
        if known is not None and known[0].kind == "c":
            self.first.setdefault(id(grad), known[0])
        return self.recorder._define(grad)


class ReplayedWalk:
    """What stores see of a backward pass that is captured, and of its replays, in which no node is
    walked. Each pass is a ``Turn``. ``absent``: leaves that have no gradient as it begins."""

    def __init__(self, real: Any, absent: list[Tensor], refuse: Callable[[str], None]) -> None:
        self.leaves = {n for n in real.pending if n.__class__ is AccumulateGrad and real.reaches(n)}
        self.absent = absent
        self.answers: dict[Any, bool] = {}
        self.stored: list[Tensor] = []
        self.given: dict[Tensor, bool] = {}  # leaves that got theirs by the stores of others
        self.sure: dict[Tensor, bool] = {}  # which of them do so whatever other ranks do
        self.olds: list[Tensor] = []
        self.before: dict[int, Tensor | None] = {}  # by id of a leaf: its gradient at first
        self.at = 0  # the instruction that begins it
        self.real: Any = real
        self.refuse: Callable[[str], None] | None = refuse
        self.now = Turn(self)

    def __repr__(self) -> str:
        return f"<backward to {len(self.leaves)} leaves>"

    def settle(self) -> None:
        """The capture is over: keep nothing of it."""
        self.real = self.refuse = None
        self.stored, self.olds, self.given, self.sure, self.before = [], [], {}, {}, {}

    def begin(self, *olds: object) -> None:
        """Another pass."""
        self.now = Turn(self)
        for leaf in self.absent:
            leaf._grad = None

    def call(self, work: Callable[..., Any], *args: object) -> Any:
        """Let ``work`` find the present pass as the one that is running. Its result."""
        around, recording = thread.walk, thread.grad_enabled
        thread.walk, thread.grad_enabled = self.now, False
        if recording:
            thread.refresh()
        try:
            return work(*args)
        except BaseException:
            self._stop()
            raise
        finally:
            thread.walk, thread.grad_enabled = around, recording
            if recording:
                thread.refresh()

    def _stop(self) -> None:
        broken, self.now = self.now.broken, Turn(self)
        for callback in broken:
            callback()

    def break_off(self) -> None:
        """The pass does not come to its end."""
        if self.now.broken:
            self.call(self._stop)

    def finish(self, *olds: object) -> None:
        """Do what is to be done at the end of the pass. ``olds``: gradients that it adds to."""
        self.call(self.now.end)
        self.now = Turn(self)


class _OneEach:
    """How many gradients nodes get."""

    def get(self, node: object) -> int:
        return 1


class Turn:
    """One pass of a walk, with what stores may ask of it."""

    home = None
    pull = None  # what it does is an effect's, which is not recorded
    tensors, grads = False, ()  # gradients are arrays, and come one by one
    pending = _OneEach()

    def __init__(self, walk: ReplayedWalk) -> None:
        self.walk = walk
        self.callbacks: list[Callable[[], None]] = []
        self.broken: list[Callable[[], None]] = []

    def reaches(self, node: object) -> bool:
        """Whether the pass comes to ``node``."""
        real = self.walk.real
        return node in self.walk.leaves if real is None else real.reaches(node)

    def answer(self, question: Callable[[], bool]) -> bool:
        """What was answered when the pass was captured."""
        answers = self.walk.answers
        if question not in answers:
            answers[question] = question()
        return answers[question]

    def gave(self, leaves: Iterable[tuple[Tensor, bool, bool]]) -> None:
        """What a replay must know of once."""
        if self.walk.real is not None:
            for leaf, given, own in leaves:
                self.walk.given[leaf] = self.walk.given.get(leaf, False) or given
                self.walk.sure[leaf] = self.walk.sure.get(leaf, False) or own

    def vary(self, why: str) -> None:
        """What it leads to may be otherwise in another step."""
        if self.walk.refuse is not None:
            self.walk.refuse(why)

    def end(self) -> None:
        """Call what was asked for."""
        for callback in self.callbacks:
            callback()


class Within(Effect):
    """An effect inside of a backward pass."""

    def __init__(self, walk: ReplayedWalk, effect: Effect) -> None:
        self.walk, self.effect = walk, effect

    def __call__(self, *tensors: Tensor) -> Any:
        return self.walk.call(self.effect, *tensors)

    def gives(self) -> Sequence[Tensor]:
        return self.effect.gives()

    def settle(self, results: tuple) -> None:
        self.effect.settle(results)

    def break_off(self) -> None:
        self.walk.break_off()
        self.effect.break_off()

    def __repr__(self) -> str:
        return repr(self.effect)


class Phase:
    """The beginning of a pass, or its end."""

    def __init__(self, walk: ReplayedWalk, work: Callable[..., None]) -> None:
        self.walk, self.work = walk, work

    def __call__(self, *olds: object) -> None:
        self.work(*olds)

    def __repr__(self) -> str:
        return repr(self.walk)


class Stored:
    """A leaf takes its gradient, ``early``: as soon as it is there."""

    early = True

    def __init__(self, walk: ReplayedWalk, acc: AccumulateGrad, leaf: Tensor) -> None:
        self.walk, self.acc, self.leaf = walk, acc, leaf

    def __call__(self, g: object, old: object = None) -> None:
        assert self.acc.store is not None
        self.walk.call(self.acc.store, self.leaf, g)

    def place(self) -> Any:
        """Where the gradient may be computed: an array and a factor, if there is such a place."""
        return self.walk.call(self._place)

    def _place(self) -> Any:
        around, thread.walking = thread.walking, thread.walk
        try:
            return None if self.acc.place is None else self.acc.place()
        finally:
            thread.walking = around

    def __repr__(self) -> str:
        return f"<to a leaf of shape {list(self.leaf.shape)}>"


class Gradients:
    """The gradients that leaves have now."""

    def __init__(self, leaves: list[Tensor]) -> None:
        self.leaves = leaves

    def __call__(self) -> tuple:
        return tuple([leaf._grad.array for leaf in self.leaves])  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"<of {len(self.leaves)} leaves>"


def _stores(leaf: Tensor) -> bool:
    return type(leaf._node) is AccumulateGrad and leaf._node.store is not None


gradients_of = Work("gradients", on_arrays, ())
gradients_of.outward = gradients_of.multi = True


@contextmanager
def _unwatched() -> Iterator[None]:
    """Nobody watches what Python does in the block."""
    profile = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)


@contextmanager
def _apart() -> Iterator[None]:
    """Nobody records or watches what runs in the block."""
    stack = thread.stack
    thread.stack = []
    thread.refresh()
    try:
        with _unwatched():
            yield
    finally:
        thread.stack = stack
        thread.refresh()
