"""Which rank do all others wait for? A pure judge of looks at the ranks' black boxes.

Ranks that meet at each step take equally long for it; what tells them apart is how much of that
time each has waited for others. The rest of it a rank was busy, and a straggler is busy for longer
than the others, again and again: also without the time for which it was ready to run and got no
processor, which says that the machine is loaded. Where one step is much longer than the others of
a window, it may have been a checkpoint. What is looked at is a *window* of a few steps, and three
windows in a row must blame the same rank (five, where it is not much slower; more, where others
have been blamed of late, since then it is chance): one that saves a checkpoint, compiles a kernel
or was stopped for a moment is slow in one of them (or in two, where one ends in the middle of it),
and on a loaded machine it is now this rank, now that one.

A window only ends when all ranks have made some steps. So a rank that does not come back from one
is found in another way (``Stalls``): all others wait for it, for seconds.

Knows times and counts; no boxes, no processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Who is busy so many times as long as the others (their median) in so many windows in a row is a
# straggler. Of ranks that are alike the slowest one of a window has 1.0 to 1.25, on a machine with
# nothing else to do and on one that is loaded twice over. (Where ranks are more than cores, one
# with three times the work of the others has 1.5: they share with each other what it has alone.)
# (Middle of the windows' ratios, how many windows, in none of them less.)
RULES = ((1.7, 3, 1.3), (1.35, 5, 1.1))
_AT_LEAST = min(least for _, _, least in RULES)
_UNITS, _SECONDS = 3, 0.1  # steps and time in a window, at least
_LONG = 0.6  # seconds that the windows must last together
_WORTH = 0.02  # seconds a step that a straggler takes longer, at least; half of it in each window
_UNEVEN = 3.0  # times as long as those of its window a step may be that says how long all are
_WAITED = 0.1  # part of each window that the others (their median) must have waited
_MOST = 20  # windows that are kept
STALL = 10.0  # seconds that all others wait for one


@dataclass(frozen=True)
class Seen:
    """What one rank has done until a look, in nanoseconds and counts that only grow. ``waits``:
    for how long it has been waiting just now (0: it does not). ``deprived``: for how long it was
    ready to run and got no processor, in all. ``inside``: for how long it has been in its present
    step. ``at``: when that was, on the clock of the rank's host (0: at the moment of the look); how
    long something took is compared between hosts, never when it was."""

    waited: int
    steps: int
    operations: int
    waits: int = 0
    deprived: int = 0
    inside: int = 0
    at: int = 0


@dataclass(frozen=True)
class Straggler:
    """``rank`` is ``ratio`` times slower than the others: busy for ``own`` seconds a unit, they for
    ``others``. ``units`` of which were compared; ``unit``: step or operation."""

    rank: int
    ratio: float
    own: float
    others: float
    units: int
    unit: str

    def text(self, where: str, node: str = "") -> str:
        """For people. ``where``: what the others wait in; ``node``: that the rank is on."""
        whose = f" on node {node}" if node else ""
        at = f" in {where}" if where else ""
        return (
            f"rank {self.rank}{whose} is a straggler: {self.ratio:.1f} times slower than the "
            f"others ({_time(self.own)} a{'n' if self.unit[0] == 'o' else ''} {self.unit} against "
            f"{_time(self.others)}, over the last {self.units}); they wait for it{at}"
        )


def stalled(rank: int, where: str, node: str = "") -> str:
    """For people: that all wait for ``rank`` (on ``node``), and what they wait in."""
    whose, at = f" on node {node}" if node else "", f" in {where}" if where else ""
    return f"all other ranks wait for rank {rank}{whose}, for {STALL:.0f} s now{at}"


@dataclass
class Stalls:
    """Do ranks stand still: all wait for long, but for one, which does nothing that shows?"""

    _busy: dict[int, tuple[tuple[int, int, int], int]] = field(default_factory=dict)

    def look(self, now: int, seen: Mapping[int, Seen]) -> tuple[bool, int]:
        """``now`` in nanoseconds; ``seen``: of every rank that runs. Whether they do, and which one
        does not wait (-1: all do)."""
        before, self._busy = self._busy, {}
        for rank, s in seen.items():
            if not s.waits:
                done = s.waited, s.steps, s.operations
                same = rank in before and before[rank][0] == done
                self._busy[rank] = before[rank] if same else (done, now)
        since = [now - since for _, since in self._busy.values()]
        since += [s.waits for s in seen.values() if s.waits]
        still = len(self._busy) <= 1 and bool(since) and min(since) >= STALL * 1e9
        return still, next(iter(self._busy), -1) if still else -1


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


@dataclass(frozen=True)
class _Window:
    """``busy``: of each rank, in seconds; ``worked``: the same without the time in which it got no
    processor; ``longest``: of its steps."""

    seconds: float
    units: int
    unit: str
    busy: dict[int, float]
    worked: dict[int, float]
    longest: dict[int, float]

    @property
    def slowest(self) -> int:
        return max(self.worked, key=lambda rank: self.worked[rank])

    def more(self, rank: int) -> float:
        """Seconds a unit that it has worked for longer than the others were busy."""
        return (self.worked[rank] - self.others(rank)) / self.units

    def others(self, rank: int) -> float:
        """For how long the others were busy."""
        return median(busy for r, busy in self.busy.items() if r != rank)


@dataclass
class Total:
    """Of one rank, over all windows: seconds, units."""

    busy: float = 0.0
    waited: float = 0.0
    units: int = 0
    slowest: int = 0  # in so many windows


@dataclass
class Judge:
    """Takes in looks at all ranks of a host. Each rank is named once."""

    totals: dict[int, Total] = field(default_factory=dict)
    windows: int = 0
    _begun: tuple[int, dict[int, Seen]] | None = None
    _longest: dict[int, int] = field(default_factory=dict)  # inside a step, since then
    _kept: list[_Window] = field(default_factory=list)
    _blamed: list[int] = field(default_factory=list)  # by the last windows; -1: nobody
    _named: set[int] = field(default_factory=set)
    _brisk: bool = False  # steps are short
    _warm: bool = False  # the first window is of the start, when nobody is like the others

    @property
    def pace(self) -> float:
        """Seconds until the next look, so that windows are short where steps are."""
        return 0.05 if self._brisk else 0.25

    def reset(self) -> None:
        """What was seen so far says nothing of what comes: the job was stopped, ranks have gone."""
        self._begun, self._kept, self._longest = None, [], {}

    def look(self, now: int, seen: Mapping[int, Seen]) -> Straggler | None:
        """``now`` in nanoseconds; ``seen``: of every rank that runs."""
        if self._begun is None or self._begun[1].keys() != seen.keys() or len(seen) < 2:
            self.reset()
            self._begun = now, dict(seen)
            return None
        self._longest = {r: max(s.inside, self._longest.get(r, 0)) for r, s in seen.items()}
        window = self._window(now, seen)
        if window is None:
            return None
        self._begun, self._brisk = (now, dict(seen)), window.seconds < 1.0
        self._longest = {}
        if not self._warm:
            self._warm = True
            return None
        self._add(window)
        self._kept = [*self._kept, window] if window.units else []
        return self._judge()

    def _window(self, now: int, seen: Mapping[int, Seen]) -> _Window | None:
        """What has passed since the last one ended, once that is enough. Of ranks that do not go on
        alike nothing is said: it has no units."""
        assert self._begun is not None
        start, before = self._begun
        each = {r: ((s.at or now) - (before[r].at or start)) / 1e9 for r, s in seen.items()}
        if min(each.values()) < _SECONDS:
            return None
        seconds = median(each.values())
        part = {r: seconds / own for r, own in each.items()}  # their looks are not at one moment
        steps = [s.steps - before[r].steps for r, s in seen.items()]
        operations = [s.operations - before[r].operations for r, s in seen.items()]
        unit, counts = ("step", steps) if min(steps) > 0 else ("operation", operations)
        if min(counts) < _UNITS:
            return None
        counts = [round(n * part[r]) for n, r in zip(counts, seen, strict=True)]
        alike = max(counts) - min(counts) <= max(2, max(counts) // 10)
        waited = {r: part[r] * (s.waited - before[r].waited) / 1e9 for r, s in seen.items()}
        busy = {r: max(0.0, seconds - waited[r]) for r in seen}
        deprived = {r: part[r] * max(0, s.deprived - before[r].deprived) / 1e9
                    for r, s in seen.items()}  # fmt: skip
        worked = {r: max(0.0, busy[r] - deprived[r]) for r in seen}
        longest = {r: min(self._longest[r] / 1e9, seconds) for r in seen}
        return _Window(seconds, min(counts) if alike else 0, unit, busy, worked, longest)

    def _add(self, window: _Window) -> None:
        self.windows += 1
        for rank, busy in window.busy.items():
            total = self.totals.setdefault(rank, Total())
            total.busy += busy
            total.waited += window.seconds - min(busy, window.seconds)
            total.units += window.units
        self.totals[window.slowest].slowest += 1

    def _judge(self) -> Straggler | None:
        """The last windows, as many as blame one rank."""
        if not self._kept:
            return None
        rank = self._kept[-1].slowest
        blamed = rank if _blames(self._kept[-1], rank) else -1
        self._blamed = [*self._blamed, blamed][-_MOST:]
        known = {rank, -1, *self._named}
        chance = sum(1 for other in self._blamed if other not in known) // 2
        blaming: list[_Window] = []
        for window in reversed(self._kept):
            if not _blames(window, rank):
                break
            blaming.append(window)
        self._kept = self._kept[-min(max(len(blaming), 1), _MOST) :]
        if rank in self._named:
            return None
        for ratio, windows, least in RULES:
            count = windows + chance
            found = _compared(rank, blaming, count, least) if len(blaming) >= count else None
            if found is not None and found.ratio >= ratio:
                self._named.add(rank)
                return found
        return None


def _compared(rank: int, blaming: list[_Window], count: int, least: float) -> Straggler | None:
    """By the last windows: ``count``, or as many as are long enough together. The middle one
    counts: a single one, in which the rank was held up by something else, must not."""
    while count < len(blaming) and sum(w.seconds for w in blaming[:count]) < _LONG:
        count += 1
    chosen = blaming[:count]
    ratios = [w.worked[rank] / max(w.others(rank), 1e-9) for w in chosen]
    if sum(w.seconds for w in chosen) < _LONG or min(ratios) < least:
        return None
    if median(w.more(rank) for w in chosen) < _WORTH:
        return None
    others, units = sum(w.others(rank) for w in chosen), sum(w.units for w in chosen)
    ratio = median(ratios)
    return Straggler(rank, ratio, ratio * others / units, others / units, units, chosen[0].unit)


def _blames(window: _Window, rank: int) -> bool:
    others = window.others(rank)
    waited = 1 - others / window.seconds
    slow = window.worked[rank] >= _AT_LEAST * others and window.more(rank) >= _WORTH / 2
    steady = window.longest[rank] <= _UNEVEN * window.seconds / window.units
    return slow and steady and waited >= _WAITED


def table(totals: Mapping[int, Total]) -> list[str]:
    """All ranks over the whole run, the slowest first: who was busy, and who waited."""
    if not totals:
        return ["no steps were compared"]
    out = ["RANK   BUSY/STEP      RATIO   WAITED   SLOWEST IN"]
    windows = sum(t.slowest for t in totals.values())
    for rank, total in sorted(totals.items(), key=lambda item: -item[1].busy):
        others = [t.busy for r, t in totals.items() if r != rank]
        middle = median(others) if others else 0.0
        ratio = f"{total.busy / middle:.2f}" if middle > 0 else "-"
        each = _time(total.busy / total.units) if total.units else "-"
        part = total.waited / (total.busy + total.waited) if total.busy + total.waited else 0.0
        times = f"{total.slowest} of {windows} windows"
        out.append(f"{rank:>4}   {each:>9}   {ratio:>8}   {part:>5.0%}   {times}")
    return out


def median(values: Iterable[float]) -> float:
    """The middle one, or between the two in the middle. (``statistics`` takes long to load.)"""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
