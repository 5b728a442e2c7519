"""LLVM text of loops over memory, and functions of it that are called with addresses.

    text = Text()
    with text.function("double", "ptr %out", "ptr %x", "i64 %n"):
        with text.loop("0", "%n", 1) as i:
            ...

For what the kernel language does not say: copies in another order, running sums, scattered rows.
Knows no numpy.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .cached import kept
from .objfile import ObjectError


class Text:
    """A module that grows line by line. Values and blocks are numbered."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.block = ""

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"

    def fresh(self, name: str) -> str:
        """A name that nothing else has."""
        self.count += 1
        return f"{name}{self.count}"

    def add(self, line: str) -> None:
        """A line that has no result."""
        self.lines.append(f"  {line}")

    def let(self, value: str) -> str:
        """The name of a new value."""
        name = "%" + self.fresh("v")
        self.add(f"{name} = {value}")
        return name

    def start(self, label: str) -> None:
        """Begin a block; what follows stands in it."""
        self.lines.append(f"{label}:")
        self.block = label

    @contextlib.contextmanager
    def function(self, name: str, *params: str) -> Iterator[None]:
        """A function without a result."""
        self.lines.append(f"define void @{name}({', '.join(params)}) {{")
        self.start(self.fresh("entry"))
        yield
        self.add("ret void")
        self.lines.append("}")

    @contextlib.contextmanager
    def loop(self, first: str, end: str, step: int | str, carried: Any = ()) -> Iterator[Any]:
        """A loop while a number from ``first`` on is below ``end``. ``carried``: (type, value
        before the loop) of what each pass hands to the next; then a ``Turn`` is yielded, else the
        number."""
        name, before = self.fresh("loop"), self.block
        turn = Turn(f"%{name}.at", [f"%{name}.c{k}" for k in range(len(carried))])
        self.add(f"br label %{name}.head")
        self.start(f"{name}.head")
        self.add(f"{turn.at} = phi i64 [{first}, %{before}], [%{name}.more, %{name}.latch]")
        for value, (kind, initial) in zip(turn.values, carried):
            self.add(f"{value} = phi {kind} [{initial}, %{before}], [{value}n, %{name}.latch]")
        goes = self.let(f"icmp slt i64 {turn.at}, {end}")
        self.add(f"br i1 {goes}, label %{name}.body, label %{name}.end")
        self.start(f"{name}.body")
        yield turn if carried else turn.at
        self.add(f"br label %{name}.latch")
        self.start(f"{name}.latch")
        for value, new, (kind, _) in zip(turn.values, turn.new, carried):
            self.add(f"{value}n = select i1 true, {kind} {new}, {kind} {new}")
        self.add(f"%{name}.more = add i64 {turn.at}, {step}")
        self.add(f"br label %{name}.head")
        self.start(f"{name}.end")

    def at(self, base: str, *offsets: tuple[str, str]) -> str:
        """An address: ``base`` and products (number, bytes of each)."""
        for number, size in offsets:
            far = self.let(f"mul i64 {number}, {size}")
            base = self.let(f"getelementptr i8, ptr {base}, i64 {far}")
        return base


class Turn:
    """One pass of a loop: its number, what was handed to it, and what it hands on."""

    def __init__(self, at: str, values: list[str]) -> None:
        self.at, self.values = at, values
        self.new: list[str] = list(values)


@functools.cache
def functions(
    make: Callable[..., str], *given: object
) -> Callable[[str, Sequence[Any]], Callable | None]:
    """``find(name, types of the arguments)`` for what the text ``make(*given)`` defines; finds None
    where no code can be made here. Calls run without the GIL."""
    places = _places(make(*given))
    return lambda name, kinds: (
        ctypes.CFUNCTYPE(None, *kinds)(places[name]) if places is not None else None
    )


def _places(text: str) -> dict[str, int] | None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    try:
        return kept(text, lambda: text, _of_c)
    except (ImportError, ObjectError, RuntimeError):
        return None


def _of_c(name: str) -> int:
    """The address of a function that LLVM has decided to call."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise ObjectError(f"the C library has no function {name}") from None


__all__ = ["Text", "Turn", "functions"]
