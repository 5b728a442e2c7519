"""Sums of long rows in float32: in blocks, whose sums are added up in float64.

A row's sum is kept in a few registers; after ``TURNS`` additions to each the rounding of one more
begins to be seen. So the loop over the columns is left then, the registers become one, which is
added to another of float64, and the loop begins anew. Rows of one block have the bits that they
have without.
"""

from __future__ import annotations

from ..lang.kernel import Loop, Reduce
from .emit import LL, Emitter

TURNS = 64  # of the loop over the columns, one block


def needed(step: Loop, kinds: dict[str, str]) -> bool:
    """Whether a loop adds up numbers in float32, and folds nothing else."""
    folds = [s for s in step.body if isinstance(s, Reduce)]
    return bool(folds) and all(s.op == "sum" and kinds[s.name] == "float32" for s in folds)


class Blocks:
    """The blocks around the loop ``name`` of so many columns a turn, which folds ``sums``."""

    def __init__(self, e: Emitter, name: str, sums: list[str], wide: int) -> None:
        self.e, self.name, self.sums, self.wide = e, name, sums, wide
        self.kind, self.narrow = e.vec("float64"), e.vec("float32")
        self.begin, self.end = f"{name}.block", f"{name}.behind"  # what is before it, and after it

    def _kept(self, s: str) -> str:
        return f"{self.kind}, ptr %{self.name}.{s}.kept, align 64"

    def start(self, before: str) -> None:
        """The start of a block, from where the loop goes up to its end. The sums of those before
        are in memory, so that rows of one block do nothing for them."""
        name = self.name
        self.e.lines[:0] = [f"  %{name}.{s}.kept = alloca {self.kind}, align 64" for s in self.sums]
        self.e.lines += [
            f"{self.begin}:",
            f"  %{name}.first = phi i64 [ 0, %{before} ], [ %{name}.next, %{name}.fold ]",
            f"  %{name}.far = add i64 %{name}.first, {self.wide * TURNS}",
            f"  %{name}.near = icmp slt i64 %{name}.far, %{name}.end",
            f"  %{name}.stop = select i1 %{name}.near, i64 %{name}.far, i64 %{name}.end",
            f"  br label %{name}.main",
        ]

    def close(self, made: dict[str, list[str]]) -> None:
        """What is done behind one, but for the last. ``made``: the registers of each sum."""
        name, e = self.name, self.e
        e.lines += [
            f"{self.end}:",
            f"  br i1 %{name}.near, label %{name}.fold, label %{name}.mid",
            f"{name}.fold:",
            f"  %{name}.later = icmp sgt i64 %{name}.first, 0",
        ]
        for s in self.sums:
            total, *others = made[s]
            for one in others:
                total = e.op(f"fadd {self.narrow} {total}, {one}")
            wide, old = e.convert(total, "float32", "float64"), e.op(f"load {self._kept(s)}")
            old = e.op(f"select i1 %{name}.later, {self.kind} {old}, {self.kind} {_ZERO}")
            new = e.op(f"fadd {self.kind} {old}, {wide}")
            e.lines.append(f"  store {self.kind} {new}, ptr %{name}.{s}.kept, align 64")
        e.lines.append(f"  br label %{self.begin}")

    def join(self, last: dict[str, str]) -> dict[str, str]:
        """The sums of all; ``last``: those of the last block and of the columns behind it."""
        name, e = self.name, self.e
        e.lines += [
            f"  %{name}.many = icmp sgt i64 %{name}.end, {self.wide * TURNS}",
            f"  br i1 %{name}.many, label %{name}.join, label %{name}.whole",
            f"{name}.join:",
        ]
        joined = {}
        for s in self.sums:
            wide, old = e.convert(last[s], "float32", "float64"), e.op(f"load {self._kept(s)}")
            total = e.op(f"fadd {self.kind} {old}, {wide}")
            joined[s] = e.convert(total, "float64", "float32")
        e.lines += [f"  br label %{name}.whole", f"{name}.whole:"]
        return {
            s: e.op(f"phi {self.narrow} [ {last[s]}, %{name}.done ], [ {joined[s]}, %{name}.join ]")
            for s in self.sums
        }


_ZERO = f"splat ({LL['float64']} -0.0)"

__all__ = ["TURNS", "Blocks", "needed"]
