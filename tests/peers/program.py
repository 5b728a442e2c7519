"""A program is a list of statements in which ``T`` is the library; it runs on either of the two.

What it leaves behind is described library-free (``Value``), so that two runs can be compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import numpy as np

Lines = tuple[str, ...]
INVALID = "a part whose base was written to"  # the peer refuses to say anything of it
HEAD = """\
F, log = T.nn.functional, []
def fill(m):  # numbers that belong to the place of a parameter
    for i, p in enumerate(m.parameters()):
        p.data.copy_((T.arange(p.numel()) % 7 - 3).reshape(p.shape).to(p.dtype) * 0.15 + i * 0.01)
    return m
"""


@dataclass(frozen=True)
class Value:
    """A tensor as anyone can see it; arrays are as wide as they can be."""

    dtype: str
    shape: tuple[int, ...]
    array: np.ndarray
    requires_grad: bool
    is_leaf: bool
    grad: Value | None = None


@dataclass
class Outcome:
    """Which lines raised what, and what the names stood for in the end."""

    errors: list[BaseException | None] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)


@lru_cache(maxsize=50_000)
def code(line: str) -> CodeType:
    return compile(line, "<program>", "exec")


def environment(library: ModuleType) -> dict[str, Any]:
    """What a program starts with; the random numbers of a library start anew too."""
    library.manual_seed(0)
    names = {"T": library}
    exec(code(HEAD), names)
    return names


def execute(line: str, names: dict[str, Any]) -> BaseException | None:
    """Run one statement; the exception it raised, without what it would keep alive."""
    try:
        exec(code(line), names)
    except Exception as error:
        return error.with_traceback(None)
    return None


def run(lines: Iterable[str], library: ModuleType) -> Outcome:
    """Run every line, also after one that raised."""
    names = environment(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        errors = [execute(line, names) for line in lines]
        return Outcome(errors, describe_all(names))


def given(name: str) -> bool:
    return name[0] == "v" and name[1:].isdigit()


def describe_all(names: dict[str, Any]) -> dict[str, Any]:
    return {name: describe(x) for name, x in names.items() if name == "log" or given(name)}


def describe(x: Any) -> Any:
    """``x`` without the library it is of: tensors as Values, containers by element."""
    if hasattr(x, "data_ptr"):
        if x.is_sparse:
            return describe(x.detach().to_dense())  # (how it is held, programs ask themselves)
        try:
            return _tensor(x)
        except RuntimeError:
            return INVALID
    if isinstance(x, dict):
        return {str(k): describe(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [describe(v) for v in x]
    if isinstance(x, (bool, int, float, complex, str)) or x is None:
        return x
    return str(x).rpartition(".")[2] if type(x).__name__ == "dtype" else type(x).__name__


def _tensor(x: Any, with_grad: bool = True) -> Value:
    grad = x.grad if with_grad and x.is_leaf else None
    grad = grad.to_dense() if grad is not None and grad.is_sparse else grad
    return Value(
        str(x.dtype).rpartition(".")[2],
        tuple(x.shape),
        _array(x.detach()),
        bool(x.requires_grad),
        bool(x.is_leaf),
        None if grad is None else _tensor(grad, False),
    )


def _array(x: Any) -> np.ndarray:
    if str(x.dtype).endswith("bfloat16"):
        x = x.float()
    if hasattr(x, "resolve_conj"):
        x = x.resolve_conj().resolve_neg()
    array = np.array(x.numpy())
    kind = {"f": np.float64, "c": np.complex128}.get(array.dtype.kind)
    return array if kind is None else array.astype(kind)


def snippet(lines: Lines, errors: Iterable[BaseException | None] = ()) -> str:
    """The program as text that runs by itself; what raised in the peer is caught."""
    raised = list(errors)
    fill = any("fill(" in line for line in lines)
    out = [
        "import torch as T  # and: import disttrain as T\n",
        *HEAD.splitlines(True)[: None if fill else 1],
    ]
    for i, line in enumerate(lines):
        if i < len(raised) and raised[i] is not None:
            line = f"try: {line}\nexcept Exception as e: print(e)"
        out.append(line + "\n")
    return "".join(out)
