"""Functions of trees as bodies of loops and branches, and what is said where two of them do not fit
together. Leaves of the trees are what a ``Border`` makes of tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.tensor import Tensor
from ..core.types import dtypes
from ..tree import Definition, Registry
from .staging import Staged, stage


class Border(NamedTuple):
    """What stands for tensors in a program's trees: ``take(leaf)`` gives (its tensor, whether its
    type is weak, that is, gives way to others), ``give`` makes one of these, which are of the class
    ``kind``; ``meet`` is the type that two (type, weak) meet in. ``nothing(shape)`` stands for the
    tangent of an integer, which ``is_nothing`` tells; ``api`` is what the functions are of, in
    messages."""

    registry: Registry
    take: Callable[..., tuple[Tensor, bool]]
    give: Callable[[Tensor, bool], Any]
    meet: Callable[..., Any]
    kind: type = Tensor
    nothing: Callable[[tuple], Any] = lambda shape: None
    is_nothing: Callable[[Any], bool] = lambda value: value is None
    api: str = "func"


def kind_name(kind: np.dtype) -> str:
    """What a type is called: that of random keys by its algorithm (threefry), too."""
    return "key<fry>" if kind == dtypes.key.np else kind.name


class Aval(NamedTuple):
    """Shape and type of a value, and whether that is weak."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool

    def __str__(self) -> str:
        return f"{kind_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"{'~' * self.weak}{self}"

    def matches(self, other: Aval) -> bool:
        """Whether they are one but for weakness."""
        return self[:2] == other[:2]


class Leaves(NamedTuple):
    """Tensors in the form of a tree."""

    tensors: list[Tensor]
    avals: list[Aval]
    form: Definition


def leaves_of(border: Border, value: Any) -> Leaves:
    """The leaves of a tree as tensors."""
    found, form = border.registry.flatten(value)
    pairs = [border.take(x) for x in found]
    return Leaves([t for t, _ in pairs], [aval(t, weak) for t, weak in pairs], form)


def aval(t: Tensor, weak: bool = False) -> Aval:
    """That of a tensor."""
    shape, kind = t.meta()
    return Aval(tuple(shape), kind, weak)


class Function:
    """``fun`` of arguments with these forms and avals, staged: its body, and the form and the
    avals of its result."""

    def __init__(
        self, border: Border, fun: Callable, forms: Sequence[Definition], avals: Sequence[Aval]
    ) -> None:
        self.border = border
        self.form: Any = None
        self.avals: list[Aval] = []

        def of(*tensors: Tensor) -> list:
            given = iter([border.give(t, a.weak) for t, a in zip(tensors, avals, strict=True)])
            result = leaves_of(border, fun(*[form.build(given) for form in forms]))
            self.form, self.avals = result.form, result.avals
            return result.tensors

        self.staged: Staged = stage(of, [(a.shape, a.dtype) for a in avals])

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """The result of these tensors."""
        return built(self.border, self.form, tensors, self.avals)


def built(
    border: Border, form: Definition, tensors: Sequence[Tensor], avals: Sequence[Aval]
) -> Any:
    """A tree over ``tensors``."""
    pairs = zip(tensors, avals, strict=True)
    return form.build(iter([border.give(t, a.weak) for t, a in pairs]))


def strengthened(border: Border, given: Leaves, found: Sequence[Aval]) -> Leaves | None:
    """What is carried with weak types in the types that a body gives for it; None: unchanged."""
    tensors, avals = list(given.tensors), list(given.avals)
    for i, (own, result) in enumerate(zip(given.avals, found, strict=True)):
        if own.weak and not own.matches(result):
            kind = border.meet((own.dtype, True), (result.dtype, result.weak))
            tensors[i] = tensors[i].to(dtypes.of(kind))
            avals[i] = aval(tensors[i])
    return None if avals == given.avals else Leaves(tensors, avals, given.form)


# --- what does not fit ---------------------------------------------------------------------------
class _Leaf:
    pass


def _parts(form: Definition) -> Any:
    return form.build(iter([_Leaf()] * form.num_leaves))


def differences(border: Border, one: Any, two: Any, path: tuple = ()) -> Iterator[tuple[str, ...]]:
    """(path, what is there, what is there in the other, why not) for two trees."""
    a, b = border.registry.apart(one), border.registry.apart(two)
    where = "".join(map(str, path))
    if a is None and b is None:
        return
    if type(one) is not type(two):
        yield where, _kind(one), _kind(two), "their Python types differ"
        return
    assert a is not None and b is not None
    if len(a[0]) != len(b[0]):
        name = type(one).__name__
        if isinstance(one, (list, tuple)):
            sizes = [f"{name} of length {len(x[0])}" for x in (a, b)]
            yield where, *sizes, "the lengths do not match"
            return
        keys = [{repr(getattr(k, "key", k)) for k in border.registry.keys(t, x[2], len(x[0]))}
                for t, x in ((one, a), (two, b))]  # fmt: skip
        diff = " ".join(sorted(keys[0] ^ keys[1]))
        said = [
            f"{type(one)} with {len(x[0])} child{'ren' if len(x[0]) > 1 else ''}" for x in (a, b)
        ]
        yield where, *said, (
            "the numbers of children do not match"
            + (f", with the symmetric difference of key sets: {{{diff}}}" if diff else "")
        )  # fmt: skip
        return
    if a[1] != b[1]:
        said = [f"{type(one)} with pytree metadata {x[1]}" for x in (a, b)]
        yield where, *said, "the pytree node metadata does not match"
        return
    keys_of = border.registry.keys(one, a[2], len(a[0]))
    for key, x, y in zip(keys_of, a[0], b[0], strict=True):
        yield from differences(border, x, y, (*path, key))


def _kind(x: Any) -> str:
    return "pytree leaf" if isinstance(x, _Leaf) else str(type(x))


def _listed(lines: list[str]) -> str:
    if len(lines) == 1:
        return f"{lines[0][0].upper()}{lines[0][1:]}.\n"
    head = "\n".join(f"  * {line};\n" for line in lines[:-1])
    return f"{head}  * {lines[-1]}.\n"


def _mismatch(a: Aval, b: Aval) -> str:
    found = ["the dtypes do not match"] * (a.dtype != b.dtype)
    found += ["the shapes do not match"] * (a.shape != b.shape)
    return f", so {', and '.join(found)}" if found else ""


def check_carry(
    border: Border,
    name: str,
    body: Callable,
    given: Leaves,
    form: Definition,
    found: Sequence[Aval],
) -> None:
    """Raise ``TypeError`` unless a body gives on what it was given."""
    try:
        carry = next(iter(inspect.signature(body).parameters), None)
    except (ValueError, TypeError):
        carry = None

    def component(path: str) -> str:
        if carry:
            return (
                f"the input carry component {carry}{path}" if path else f"the input carry {carry}"
            )
        return f"the input carry at path {path}" if path else "the input carry"

    head = f"{name} function carry input and carry output must have "
    if given.form != form:
        lines = [
            f"{component(where)} is a {a} but the corresponding component of the carry output is "
            f"a {b}, so {why}"
            for where, a, b, why in differences(border, _parts(given.form), _parts(form))
        ]
        if lines:
            raise TypeError(
                f"{head}the same pytree structure, but they differ:\n\n{_listed(lines)}\nRevise "
                "the function so that the carry output has the same pytree structure as the carry "
                "input."
            )
    paths = ["".join(map(str, p)) for p, _ in border.registry.paths(_parts(given.form))]
    lines = [
        f"{component(path)} has type {a} but the corresponding output carry component has type "
        f"{b}{_mismatch(a, b)}"
        for path, a, b in zip(paths, given.avals, found, strict=True) if not a.matches(b)
    ]  # fmt: skip
    if lines:
        raise TypeError(
            f"{head}equal types, but they differ:\n\n{_listed(lines)}\n\nRevise the function so "
            "that all output types match the corresponding input types."
        )


def check_branches(
    border: Border,
    api: str,
    names: tuple[str, str],
    funs: tuple[Any, Any],
    one: Function,
    two: Function,
) -> None:
    """Raise ``TypeError`` unless two branches give values of the same types in the same form."""
    first, second = names
    about = "".join(f"{n} is {_source(f)}\n" for n, f in zip(names, funs, strict=True))
    if one.form != two.form:
        lines = []
        for where, a, b, why in differences(border, _parts(one.form), _parts(two.form)):
            at = f" at path {where}" if where else ""
            lines.append(f"{first} output{at} is a {a} but {second} output{at} is a {b}, so {why}")
        if lines:
            raise TypeError(
                f"{api} branch outputs must have the same pytree structure, but they differ:\n\n"
                f"{about}\n{_listed(lines)}\nRevise {first} and/or {second} so that they have the "
                "same pytree structure."
            )
    paths = ["".join(map(str, p)) for p, _ in border.registry.paths(_parts(one.form))]
    lines = [
        f"the output of {first}{f' at path {p}' if p else ''} has type {a} but the corresponding "
        f"output of {second} has type {b}{_mismatch(a, b)}"
        for p, a, b in zip(paths, one.avals, two.avals, strict=True) if not a.matches(b)
    ]  # fmt: skip
    if lines:
        raise TypeError(
            f"{api} branches must have equal output types but they differ.\n\n{about}\n"
            f"{_listed(lines)}\nRevise {first} and/or {second} so that all output types match."
        )


def _source(fun: Any) -> str:
    code = getattr(inspect.unwrap(getattr(fun, "func", fun)), "__code__", None)
    if code is None:
        return str(fun)
    return f"{fun.__name__} at {code.co_filename}:{code.co_firstlineno}"
