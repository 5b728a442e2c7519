"""Functions of trees as programs: staged once for each kind of call, and run from then on.

A kind of call: the form of its arguments, their shapes and types (weak or not), and the static
ones. The program runs on arrays through the compiler's passes, on other transforms' values through
the gate, where it is one instruction (``ProgramCall``) of a program that is being staged itself.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...context import thread
from ...core.bodies import Body, BodyCall, own
from ...core.gate import Tracer
from ...core.tensor import Tensor
from ...core.tensor import wrap as tensor_of
from ..named import bound, tracked
from ..staging import Stage, stage
from ..structured_bodies import Aval, Border, aval
from .listing import Listing, Style, listed
from .statics import Statics

_MOST = 4096  # programs of one function that are kept
_WORTH = 32  # turns that a call counts for: the second is shortened by the compiler
DISABLED = "func.trees.disabled"  # the rank's slot: whether programs run as the functions they are
_PROGRAMS = "func.trees.programs"  # the rank's slot: what was staged, by function


class About(NamedTuple):
    """What is being staged: the function, by which transform, and the names of its arguments'
    leaves."""

    fun: str
    transform: str
    names: Callable[[], list[str]]

    def origin(self, level: Any, value: Any) -> str:
        """What is said where numbers of ``value`` are asked for."""
        names = [n for i, n in enumerate(self.names()) if i in level.inputs_of(value)]
        several = "s" if len(names) > 1 else ""
        why = f"depends on the value{several} of the argument{several} {' and '.join(names)}"
        return (
            f"The error occurred while tracing the function {self.fun} for {self.transform}. This "
            f"concrete value was not available in Python because it {why}."
        )


class Program:
    """A function staged for one kind of call, and the form of its result."""

    def __init__(self, of: Programs, about: About, fun: Callable, avals: Sequence[Aval]) -> None:
        border, self.laid = of.border, of.laid
        self.border, self.name, self.avals = border, _title(fun), list(avals)
        no_result = (
            f"function {about.fun} traced for {about.transform} returned a value of type {{kind}}, "
            f"which is not a valid {border.api.upper()} type"
        )

        def flat(*tensors: Tensor) -> list[Tensor]:
            given = [border.give(t, a.weak) for t, a in zip(tensors, avals, strict=True)]
            leaves, self.form = border.registry.flatten(fun(given))
            outs = [border.take(x, no_result) for x in leaves]
            self.weak = [weak for _, weak in outs]
            return [t for t, _ in outs]

        self.staged = stage(flat, [(a.shape, a.dtype) for a in avals], about=about).program
        consts = self.staged.consts
        self.keeps = not any(isinstance(t, Tracer) or t.requires_grad for t in consts)
        self.call = ProgramCall(self.name, self.staged.body)

    @property
    def out_avals(self) -> list[Aval]:
        """Shapes and types of the results."""
        pairs = zip(self.staged.results, self.weak, strict=True)
        return [Aval(tuple(shape), kind, weak) for (shape, kind), weak in pairs]

    def listing(self, style: Style) -> tuple[Listing, list]:
        """The program as data, and its constants."""
        staged, weak = self.staged, [a.weak for a in self.avals]
        told, consts = listed(style, staged.body, staged.consts, weak, self.weak)
        return told, [self.border.give(c, False) for c in consts]

    def __call__(self, values: Sequence[Tensor]) -> Any:
        """The result for these values."""
        return self.result(self._run([*self.staged.consts, *values]))

    def result(self, outs: Sequence[Tensor]) -> Any:
        """The result with these values."""
        give = self.border.give
        return self.form.build(iter([give(o, w) for o, w in zip(outs, self.weak, strict=True)]))

    def _run(self, given: list[Tensor]) -> Sequence[Tensor]:
        body = self.staged.body
        if not thread.stack and not _followed(given):
            arrays = [t.array for t in given]
            outs = [tensor_of(own(r, arrays, body)) for r in body.run(_WORTH)(arrays)]
            return self.laid(body, given, outs)
        level = _stage_of(given)
        if level is not None and not any(t.graph_node() is not None for t in given):
            return level.process(self.call, tuple(given), {})
        return body(*given)


def _followed(values: Sequence[Tensor]) -> bool:
    return thread.grad_enabled and any(t.requires_grad for t in values)


def _title(fun: Any) -> str:
    return getattr(fun, "__name__", type(fun).__name__)


def _stage_of(values: Sequence[Tensor]) -> Any:
    """The level that stages, of which the highest of ``values`` are; where they are of none, the
    one that the calling code runs in."""
    levels = [t.interp for t in values if isinstance(t, Tracer)]
    top = max(levels, key=lambda x: x.level) if levels else (thread.stack or [None])[-1]
    return top if isinstance(top, Stage) and not top.over else None


class ProgramCall(BodyCall):
    """A staged function as one instruction; on Tensors what it does is done anew."""

    def __init__(self, name: str, body: Body) -> None:
        super().__init__("jit", body)
        self.title = name

    def __call__(self, *args: Any, **params: Any) -> Any:
        if any(isinstance(a, Tensor) for a in args):
            level = _stage_of(args)
            if level is not None and not any(a.graph_node() is not None for a in args):
                return level.process(self, args, params)
            return tuple(self.body(*args))
        return self.compute(args, params)


# --- calls ----------------------------------------------------------------------------------------
class Call(NamedTuple):
    """A call: its values, and what tells it from calls of other kinds."""

    key: tuple
    values: list[Any]
    avals: tuple[Aval, ...]
    form: Any
    fixed: tuple


class Programs:
    """A function, and its programs by kinds of calls. Who derives from it says what its ``border``
    is, in which ``style`` programs are told, and what of the ``world`` they depend on."""

    border: Border
    style = Style()

    def __init__(self, fun: Callable, static_argnums: Any = None, static_argnames: Any = None):
        functools.update_wrapper(self, fun, updated=())
        self.fun, self.statics = fun, Statics(fun, static_argnums, static_argnames)
        self.own: dict = {}

    def __get__(self, instance: object, owner: object = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @staticmethod
    def laid(body: Body, given: Sequence[Tensor], outs: list[Tensor]) -> Sequence[Tensor]:
        """What is made of the results of a run."""
        return outs

    @staticmethod
    def world() -> Any:
        """What programs depend on besides their arguments."""
        return None

    @property
    def programs(self) -> dict[tuple, Program]:
        """What was staged, by kind of call: common to all objects of one function."""
        slots = thread.rank.slots
        known = slots.get(_PROGRAMS)
        if known is None:
            known = slots[_PROGRAMS] = weakref.WeakKeyDictionary()
        try:
            return known.setdefault(self.fun, {})
        except TypeError:  # (there is no weak reference to it)
            return self.own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if thread.rank.slots.get(DISABLED) or tracked():
            return self.fun(*args, **kwargs)
        call, take = self.kind(args, kwargs), self.border.take
        return self.run(call, [take(v)[0] for v in call.values])

    def run(self, call: Call, values: list[Tensor]) -> Any:
        """The result of a call."""
        return self.staged(call)(values)

    def kind(self, args: tuple, kwargs: dict) -> Call:
        """What kind of call it is."""
        dynamic, others, fixed = self.statics.split(args, kwargs)
        values, form = self.border.registry.flatten((dynamic, others))
        try:
            avals = tuple([self.aval(v) for v in values])
        except TypeError:
            raise self._refused(values, args, kwargs, form) from None
        key = (form, avals, fixed, self.world(), bound())
        return Call(key, values, avals, form, fixed)

    def aval(self, value: Any) -> Aval:
        """Shape and type of an argument."""
        return aval(*self.border.take(value))

    def _refused(self, values: list, args: tuple, kwargs: dict, form: Any) -> TypeError:
        i = next(i for i, value in enumerate(values) if not self._known(value))
        return TypeError(
            f"Error interpreting argument to {self.fun} as an abstract array. The problematic "
            f"value is of type {type(values[i])} and was passed to the function at path "
            f"{self.argument(form, i, args, kwargs)}.\nThis typically means that a jit-wrapped "
            "function was called with a non-array argument, and this argument was not marked as "
            "static using the static_argnums or static_argnames parameters of "
            f"{self.border.api}.jit."
        )

    def _known(self, value: Any) -> bool:
        try:
            self.aval(value)
        except TypeError:
            return False
        return True

    def staged(self, call: Call, transform: str = "jit") -> Program:
        """The program of calls of that kind."""
        programs = self.programs
        found = programs.get(call.key)
        if found is None:
            found = Program(self, self.about(call, transform), self.of(call), call.avals)
            if found.keeps:
                while len(programs) >= _MOST:
                    programs.pop(next(iter(programs)), None)
                programs[call.key] = found
        return found

    def of(self, call: Call) -> Callable:
        """The function of a call's values alone."""
        fun, form, fixed = self.fun, call.form, call.fixed

        def of(values: list) -> Any:
            args, kwargs = form.build(iter(values))
            whole = list(args)
            for k, _, value in fixed:
                if isinstance(k, int):
                    whole[k] = value
                else:
                    kwargs[k] = value
            return fun(*whole, **kwargs)

        of.__name__ = _title(fun)
        return of

    def about(self, call: Call, transform: str) -> About:
        """What is staged, in messages."""
        code = getattr(inspect.unwrap(self.fun), "__code__", None)
        name = getattr(self.fun, "__name__", repr(self.fun))
        place = f" at {code.co_filename}:{code.co_firstlineno}" if code else ""
        return About(f"{name}{place}", transform, functools.partial(self._names, call.form))

    def _names(self, form: Any) -> list[str]:
        args, kwargs = form.unflatten(range(form.num_leaves))
        return [self.argument(form, i, args, kwargs) for i in range(form.num_leaves)]

    def argument(self, form: Any, i: int, args: tuple, kwargs: dict) -> str:
        """The name of a leaf of the arguments."""
        paths = list(self.border.registry.paths(form.unflatten(range(form.num_leaves))))
        path = paths[i][0]
        signature: Any = self.statics.signature
        try:
            known = list(signature.bind(*args, **kwargs).arguments)
            name = known[path[1].idx] if hasattr(path[1], "idx") else path[1].key
        except (TypeError, AttributeError, IndexError):
            return f"args{''.join(map(str, path[1:]))}"
        return f"{name}{''.join(map(str, path[2:]))}"

    def clear_cache(self) -> None:
        """Forget what was staged."""
        self.programs.clear()

    def _cache_size(self) -> int:
        return len(self.programs)


def clear_caches() -> None:
    """Forget all that was staged."""
    thread.rank.slots.pop(_PROGRAMS, None)


class Executable:
    """A program that takes calls of its kind alone."""

    def __init__(self, programs: Programs, call: Call, program: Program) -> None:
        self._programs, self._call, self._program = programs, call, program

    def as_text(self, dialect: str | None = None, **_: Any) -> str:
        """The program as text."""
        return str(self._program.listing(self._programs.style)[0])

    def cost_analysis(self) -> dict:
        """Nothing is known of costs."""
        return {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        programs, call = self._programs, self._call
        whole = list(args)  # (what was static is not given again)
        for i in sorted(k for k, *_ in call.fixed if isinstance(k, int)):
            whole.insert(i, None)
        values, form = programs.border.registry.flatten((tuple(whole), kwargs))
        if form != call.form:
            raise TypeError(
                "Function compiled with input pytree does not match the input pytree it was called "
                f"with: {form} given, {call.form} needed"
            )
        taken = [programs.border.take(v) for v in values]
        given = [aval(*pair) for pair in taken]
        lines = [
            f"Argument '{programs.argument(form, i, tuple(whole), kwargs)}' compiled with {a} and "
            f"called with {g}"
            for i, (a, g) in enumerate(zip(call.avals, given, strict=True))
            if not a.matches(g)
        ]
        if lines:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. "
                "Perhaps you are calling the compiled executable with a different enable_x64 mode "
                "than when it was AOT compiled? The mismatches are:\n" + "\n".join(lines)
            )
        return self._program([t for t, _ in taken])


__all__ = ["DISABLED", "Call", "Executable", "Program", "Programs", "clear_caches"]
