"""Texts of tables as parameters of functions, and how the arguments of a call go to them.

A text has one word for each parameter: its name, with marks after it, and ``=`` with its default.
``_name`` is taken and not passed on. What the marks mean, who has the table says::

    Parameters("split", "value! parts axis=0 _num=None")
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

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
