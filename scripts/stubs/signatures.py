"""Signatures of public functions and methods as lines of a stub.

What a function says of itself is taken: its parameters, their annotations, their defaults. What
wrappers add (``out``, numpy's names) is added. A parameter ``*size: Dims`` becomes two overloads,
sizes one by one and sizes as a sequence. In-place methods have the parameters of the function that
they are named after. What no single signature can say stands in ``overloads.txt``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from disttrain.core import annotations as shared
from disttrain.core.gate import Primitive

from .names import Names

_KEYWORD, _POSITIONAL = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
_STAR, _STARS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_PLACED = inspect.Parameter.POSITIONAL_ONLY
_WRAPPERS = {"fills.<locals>.run": "out", "makes.<locals>.run": "out",
             "numpy_names.<locals>.run": "numpy"}  # fmt: skip
_IN_PLACE = ("inplace.<locals>.run", "_reshaped.<locals>.run")


@dataclass(frozen=True)
class Signature:
    """Parameters with annotations as a stub spells them, and the type of the result."""

    parameters: tuple[inspect.Parameter, ...]
    returns: str

    def without(self, *names: str) -> Signature:
        return replace(self, parameters=tuple(p for p in self.parameters if p.name not in names))

    def as_method(self) -> Signature:
        """With the first parameter as ``self``."""
        first, *rest = self.parameters
        kind = _PLACED if rest and rest[0].kind is _PLACED else _POSITIONAL
        own = first.replace(name="self", annotation=first.empty, default=first.empty, kind=kind)
        return replace(self, parameters=(own, *rest))

    def text(self, name: str) -> str:
        return f"def {name}({_listed(self.parameters)}) -> {self.returns}: ..."


def _listed(parameters: tuple[inspect.Parameter, ...]) -> str:
    """As ``inspect`` lists them, with annotations and literal defaults as text."""
    out: list[str] = []
    star = False
    for i, p in enumerate(parameters):
        if p.kind is _KEYWORD and not star:
            out.append("*")
        star = star or p.kind in (_KEYWORD, _STAR)
        note = "" if p.annotation is p.empty else f": {p.annotation}"
        gap = " = " if note else "="
        default = "" if p.default is p.empty else gap + _literal(p.default)
        stars = "*" if p.kind is _STAR else "**" if p.kind is _STARS else ""
        out.append(stars + p.name + note + default)
        last = i + 1 == len(parameters) or parameters[i + 1].kind is not _PLACED
        if p.kind is _PLACED and last:
            out.append("/")
    return ", ".join(out)


def _literal(value: Any) -> str:
    plain = value is None or type(value) in (bool, int, str) or type(value) is float
    return repr(value) if plain and repr(value) not in ("inf", "nan", "-inf") else "..."


def peeled(fn: Any) -> tuple[Any, set[str]]:
    """``fn`` without its wrappers, and what they add."""
    added: set[str] = set()
    while hasattr(fn, "__wrapped__"):
        code = getattr(fn, "__code__", None)
        added.add(_WRAPPERS.get(code.co_qualname, "") if code else "")
        fn = fn.__wrapped__
    return fn, added - {""}


def is_in_place(fn: Any) -> bool:
    """Whether ``fn`` writes what the function of its name, without the underscore, computes."""
    return getattr(getattr(fn, "__code__", None), "co_qualname", None) in _IN_PLACE


def signature_of(fn: Callable, names: Names) -> Signature:
    """What ``fn`` takes and gives."""
    inner, added = peeled(fn)
    made = _of_primitive(inner, names) if isinstance(inner, Primitive) else _own(inner, names)
    if "numpy" in added:
        made = _with(made, names, axis="Dims | None", keepdims="bool")
        made = (
            made if any(p.name == "keepdim" for p in made.parameters) else made.without("keepdims")
        )
    if "out" in added and not any(p.name == "out" for p in made.parameters):
        several = made.returns.startswith(("tuple", "builtins.tuple", "ValuesIndices"))
        made = _with(made, names, out="Sequence[Tensor] | None" if several else "Tensor | None")
    return made


def _own(fn: Callable, names: Names) -> Signature:
    found, scope = inspect.signature(fn, follow_wrapped=False), fn.__globals__
    spelled = tuple(
        p.replace(annotation=_spelled(p.annotation, names, scope, f"{fn.__qualname__}: {p.name}"))
        for p in found.parameters.values()
    )
    return Signature(spelled, _spelled(found.return_annotation, names, scope, fn.__qualname__))


def _spelled(annotation: Any, names: Names, scope: dict, where: str) -> Any:
    if annotation is inspect.Parameter.empty:
        if where.endswith(": self"):
            return annotation
        raise TypeError(f"stubs: {where} has no annotation; give it one, or write overloads")
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "None")
    return names.spell(ast.parse(text, mode="eval").body, scope)


def _with(made: Signature, names: Names, **more: str) -> Signature:
    """With keyword parameters at the end; their default is None or False."""
    rest = [p for p in made.parameters if p.kind is not _STARS]
    for name, kind in more.items():
        note = names.spell(ast.parse(kind, mode="eval").body, vars(shared))
        default = None if "None" in kind else False
        rest.append(inspect.Parameter(name, _KEYWORD, annotation=note, default=default))
    return replace(made, parameters=(*rest, *(p for p in made.parameters if p.kind is _STARS)))


def _of_primitive(prim: Primitive, names: Names) -> Signature:
    """A primitive takes its arguments by position, the first one a tensor."""
    names.found["disttrain.core.tensor"].add("Tensor")
    kinds = ["Tensor"] + [names.name("Operand", {}) for _ in prim.args[1:]]
    parameters = [
        inspect.Parameter(a, _PLACED, annotation=k) for a, k in zip(prim.args, kinds, strict=True)
    ]
    return Signature(tuple(parameters), "Tensor")


def forms(made: Signature, names: Names) -> Iterator[Signature]:
    """``made``, or its two forms where sizes are given one by one or as a sequence."""
    star = next((p for p in made.parameters if p.kind is _STAR and p.annotation == "Dims"), None)
    if star is None:
        yield made
        return
    one, many = star.replace(annotation=names.builtin("int")), names.name("Sequence", vars(shared))
    several = star.replace(kind=_PLACED, annotation=f"{many}[{one.annotation}]")
    for wanted in (one, several):
        found = tuple(wanted if p is star else p for p in made.parameters if p.name != "size")
        if wanted is several:
            found = _placed_before(found, star.name)
        yield replace(made, parameters=found)
    if any(p.name == "size" for p in made.parameters):
        named = inspect.Parameter("size", _KEYWORD, annotation=several.annotation)
        rest = tuple(named if p.name == "size" else p for p in made.parameters if p is not star)
        yield replace(made, parameters=rest)


def _placed_before(parameters: tuple, name: str) -> tuple:
    """What stands before a positional-only parameter is one, too."""
    at = next(i for i, p in enumerate(parameters) if p.name == name)
    return tuple(p.replace(kind=_PLACED) if i < at else p for i, p in enumerate(parameters))
