"""Where two recordings part: the first row that differs, and what follows. Pure.

Three ways to compare, chosen by what is given: ``same``, rank by rank; ``replicas``, the ranks of
one run with each other, in what all must have alike; ``whole``, runs on different numbers of ranks,
where parts are put together first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError
from . import rows
from .alignment import Pair, pairs
from .comparison import size_text, why_not
from .reader import Row, Run
from .wholes import met_wholes

MODES = ("same", "replicas", "whole")
WHOLE_ULP = 4096.0  # sums in another order are no more apart, as a rule
FOLLOWING = 10
_ALIKE_AT_ENDS = ("all_reduce", "broadcast", "all_gather", "all_gather_single")
_REPLICATED = frozenset({rows.COLLECTIVE, rows.RECEIVED, rows.SETTINGS, rows.GRAD, rows.PARAMETER,
                         rows.STATE})  # fmt: skip
_BY_LEVEL = {
    "collectives": frozenset({rows.COLLECTIVE, rows.RECEIVED, rows.SETTINGS, rows.DATA}),
    "modules": frozenset(range(len(rows.KINDS))) - {rows.OPERATION, rows.NODE},
    "ops": frozenset(range(len(rows.KINDS))),
}


@dataclass(frozen=True)
class Difference:
    """Rows that belong together and differ, or a row that only one side has (``how``: "value",
    "shape", "header", "only in A", "only in B", "nan")."""

    how: str
    rank: int
    step: int
    a: Row | None
    b: Row | None

    @property
    def row(self) -> Row:
        found = self.b if self.a is None else self.a
        assert found is not None
        return found

    @property
    def inputs(self) -> tuple[int, int]:
        """(how many inputs are equal, of how many)."""
        if self.a is None or self.b is None:
            return 0, 0
        given = list(zip(self.a.inputs, self.b.inputs))
        return sum(x == y for x, y in given), len(given)

    @property
    def size(self) -> str:
        return "" if self.a is None or self.b is None else size_text(self.a, self.b)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        equal, of = self.inputs
        return {
            "how": self.how, "rank": self.rank, "step": self.step, "size": self.size,
            "inputs_equal": equal, "inputs": of,
            "a": None if self.a is None else self.a.as_dict(),
            "b": None if self.b is None else self.b.as_dict(),
        }  # fmt: skip


@dataclass
class Result:
    """What a comparison has found. ``first``: None where nothing differs. ``following``: the rows
    after it, with how each differs (empty: equal)."""

    mode: str
    names: tuple[str, str]
    steps: tuple[int, int]  # of both: first and last
    compared: int = 0
    different: int = 0
    first: Difference | None = None
    following: list[tuple[str, Row]] = field(default_factory=list)
    before: list[Row] = field(default_factory=list)  # the last equal ones
    notes: list[str] = field(default_factory=list)


def diff(
    first: Run, second: Run | None = None, *, mode: str = "", ulp: float | None = None,
    shift: int = 0, everything: bool = False,
) -> Result:  # fmt: skip
    """Compare two runs, or (``second`` None) the ranks of one. ``ulp``: the tolerance; None: by
    bits, and ``WHOLE_ULP`` for wholes. ``shift``: added to the steps of ``second``. ``everything``:
    of replicas also what may differ."""
    mode = mode or _mode(first, second)
    if mode not in MODES:
        raise ConfigError(f"diff: mode={mode!r} given; one of {', '.join(MODES)} is needed")
    tolerance = (WHOLE_ULP if mode == "whole" else 0.0) if ulp is None else ulp
    compared = _Comparison(first, second, mode, tolerance, shift, everything)
    return compared.run()


def _mode(first: Run, second: Run | None) -> str:
    if second is None:
        return "replicas"
    mine, other = set(first.streams), set(second.streams)
    if first.folder and first.folder == second.folder and mine != other:
        return "replicas"
    if len(mine) == len(other) == 1 and not mine & other:
        return "same"  # one rank of each, as was asked for
    return "same" if first.world == second.world and mine & other else "whole"


class _Comparison:
    def __init__(
        self, first: Run, second: Run | None, mode: str, ulp: float, shift: int, everything: bool
    ) -> None:
        self.first, self.second, self.mode = first, second, mode
        self.ulp, self.shift, self.everything = ulp, shift, everything
        levels = [first.level, (second or first).level]
        self.level = min(levels, key=rows.LEVELS.index)
        self.kinds = _BY_LEVEL[self.level]
        name = first.name if second is None else second.name
        self.result = Result(mode, (first.name, name), (0, -1))

    def run(self) -> Result:
        best: tuple[tuple, list[Pair], int, Difference] | None = None
        for rank, met in self._meetings():
            found = self._look(rank, met)
            if found is not None:
                at, difference = found
                if best is None or met[at].place < best[0]:
                    best = (met[at].place, met, at, difference)
        if best is not None:
            _, met, at, self.result.first = best
            self._around(met, at)
        self._nan()
        return self.result

    def _meetings(self) -> list[tuple[int, list[Pair]]]:
        """(rank, what belongs together)."""
        a, second = self.first.streams, self.second
        if self.mode == "whole":
            assert second is not None
            found = met_wholes([*a.values()], [*second.streams.values()], self._counts, self.shift)
            return [(-1, found)]
        if second is None:
            streams = [*a.items()]
            if len(streams) < 2:
                raise ConfigError(
                    f"diff: {self.first.name} has one rank; give a second recording to compare with"
                )
            base = streams[0][1]
            return [(r, pairs(base, s, self._counts, self.shift)) for r, s in streams[1:]]
        if self.mode == "replicas":
            mine = next(iter(a.values()))
            return [
                (r, pairs(mine, s, self._counts, self.shift)) for r, s in second.streams.items()
            ]
        theirs = second.streams
        if len(a) == len(theirs) == 1:
            [mine], [(rank, other)] = a.values(), theirs.items()
            return [(rank, pairs(mine, other, self._counts, self.shift))]
        return [
            (r, pairs(s, theirs[r], self._counts, self.shift)) for r, s in a.items() if r in theirs
        ]

    def _counts(self, row: Row) -> bool:
        """Whether a row takes part."""
        if row.kind not in self.kinds:
            return False
        if self.level == "collectives" and row.name.startswith("input"):  # shown with modules
            return False
        if row.kind == rows.RANDOM and row.name.startswith("before the model"):
            return False
        if self.mode != "replicas" or self.everything:
            return True
        if row.whole or row.kind not in _REPLICATED:
            return False
        return row.kind != rows.RECEIVED or row.name in _ALIKE_AT_ENDS

    def _look(self, rank: int, met: Sequence[Pair]) -> tuple[int, Difference] | None:
        """The first difference in one order."""
        found = None
        result = self.result
        for at, pair in enumerate(met):
            step = pair.key[0]
            first, last = result.steps
            result.steps = (min(first, step), max(last, step)) if last >= 0 else (step, step)
            result.compared += 1
            how = self._how(pair)
            if how:
                result.different += 1
                if found is None:
                    a = pair.first[0] if pair.first else None
                    b = pair.second[0] if pair.second else None
                    found = at, Difference(how, rank if rank >= 0 else _rank(a, b), step, a, b)
        return found

    def _how(self, pair: Pair) -> str:
        if not pair.first:
            return "only in B"
        if not pair.second:
            return "only in A"
        a, b = pair.first[0], pair.second[0]
        header = self.mode == "replicas" and not self.everything and a.kind == rows.COLLECTIVE
        return why_not(a, b, self.ulp, header, self.mode == "whole")

    def _around(self, met: Sequence[Pair], at: int) -> None:
        result = self.result
        result.before = [(p.first or p.second)[0] for p in met[max(0, at - 3) : at]]
        for pair in met[at + 1 : at + 1 + FOLLOWING]:
            result.following.append((self._how(pair), (pair.second or pair.first)[0]))

    def _nan(self) -> None:
        """Where the first nan comes from, in the runs that have any."""
        for name, run in (("A", self.first), ("B", self.second)):
            found = None if run is None else first_nan(run)
            if found is None:
                continue
            label = f"{name}: " if self.second is not None else ""
            self.result.notes.append(f"{label}the first nan is {place_text(found)}")
            if self.mode == "replicas" and self._is_earlier(found):
                self.result.first = Difference("nan", found.rank, found.step, found, None)
                stream = (run or self.first).streams[found.rank]
                self.result.before = stream[max(0, found.at - 3) : found.at]
                after = stream[found.at + 1 : found.at + 1 + FOLLOWING]
                self.result.following = [("nan" if r.nans else "", r) for r in after]

    def _is_earlier(self, found: Row) -> bool:
        known = self.result.first
        return known is None or found.step <= known.step


def first_nan(run: Run) -> Row | None:
    """The first row of a run with a nan: of the first step that has one, in the rank where it does
    not come from another."""
    firsts = []
    for stream in run.streams.values():
        row = next((r for r in stream if r.nans), None)
        if row is not None:
            firsts.append(row)
    if not firsts:
        return None
    return min(firsts, key=lambda r: (r.step, r.kind == rows.RECEIVED, r.at))


def place_text(row: Row) -> str:
    """Where a row is from, in one line."""
    module = f", module {row.module}" if row.module else ""
    return f"in step {row.step}, rank {row.rank}{module}: {label(row).rstrip(',')}"


def label(row: Row) -> str:
    """What a row is of, as it is said."""
    kind, name = rows.KINDS[row.kind], row.name
    told = {
        rows.OPERATION: name, rows.MODULE: f"the output of {name}",
        rows.GRADIENT: f"the gradient of the output of {name}",
        rows.NODE: f"{name}: {row.about}" if row.about else name,
        rows.COLLECTIVE: f"{name}, what the rank gives ({row.about})",
        rows.RECEIVED: f"{name}, what the rank gets ({row.about})",
        rows.GRAD: f"the gradient of {name}, before the optimizer's step,",
        rows.PARAMETER: f"{name}, after the optimizer's step,",
        rows.SETTINGS: f"the settings of {name}", rows.RANDOM: f"the random state {name}",
        rows.DATA: f"{name} ({row.about})" if row.about else name,
        rows.STATE: f"{name}, as the model is called," if row.phase == rows.FORWARD else name,
    }.get(row.kind, f"{kind} {name}")  # fmt: skip
    return told


def _rank(a: Row | None, b: Row | None) -> int:
    row = b if b is not None else a
    return -1 if row is None else row.rank


__all__ = ["MODES", "Difference", "Result", "diff", "first_nan", "label", "place_text"]
