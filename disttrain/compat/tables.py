"""Rows of tables as functions: a framework's parameters as a text, and how the arguments of a call
go to the parameters of what computes.

A text has one word for each parameter: its name, with marks after it, and ``=`` with its default.
``_name`` is taken and not passed on. What the marks mean, the face says that has the table::

    Parameters("split", "value! parts axis=0 _num=None")

A table is a text, too (``rows``).
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_WORD = re.compile(r"(_?)(\w+?)([!~*@]?)(?:=(.*))?$")


class Parameters:
    """The parameters of the function ``word``. ``marks``: name -> mark; ``passed``: names in the
    order in which what computes has them."""

    def __init__(self, word: str, text: str, *more: str) -> None:
        self.word, self.marks, self.passed = word, {}, []
        parts: list[inspect.Parameter] = []
        self.defaults: dict[str, Any] = {}
        for part in [*text.split(), *more]:
            found = _WORD.match(part)
            assert found is not None, part
            unused, name, mark, default = found.groups()
            self.marks[name] = mark
            if not unused:
                self.passed.append(name)
            if default is not None:
                self.defaults[name] = ast.literal_eval(default)
            parts.append(inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=self.defaults.get(name, inspect.Parameter.empty),
            ))  # fmt: skip
        self.signature = inspect.Signature(parts)
        self.names = list(self.marks)
        self._least = len(self.names) - len(self.defaults)
        self._ends = [self.defaults.get(name) for name in self.names]

    def marked(self, mark: str) -> list[str]:
        """The parameters that have the mark."""
        return [name for name, m in self.marks.items() if m == mark]

    def values(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """The arguments of a call in the order of the parameters, with the defaults."""
        count = len(args)
        if not kwargs and self._least <= count <= len(self.names):
            return [*args, *self._ends[count:]]
        found = self.bound(args, kwargs)
        return [found[name] for name in self.names]

    def bound(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, with the defaults."""
        found = self.defaults | dict(zip(self.names, args, strict=False)) | kwargs
        wrong = len(args) > len(self.names) or found.keys() != self.marks.keys()
        if wrong or kwargs.keys() & set(self.names[: len(args)]):
            self.signature.bind(*args, **kwargs)  # which raises
        return found


def passing(word: str, text: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` under the name ``word``, with the parameters of ``text``."""
    row = Parameters(word, text)
    order = [row.names.index(n) for n in row.passed]

    def function(*args: Any, **kwargs: Any) -> Any:
        values = row.values(args, kwargs)
        return fn(*[values[i] for i in order])

    function.__signature__ = row.signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = word
    function.__doc__ = fn.__doc__
    return function


class Row(NamedTuple):
    """A function of a table: its name, its kind, what computes it, a mark and its parameters."""

    word: str
    kind: str
    fn: Any
    mark: str
    text: str


def rows(text: str, places: Sequence[Any], special: Mapping[str, Any] | None = None
         ) -> Iterator[Row]:  # fmt: skip
    """The rows of a table: ``mark name ... | parameters;``, each of functions that have the same
    parameters. A name is ``word[:Kind][=native]``: the kind is the words of ``word`` in capitals
    unless it is said; what computes is what ``special`` has for ``word``, or else what the first of
    ``places`` that has it calls ``native``."""
    for entry in filter(str.strip, text.split(";")):
        heads, _, parameters = entry.partition("|")
        mark, *names = heads.split()
        for name in names:
            head, _, native = name.partition("=")
            word, _, kind = head.partition(":")
            kind = kind or "".join(w[:1].upper() + w[1:] for w in word.split("_"))
            fn = (special or {}).get(word)
            if fn is None:
                fn = getattr(next(p for p in places if hasattr(p, native or word)), native or word)
            yield Row(word, kind, fn, mark, " ".join(parameters.split()))


def functions(
    text: str, places: Sequence[Any], kinds: Mapping[str, Any], op: Callable, one: Callable,
    outs: Mapping[str, Callable], special: Mapping[str, Any],
) -> dict[str, Callable]:  # fmt: skip
    """The functions of a table's rows, whose marks are types by ``kinds``: of ``op``, or, without
    parameters of their own, of ``one``. ``outs``: what becomes of their results."""
    return {r.word: op(r.word, r.kind, r.fn, r.text, kinds[r.mark], outs.get(r.word)) if r.text
            else one(r.word, r.kind, r.fn, kinds[r.mark])
            for r in rows(text, places, special)}  # fmt: skip
