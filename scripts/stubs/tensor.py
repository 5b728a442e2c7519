"""The stub of what is attached to Tensor: its operators, methods and properties."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import disttrain.core.tensor
from disttrain.core.tensor import Tensor

from . import written
from .names import Names
from .signatures import Signature, forms, is_in_place, peeled, signature_of

_AUTOMATIC = (
    *("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate_func__"),
    *("__annotations_cache__", "__firstlineno__", "__static_attributes__"),
)
_INHERITED = ("__hash__",)  # Tensor's own, which a class with __eq__ must repeat
_WITHOUT = ("out", "axis", "keepdims")  # that in-place methods do not take


def stub() -> str:
    """The text of ``core/tensor_methods.pyi``."""
    names = Names(vars(Tensor))
    body = [line for name in attached() for line in _lines(name, names)]
    head = ['"""What ops/methods.py gives to Tensor. Made by scripts/stubs; not to be edited."""']
    found = "\n".join(f"    {line}" for text in body for line in text.split("\n"))
    return "\n".join([*head, "", *names.lines(), "", "class TensorMethods:", found, ""])


def attached() -> list[str]:
    """Names that Tensor has without standing in its class statement."""
    source = ast.parse(inspect.getsource(disttrain.core.tensor))
    (kind,) = (n for n in source.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    own = {n.name for n in kind.body if isinstance(n, ast.FunctionDef)}
    given = [n for n in kind.body if isinstance(n, (ast.Assign, ast.AnnAssign))]
    targets = [t for n in given for t in (n.targets if isinstance(n, ast.Assign) else [n.target])]
    own |= {t.id for t in targets if isinstance(t, ast.Name)}
    return sorted({n for n in vars(Tensor) if n not in own and n not in _AUTOMATIC} | {*_INHERITED})


def _lines(name: str, names: Names) -> list[str]:
    found = written.methods(name, names)
    if found:
        return found
    made = [s.text(name) for s in _signatures(name, names)]
    if len(made) == 1:
        return made
    names.found["typing"].add("overload")
    return [f"@overload\n{line}" for line in made]


def _signatures(name: str, names: Names) -> Iterator[Signature]:
    getattr(Tensor, name)  # what is loaded when it is asked for
    fn = inspect.getattr_static(Tensor, name)
    if isinstance(fn, staticmethod):
        raise TypeError(f"stubs: {name} is static; write it in overloads.txt")
    if not is_in_place(fn):
        made = signature_of(fn, names)
        for form in forms(made.without("out") if name[:2] == "__" else made, names):
            yield _returning_self(name, form, names).as_method()
        return
    twin = inspect.getattr_static(Tensor, _twin(name))
    for form in forms(signature_of(twin, names), names):
        yield _returning_self(name, form.without(*_WITHOUT), names).as_method()


def _twin(name: str) -> str:
    """``add`` for ``add_`` and for ``__iadd__``."""
    if not name.startswith("__i"):
        return name.rstrip("_")
    fn = inspect.getattr_static(Tensor, name)
    return str(peeled(fn)[0].__name__).rstrip("_")


def _returning_self(name: str, made: Signature, names: Names) -> Signature:
    """In-place methods and operators give the tensor itself, of whatever class it is."""
    writes = name[:3] == "__i" if name[:2] == "__" else name.endswith("_")
    if made.returns != "Tensor" or not writes or name in ("__invert__", "__iter__"):
        return made
    names.found["typing"].add("Self")
    if name.startswith("__"):  # Python passes the operand alone
        made = Signature(made.parameters[:2], made.returns)
    return Signature(made.parameters, "Self")
