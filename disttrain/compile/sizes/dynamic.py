"""Calls whose sizes change: which dimensions are symbols, and captures as they are for other sizes.

A capture with sizes as symbols (``shapes``) stands for all calls of its *form*: the key of a call
without those sizes. For given sizes it becomes what a capture of them would be, by putting numbers
in place of expressions: what was fused stays fused, and nothing is run.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from ...core.tensor import Tensor
from ...errors import CaptureError
from ...polynomials import LEAST
from ...symbolic import ERRORS, Scope
from ...trace import warn
from ..entry import Entry
from ..graph import Graph
from ..guards.arguments import Call
from ..joint import Joint
from ..passes.region import Fused
from ..sized import substitute, text_of
from .numbered import Open, Opened, free_numbers
from .shapes import Found, Sizes
from .substitution import Metas, Walked, Whole, all_numbers
from .symbolic_run import NUMBER

MOST = 256  # kinds of calls that general captures are kept ready for
KEPT = 6  # captures of one kind of call, for state that goes to and fro
_OFTEN = 4  # sizes of one form, each with a capture: that is told
_EQUAL = re.compile(r"[^%]* == [-.e\d]+$")
_TRIES = 2  # of symbolic runs of one form
_DYNAMIC, _WEAK, _STATIC = (
    "_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_static_indices",
)  # fmt: skip


# --- marks ----------------------------------------------------------------------------------------
def _mark(name: str, t: Tensor, index: Any) -> None:
    if isinstance(index, (list, tuple)):
        for i in index:
            _mark(name, t, i)
        return
    if index is None:
        for i in range(t.ndim):
            _mark(name, t, i)
        return
    if not -t.ndim <= index < t.ndim:
        raise CaptureError(
            f"mark: dimension {index} given; the tensor has {t.ndim} (shape {list(t.shape)})"
        )
    setattr(t, name, {*getattr(t, name, ()), index % t.ndim})


def mark_dynamic(t: Tensor, index: Any, **bounds: object) -> None:
    """Let calls with ``t`` be captured for all sizes of dimension ``index``; the call raises
    ``CaptureError`` where the program decides by it."""
    _mark(_DYNAMIC, t, index)


def maybe_mark_dynamic(t: Tensor, index: Any) -> None:
    """As ``mark_dynamic``, where the program allows it."""
    _mark(_WEAK, t, index)


def mark_static(t: Any, index: Any = None) -> None:
    """Let calls with ``t`` be captured for each size of dimension ``index`` (None: of all)."""
    if isinstance(t, Tensor):
        _mark(_STATIC, t, index)


# --- forms of calls -------------------------------------------------------------------------------
def _laid(shape: tuple, strides: Any, item: int) -> Any:
    """How an array lies, of all sizes: "in order", an order of dimensions, or its strides."""
    if 0 in shape:
        return strides
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    step = item
    for d in reversed(order):
        if strides[d] != step:
            return strides
        step *= shape[d]
    return "in order" if order == sorted(order) else ("order", *order)


def form_of(call: Call) -> tuple | None:
    """The key of a call without sizes; None where these are no symbols."""
    parts: list[Any] = []
    for at, part in enumerate(call.parts):
        if at in call.numbers:
            parts.append("number" if _may_vary(call.numbers[at]) else part)
        elif type(part) is tuple and part[:1] == ("overlaps",):
            return None
        elif type(part) is tuple and len(part) == 5 and isinstance(part[3], type):
            shape, dtype, strides, kind, graph = part
            if len(strides) != len(shape) or (shape and type(strides[0]) is not int):
                return None  # on a device
            parts.append((len(shape), dtype, _laid(shape, strides, dtype.itemsize), kind, graph))
        else:
            parts.append(part)
    return tuple(parts)


def _may_vary(number: float) -> bool:
    """Whether a plain number may be a symbol, as a size may."""
    return type(number) is float or number >= LEAST


def _number(call: Call, k: int) -> Any:
    """Of plain number ``k``: what is compared."""
    return call.parts[[*call.numbers][k]]


def _told(place: tuple[int, int]) -> str:
    i, dim = place
    return f"plain number {dim} of the call" if i == NUMBER else f"size {dim} of tensor {i}"


class Form:
    """What is known of calls of one form. ``first``: the shapes of the first one, and its plain
    numbers; ``changing``: dimensions that had several sizes; ``fixed``: those that no capture takes
    as symbols, and why."""

    def __init__(self, call: Call) -> None:
        self.first = [t.array.shape for t in call.tensors]
        self.first_numbers = [_number(call, k) for k in range(len(call.numbers))]
        self.changing: set[tuple[int, int]] = set()
        self.fixed: dict[tuple[int, int], str] = {}
        self.captures: list[General] = []
        self.why: str | None = None
        self.tries = 0
        self.captured: set[tuple] = set()  # of which sizes

    def sizes(self, call: Call, dynamic: bool | None) -> Sizes:
        """The dimensions to take as symbols in a capture of ``call``."""
        if dynamic is False:
            return []
        chosen = []
        for i, (t, before) in enumerate(zip(call.tensors, self.first, strict=True)):
            shape = t.array.shape
            asked = {*getattr(t, _DYNAMIC, ()), *getattr(t, _WEAK, ())}
            for dim, (n, m) in enumerate(zip(shape, before, strict=True)):
                place = (i, dim)
                if n != m:
                    self.changing.add(place)
                wanted = dim in asked or dynamic or place in self.changing
                kept = dim in getattr(t, _STATIC, ()) or place in self.fixed
                if wanted and not kept and n >= LEAST:
                    chosen.append(place)
        for k, number in enumerate(call.numbers.values()):
            place = (NUMBER, k)
            if _number(call, k) != self.first_numbers[k]:
                self.changing.add(place)
            if (dynamic or place in self.changing) and place not in self.fixed:
                chosen += [place] * _may_vary(number)
        return chosen

    def free(self) -> set[int]:
        """Plain numbers that calls may give to all captures."""
        found = [{*general.free.values()} for general in self.captures]
        return set.intersection(*found) if found else set()

    def fix(self, sizes: Sizes, why: str) -> None:
        """Take these as numbers from now on."""
        self.why = why
        self.fixed.update(dict.fromkeys(sizes, why))


def check_marks(call: Call, sizes: Sizes, why: str) -> None:
    """Raise for dimensions that were marked as dynamic and cannot be."""
    for i, dim in sizes:
        if i != NUMBER and dim in getattr(call.tensors[i], _DYNAMIC, ()):
            raise CaptureError(
                f"compile: dimension {dim} of argument {i} is marked as dynamic, but the program "
                f"is only right for the size {call.tensors[i].shape[dim]}: {why}; use "
                "maybe_mark_dynamic, or change the program"
            )


# --- captures for all sizes -----------------------------------------------------------------------
class General:
    """A capture with expressions. ``of(call)``: as it is for the sizes of ``call``."""

    def __init__(self, entry: Entry, found: Found, call: Call) -> None:
        self.entry, self.scope, self.sizes = entry, found.scope, found.sizes
        self.graph, self.joint = entry.graph, entry.joint
        _rely_on(self.graph.instructions, self.graph.metas, self.scope)
        for sweep in self.joint.sweeps if self.joint is not None else ():
            _rely_on(sweep.instructions, self.graph.metas, self.scope)
        places = {*self.sizes}
        shapes = [t.array.shape for t in call.tensors]
        self.static = [
            (i, dim, n) for i, shape in enumerate(shapes) for dim, n in enumerate(shape)
            if (i, dim) not in places
        ]  # fmt: skip
        self.static_numbers = [
            (k, _number(call, k)) for k in range(len(call.numbers)) if (NUMBER, k) not in places
        ]
        joint = self.joint
        self.metas = Metas(self.graph.metas)
        self.whole = Whole(self.graph)
        self.pure = None if joint is None or joint.pure is None else Whole(joint.pure)
        self.sweeps = [Walked(sweep) for sweep in ([] if joint is None else joint.sweeps)]
        self.texts = list(dict.fromkeys(n.text for n in all_numbers(self.graph, joint)))
        self.values = self.scope.function(self.texts)
        named = zip(self.scope.names, self.sizes, strict=True)
        symbols = {name: k for name, (i, k) in named if i == NUMBER}
        self.free, self.operands = free_numbers(self.graph, joint, symbols)
        entry.graph, entry.joint = self.made(tuple(self.scope.values))

    @property
    def answers(self) -> tuple[bytes, ...]:
        """To what Python asks."""
        return self.entry.answers

    def pinned(self) -> Iterator[tuple[int, int]]:
        """The dimensions that may have one size only."""
        for name, value, place in zip(self.scope.names, self.scope.values, self.sizes, strict=True):
            if f"{name} == {value!r}" in self.scope.relations:
                yield place

    def decided(self) -> str:
        """What it needs of sizes, with the line: that some are numbers before all else."""
        needs = sorted(self.scope.relations.items(), key=lambda n: not _EQUAL.search(n[0]))
        return next((f"{text} is needed at {site}" for text, site in needs), "")

    def fits(self, call: Call) -> tuple | None:
        """The values of the symbols in a call of its form that it stands for, as far as sizes
        go."""
        tensors = call.tensors
        if any(tensors[i].array.shape[dim] != n for i, dim, n in self.static):
            return None
        if any(_number(call, k) != n for k, n in self.static_numbers):
            return None
        numbers = [*call.numbers.values()]
        values = tuple([
            numbers[dim] if i == NUMBER else tensors[i].array.shape[dim] for i, dim in self.sizes
        ])  # fmt: skip
        return values if self.scope.holds(*values) else None

    def made(self, values: tuple, given: bool = False) -> tuple[Graph, Joint | None]:
        """What is replayed, for these values of the symbols; ``given``: but for free ones."""
        found = dict(zip(self.texts, self.values(*values), strict=True))
        found.update(self.operands if given else {})
        metas = self.metas.made(found)
        graph = self.whole.made(found, metas)
        if self.joint is None:
            return graph, None
        joint = copy.copy(self.joint)
        joint.shapes = substitute(joint.shapes, found)
        joint.pure = None if self.pure is None else self.pure.made(found, metas)
        whole = (*graph.inputs, *graph.outside())
        names = [*(whole[i] for i in joint.held), *joint.saved]
        joint.sweeps = [sweep.made(found, metas, names) for sweep in self.sweeps]
        return graph, joint

    def of(self, values: tuple) -> Variant | None:
        """As a capture of these sizes."""
        try:
            return Variant(self, *self.made(values))
        except ERRORS:
            return None

    def opened(self, call: Call) -> Open | None:
        """As a capture of the sizes of ``call``, for all numbers that are free."""
        values = self.fits(call)
        try:
            if values is not None:
                return Open(self.entry, self.scope, values, self.free, *self.made(values, True))
        except ERRORS:
            pass
        return None

    def told(self) -> list[str]:
        """Which sizes are symbols, and what must hold of them."""
        symbols = ", ".join(
            f"{name} is {_told(place)}"
            for name, place in zip(self.scope.names, self.sizes, strict=True)
        )
        lines = [f"symbols: {symbols} (ints are at least {LEAST})"]
        lines += [f"  guarded: {text}  ({site})" for text, site in self.scope.relations.items()]
        return lines


class Variant:
    """A general capture as it is for some sizes: an ``Entry`` of them."""

    def __init__(self, general: General, graph: Graph, joint: Joint | None) -> None:
        self.general, self.base = general, general.entry
        self.answers = self.base.answers
        self.graph, self.joint = graph, joint

    @property
    def made_of(self) -> tuple:
        """Of the capture."""
        return self.base.made_of

    def stale(self, call: Call) -> str | None:
        """Why it does not stand for the call."""
        return self.base.stale(call)

    def run(self, given: list[Tensor]) -> Any:
        """Replay."""
        return self.base.run(given, self.graph, self.joint)


# --- what passes relied on ------------------------------------------------------------------------
def _rely_on(instructions: Any, metas: dict, scope: Scope) -> None:
    """Need the shapes to be equal that are equal in kernels and where they write."""
    for ins in instructions:
        if not isinstance(ins.prim, Fused):
            continue
        alike = ins.prim.region.alike()
        shape = metas[alike[0]][0]
        for v in alike:
            for a, b in zip(metas[v][0], shape, strict=True):
                if text_of(a) != text_of(b):
                    scope.equal(text_of(a), text_of(b))


# --- the calls of one function --------------------------------------------------------------------
class Forms:
    """Those of one compiled function, whose ``entries`` by key they add to. ``dynamic``: as
    ``compile`` takes it."""

    def __init__(self, dynamic: bool | None, entries: dict[Any, list]) -> None:
        self.dynamic, self.entries = dynamic, entries
        self.forms: dict[tuple, Form] = {}
        self.ready: list[Any] = []  # keys of calls that only have variants, the oldest first
        self.free: set[int] = set()  # plain numbers that calls give, of the form captured last
        self.open: dict[tuple, list[Open]] = {}  # by the key of a call without those

    def _form(self, call: Call) -> Form | None:
        if not self.forms or not call.tensors:
            return None
        form = form_of(call)
        return None if form is None else self.forms.get(form)

    def sizes(self, call: Call) -> Sizes:
        """What to take as symbols in a capture of ``call``."""
        key = form_of(call) if call.tensors and self.dynamic is not False else None
        if key is None:
            return []
        form = self.forms.setdefault(key, Form(call))
        return form.sizes(call, self.dynamic)

    def opened(self, call: Call) -> Opened | None:
        """Captures that are given the numbers of the call, where they are its only difference to
        one that was; None where there are none."""
        if not self.free or len(call.numbers) <= max(self.free):
            return None
        numbers = [*call.numbers.values()]
        if not all(_may_vary(numbers[k]) for k in self.free):
            return None
        key = call.without(self.free)
        known = self.open.get(key)
        if known is None:
            form = self._form(call)
            if form is None or {*self.free} != form.free():
                return None
            made = [general.opened(call) for general in form.captures]
            known = self.open[key] = [each for each in made if each is not None]
            if len(self.open) > MOST:
                self.open.pop(next(iter(self.open)), None)
        found = Opened(one for each in known if (one := each.of(call)) is not None)
        return found or None

    def more(self, call: Call, known: list) -> list:
        """Captures for the call that are not ``known``: general ones as they are for its sizes."""
        if type(known) is Opened:
            return []
        form = self._form(call)
        found = []
        for general in form.captures if form is not None else ():
            if any(e is general.entry or getattr(e, "general", None) is general for e in known):
                continue
            values = general.fits(call)
            variant = None if values is None else general.of(values)
            if variant is not None:
                found.append(variant)
        if found and not known:
            self.entries[call.key] = found
            self.ready.append(call.key)
            if len(self.ready) > MOST:
                self.entries.pop(self.ready.pop(0), None)
        elif found:
            known += found
        return found

    def take(self, call: Call, entry: Entry, found: Found) -> None:
        """A capture holds expressions."""
        form = self.forms[form_of(call)]  # type: ignore[index]
        general = General(entry, found, call)
        for sizes, why in found.fixed:
            check_marks(call, sizes, why)
            form.fix(sizes, why)
        pinned = list(general.pinned())
        if pinned:
            name = general.scope.names[general.sizes.index(pinned[0])]
            why = next(
                f"{text} is needed at {site}"
                for text, site in general.scope.relations.items()
                if text.startswith(f"{name} == ")
            )
            check_marks(call, pinned, why)
            form.fix(pinned, why)
        if len(pinned) < len(general.sizes):
            form.captures = [general, *form.captures[: KEPT - 1]]
            self.free, self.open = form.free(), {}

    def leave(self, call: Call, sizes: Sizes, why: str) -> None:
        """No symbolic run follows a capture with these symbols."""
        check_marks(call, sizes, why)
        form = self.forms[form_of(call)]  # type: ignore[index]
        form.why = why
        form.tries += 1
        if form.tries == _TRIES:
            form.fix(sizes, why)

    def again(self, call: Call, name: str, most: int) -> None:
        """Count the sizes of a call that was captured; at the fourth, warn why each of them is."""
        form = self._form(call)
        sizes = (*(t.array.shape for t in call.tensors), *call.numbers.values())
        if form is None or self.dynamic is False or sizes in form.captured:
            return
        form.captured.add(sizes)
        why = form.why or next((g.decided() for g in form.captures), "")
        if len(form.captured) == _OFTEN and why:
            shown = ", ".join(map(_told, sorted(form.changing)))
            warn(
                f"compile: {name}: it is captured anew for each {shown}: {why}; {most} captures "
                "are made at most"
            )

    def told(self) -> list[str]:
        """Which sizes are symbols, and which cannot be, and why."""
        lines = []
        for form in self.forms.values():
            for general in form.captures:
                lines += general.told()
            if form.why is not None and form.fixed:
                shown = ", ".join(map(_told, sorted(form.fixed)))
                lines.append(f"captured for each {shown}: {form.why}")
        return [f"  {line}" for line in lines]
