"""Functions of tensors as operations: done now, or written down where a function is traced.

    table = Operations().table
    names = table({"split": ("Split", pieces.split, "value! parts axis=0 _num=None")})

A row has the kind of the operation, the function of Tensors that computes it, and its parameters as
a text (``disttrain.signatures``) with marks: ``x!`` a tensor, ``x*`` a list of tensors of one type,
``x~`` those that agree in type, ``x@`` a type. The others are as they come, but tensors among them
become Python's numbers where they have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .. import tree
from ..core.grad_mode import enable_grad
from ..core.tensor import Tensor
from ..ops import api as ops
from ..signatures import Parameters
from .graph import CURRENT, Graph, Symbol

_NUMBERS = {int, float, bool, str, type(None)}


def named(function: Callable, word: str) -> Callable:
    """``function`` under another name."""
    function.__name__ = function.__qualname__ = word
    return function


class Operations:
    """What makes them. A program with tensors of its own says what they are, and in which words
    errors are told."""

    # What is raised by what computes, and stands for wrong arguments.
    failures: ClassVar[tuple] = Graph.failures

    def __init__(self) -> None:
        self.pairs: set[str] = set()  # kinds of operations of two operands
        # Kinds whose result depends on the operands alone: those of tables, and what is added.
        self.pure: set[str] = set()
        # kind -> name of a type -> what computes it for that type
        self.apart: dict[str, dict[str, Callable]] = {}

    # --- what a subclass may say otherwise ------------------------------------------------------
    def is_tensor(self, value: Any) -> bool:
        """Whether a value is a tensor as it is."""
        return isinstance(value, (Tensor, Symbol))

    def tensor(self, value: Any, hint: Any = None) -> Any:
        """``value`` as a tensor: of the type ``hint``, where it is none yet and can be."""
        if isinstance(value, (Tensor, Symbol)):
            return value
        return ops.as_tensor(value) if hint is None else ops.as_tensor(value).to(hint)

    def plain(self, t: Any) -> Any:
        """The Tensor of a tensor with numbers."""
        if isinstance(t, Symbol):
            raise t.graph.out_of_scope(t)
        return t

    def inner(self, value: Any, hint: Any = None) -> Any:
        """The Tensor of what a program gives."""
        return self.plain(self.tensor(value, hint=hint))

    def cover(self, value: Any) -> Any:
        """A Tensor as the program sees it."""
        return value

    def shown(self, value: Any) -> Any:
        """A result as the program sees it."""
        return self.cover(value)

    def recording(self) -> Any:
        """A context in which what is computed is recorded for gradients."""
        return enable_grad()

    def type_name(self, t: Any) -> str:
        """What the type of a tensor is called."""
        return str(t.dtype).rpartition(".")[2]

    def element_type(self, kind: Any) -> Any:
        """disttrain's type of what a program gives as one."""
        return kind

    def failed(self, kind: str, inputs: list, error: BaseException) -> BaseException:
        """What is raised where an operation has raised ``error``."""
        return error

    def misfit(self, kind: str, place: int, t: Any, wanted: Any) -> BaseException:
        """What is raised where an operand is not of the type ``wanted``."""
        return TypeError(f"{kind}: operand {place} is of {t.dtype}, the first one of {wanted}")

    def missing(self, kind: str, t: Any, types: frozenset) -> BaseException:
        """What is raised where an operation is not there for the type of ``t``."""
        return TypeError(f"{kind}: {t.dtype} given; it takes {', '.join(sorted(types))}")

    # --- running --------------------------------------------------------------------------------
    def execute(
        self, kind: str, call: Callable, inputs: list, name: str | None = None,
        arguments: tuple = (),
    ) -> Any:  # fmt: skip
        """Run ``call`` on the Tensors of ``inputs``, or write it down."""
        graph = CURRENT.get()
        values = [*map(self.plain, inputs)] if graph is None else inputs
        try:
            if graph is not None:
                role = "pure" if kind in self.pure else ""
                return graph.record(kind, call, inputs, name, arguments=arguments, role=role)
            found = call(*values)
        except self.failures as error:
            told = self.failed(kind, inputs, error)
            raise told from (None if told is error else error)
        return self.shown(found) if isinstance(found, Tensor) else tree.map(self.shown, found)

    def alike(self, kind: str, values: list, first: bool = False) -> list:
        """``values`` as tensors of one type: that of the first tensor among them (or, with
        ``first``, of the first value); numbers take it, where they can."""
        tensor = self.tensor
        known = None if first else next(filter(self.is_tensor, values), None)
        wanted = tensor(values[0] if known is None else known).dtype
        found = [tensor(value, hint=wanted) for value in values]
        for i, t in enumerate(found):
            if t.dtype is not wanted:
                raise self.misfit(kind, i, t, wanted)
        return found

    def allow(self, kind: str, t: Any, types: frozenset | None) -> None:
        """Raise where an operation is not there for the type of ``t``."""
        if types is not None and self.type_name(t) not in types:
            raise self.missing(kind, t, types)

    # --- making ---------------------------------------------------------------------------------
    def unary(self, word: str, kind: str, fn: Callable, types: frozenset | None = None) -> Callable:
        """``word(x, name=None)`` of one tensor."""
        self.pure.add(kind)
        tensor, allow, execute = self.tensor, self.allow, self.execute

        def function(x: Any, name: str | None = None) -> Any:
            t = tensor(x)
            allow(kind, t, types)
            return execute(kind, fn, [t], name)

        return named(function, word)

    def binary(
        self, word: str, kind: str, fn: Callable, types: frozenset | None = None,
        first: bool = False,
    ) -> Callable:  # fmt: skip
        """``word(x, y, name=None)`` of two tensors of one type."""
        self.pairs.add(kind)
        self.pure.add(kind)
        apart, execute, alike = self.apart, self.execute, self.alike

        def function(x: Any, y: Any, name: str | None = None) -> Any:
            pair = alike(kind, [x, y], first)
            if types is not None or kind in apart:
                type_name = self.type_name(pair[0])
                if type_name in apart.get(kind, ()):
                    return execute(kind, apart[kind][type_name], pair, name, ("x", "y"))
                if types is not None and type_name not in types:
                    raise self.missing(kind, pair[0], types)
            return execute(kind, fn, pair, name, ("x", "y"))

        return named(function, word)

    def table(self, rows: dict[str, tuple]) -> dict[str, Callable]:
        """Names with the functions of their rows: (kind, function, parameters, what ``op``
        takes)."""
        return {word: self.op(word, *row) for word, row in rows.items()}

    def op(
        self, word: str, kind: str, fn: Callable, text: str, types: frozenset | None = None,
        out: Callable | None = None,
    ) -> Callable:  # fmt: skip
        """``word`` of a function of Tensors, to which arguments go by position. ``types``: what the
        first tensor may be of. ``out``: of what it gives."""
        self.pure.add(kind)
        row = Parameters(word, text, *(() if "_name=" in text else ("_name=None",)))
        tensors = [n for n, m in row.marks.items() if m in ("!", "*")]
        alike, kinds, passed = row.marked("~"), row.marked("@"), row.passed
        others, at_name = [row.names.index(n) for n in passed[1:]], row.names.index("name")
        single = passed[:1] == row.marked("!") == tensors and not alike + kinds
        alone = row.names.index(passed[0]) if single else None

        def function(*args: Any, **kwargs: Any) -> Any:
            values = row.values(args, kwargs)
            if alone is not None:  # one tensor, and often numbers beside it
                rest = [values[i] for i in others]
                if _NUMBERS.issuperset([v.__class__ for v in rest]):
                    t = self.tensor(values[alone])
                    self.allow(kind, t, types)
                    found = self.execute(kind, lambda v: fn(v, *rest), [t], values[at_name])
                    return found if out is None else out(found)
            words = dict(zip(row.names, values, strict=True))
            parts = self._parts(kind, words, tensors, alike, row.marks)
            if types is not None:
                self.allow(kind, tree.leaves(parts)[0], types)
            for n in kinds:
                words[n] = None if words[n] is None else self.element_type(words[n])
            static = {n: self.numbers(words[n]) for n in passed if n not in parts}
            late = {k: tree.map(self.tensor, v) for k, v in static.items() if _has_symbol(v)}
            held, rebuild = tree.flatten({**parts, **late})

            def call(*values: Any) -> Any:
                found = rebuild(list(values))
                known = {**static, **found, **{k: _numbers(found[k]) for k in late}}
                return fn(*[known[n] for n in passed])

            result = self.execute(kind, call, held, words["name"])
            return result if out is None else out(result)

        function.__signature__ = row.signature  # type: ignore[attr-defined]
        function.__doc__ = fn.__doc__
        return named(function, word)

    def _parts(self, kind: str, words: dict, tensors: list, alike: list, marks: dict) -> dict:
        parts: dict[str, Any] = {}
        if alike:
            present = [w for w in alike if words[w] is not None]
            found = self.alike(kind, [words[w] for w in present]) if present else []
            parts |= dict(zip(present, found, strict=True))
        for word in tensors:
            value = words[word]
            if marks[word] == "*":
                row = list(value) if isinstance(value, (list, tuple)) else [self.tensor(value)]
                parts[word] = self.alike(kind, row) if row else []
            elif value is not None:
                parts[word] = self.tensor(value)
        return parts

    def numbers(self, value: Any) -> Any:
        """A parameter that is no tensor: numbers of tensors, where they can be read."""
        if isinstance(value, (list, tuple)):
            named_tuple = hasattr(value, "_fields")
            return value if named_tuple else type(value)(self.numbers(v) for v in value)
        if isinstance(value, Symbol) or not self.is_tensor(value):
            return value
        t = self.tensor(value)
        return t if isinstance(t, Symbol) else _numbers(self.plain(t))


def _has_symbol(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_symbol, value))
    return isinstance(value, Symbol)


def _numbers(value: Any) -> Any:
    """The Python numbers of Tensors, in nested lists."""
    if isinstance(value, (list, tuple)):
        return [_numbers(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.detach().tolist() if isinstance(value, Tensor) else value
