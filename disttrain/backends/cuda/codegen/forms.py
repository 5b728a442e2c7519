"""Which code is wanted of a kernel, and what it is given: plain data that text and plans share.

A ``Form`` is all that the text of one CUDA function depends on beside the kernel. Every function
takes one struct by value; ``Field`` says what is in it, so that the text (``struct``) and the bytes
(``record``) are made of one list.

    flat      one loop of a flat kernel, over all elements; folds leave a partial result per block
    many      the same for many sets of arrays at once: optimizer steps
    finish    what a flat kernel does between two loops, by one block: folds of the partial results
    rows      a whole kernel, row by row: a team of threads (a warp or a block) for each row
    fold      sums over rows: the teams' partial sums join the array
"""

from __future__ import annotations

from dataclasses import dataclass

from ...device.structs import C_STORED, C_TYPES, Field, record, struct

THREADS = 256  # of a block, except where a longer row wants more
MOST = 48  # sets of arrays that one launch of form "many" takes: its struct stays under 4 KB
SLOT = 8  # bytes of one row value or partial result in scratch memory


@dataclass(frozen=True, slots=True)
class Form:
    """``vector``: elements that a thread handles side by side. ``dims``: axes whose strides are
    given (0: all arrays are contiguous). ``wide``: positions need 64 bits. ``step``: of the flat
    kernel, which loop, or the first step after it. ``team``: threads that share a row; ``teams``:
    rows at a time in a block; ``items``: vectors of a row that a thread keeps in registers (0: it
    reads them again in each loop). ``array``: which one is summed over rows."""

    kind: str
    vector: int = 1
    dims: int = 0
    wide: bool = False
    step: int = 0
    team: int = 32
    teams: int = 1
    items: int = 0
    array: str = ""

    @property
    def threads(self) -> int:
        return self.team * self.teams if self.kind == "rows" else THREADS

    @property
    def suffix(self) -> str:
        """What tells the functions of one kernel apart, as part of a name in C."""
        words = [self.kind, f"v{self.vector}", f"d{self.dims}" if self.dims else "c"]
        words += ["w"] if self.wide else []
        if self.kind == "rows":
            words.append(f"t{self.team}x{self.teams}i{self.items}")
        if self.kind in ("flat", "finish"):
            words.append(f"s{self.step}")
        return "_".join([*words, self.array] if self.array else words)


__all__ = [
    "C_STORED",
    "C_TYPES",
    "MOST",
    "SLOT",
    "THREADS",
    "Field",
    "Form",
    "record",
    "struct",
]
