"""All orders in which messages can meet receives: which there are, and what comes of each. Pure.

What simulated ranks do between two choices is one partial order: collectives, and receives that
name their source, have one meaning whatever comes first. What is left open is which message a
receive from anybody gets, and whether a send waits for its receive. So a receive from anybody is
matched only when nobody can go on otherwise: then every message that it can get is there, as far as
that hangs on no other choice (S. Vakkalanka, G. Gopalakrishnan, R. Kirby, Dynamic verification of
MPI programs with reductions in presence of split operations and relaxed orderings, CAV 2008). All
choices that are possible then, of all ranks, are tried one after the other, each in a new run that
repeats the choices before it. Two choices of receives on different ranks lead to the same place in
either order, so one order is enough: sleep sets (P. Godefroid, Partial-Order Methods for the
Verification of Concurrent Systems, 1996, section 5) leave the other out.

Each is done for every limit of size up to which sends do not wait: from none to all messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

ALL = 1 << 62  # bytes: no send waits
NONE = -1  # every send waits
ENDED, PRUNED, DEADLOCK = "ended", "pruned", "deadlock"
_TRIES = 24  # runs that make a counterexample short


class Match(NamedTuple):
    """Receive number ``receive`` of those from anybody at ``dst`` gets message number ``message``
    of the pair."""

    dst: int
    receive: int
    src: int
    message: int


def independent(a: Match, b: Match) -> bool:
    """Neither keeps the other from happening, and they lead to the same place in either order."""
    return a.dst != b.dst


@dataclass(frozen=True)
class Schedule:
    """A run: sends of up to ``limit`` bytes do not wait; ``choices``: which of the possible matches
    is taken each time; behind these the first that is not in ``sleep``."""

    limit: int = ALL
    choices: tuple[int, ...] = ()
    sleep: frozenset[Match] = frozenset()

    def __str__(self) -> str:
        limit = {ALL: "all", NONE: "none"}.get(self.limit, str(self.limit))
        return ":".join([limit, ".".join(map(str, self.choices))]) if self.choices else limit


def parse_schedule(text: str) -> Schedule:
    """The schedule that ``str`` wrote. Raises ``ValueError``."""
    limit, _, rest = text.partition(":")
    bytes_ = {"all": ALL, "none": NONE}.get(limit)
    if bytes_ is None:
        bytes_ = int(limit)
    return Schedule(bytes_, tuple(int(n) for n in rest.split(".")) if rest else ())


class Choice(NamedTuple):
    """What was possible, what was left out, and the number of what was taken."""

    options: tuple[Match, ...]
    sleep: frozenset[Match]
    at: int


class Chooser:
    """Chooses as a schedule says, and notes what it has chosen."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.made = schedule, list[Choice]()
        self.pruned = self.lost = False

    def __call__(self, options: tuple[Match, ...]) -> int | None:
        """The number of the one to take; None where the run need not go on."""
        told, n = self.schedule.choices, len(self.made)
        sleep: frozenset[Match] = frozenset()
        if n == len(told):
            sleep = self.schedule.sleep
        elif n > len(told):
            _, before, at = self.made[-1]
            taken = self.made[-1].options[at]
            sleep = frozenset(m for m in before if independent(m, taken))
        if n < len(told):
            at = told[n]
            self.lost = at >= len(options)
        else:
            awake = [i for i, m in enumerate(options) if m not in sleep]
            self.pruned = not awake
            at = awake[0] if awake else -1
        if self.lost or self.pruned:
            return None
        self.made.append(Choice(options, sleep, at))
        return at


@dataclass(frozen=True)
class Ran:
    """What came of a run. ``end``: "ended", "pruned" (all that could follow was seen elsewhere),
    "deadlock", or "failed"; ``text``: of what is wrong; ``results``: of all ranks; ``matches``:
    which message each receive from anybody got; ``sizes``: of messages, in bytes; ``varied``: what
    else the program may hang on."""

    end: str
    choices: tuple[Choice, ...] = ()
    results: tuple[str, ...] = ()
    text: str = ""
    matches: tuple[str, ...] = ()
    sizes: frozenset[int] = frozenset()
    varied: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """``kind``: "proof", "incomplete" (nothing was found, and not all was tried), or what was
    found: "deadlock", "failed", "results" (they differ). ``schedule``: the run that shows it;
    ``other``: one with other results."""

    kind: str
    tried: int
    text: str = ""
    schedule: Schedule | None = None
    other: Schedule | None = None
    ran: Ran | None = None
    limits: tuple[int, ...] = ()
    varied: tuple[str, ...] = ()

    @property
    def is_counterexample(self) -> bool:
        return self.kind not in ("proof", "incomplete")

    def __str__(self) -> str:
        if self.kind == "proof":
            return (
                f"proof: no deadlock and the same results in all {self.tried} interleavings "
                f"(complete; sends that do not wait: {', '.join(map(_limit, self.limits))})"
            )
        if self.kind == "incomplete":
            return f"{self.tried} interleavings tried, none fails; this is no proof: {self.text}"
        assert self.schedule is not None
        head = {"deadlock": "deadlock", "failed": "a rank fails", "results": "results differ"}
        lines = [f"counterexample: {head[self.kind]} in interleaving {self.schedule}"]
        lines[0] += f" (sends that do not wait: {_limit(self.schedule.limit)})"
        lines += [f"  {m}" for m in (self.ran.matches if self.ran else ())]
        return "\n".join([*lines, self.text])

    def as_json(self) -> dict:
        """The same as data."""
        ran = self.ran
        return {
            "verdict": self.kind, "interleavings": self.tried, "text": self.text,
            "complete": self.kind == "proof", "limits": [str(Schedule(n)) for n in self.limits],
            "schedule": None if self.schedule is None else str(self.schedule),
            "other": None if self.other is None else str(self.other),
            "matches": [] if ran is None else list(ran.matches), "depends_on": list(self.varied),
        }  # fmt: skip


def _limit(limit: int) -> str:
    return {ALL: "all", NONE: "none"}.get(limit, f"up to {limit} bytes")


def _safe_where(limit: int, tried: int) -> str:
    """Under which rules for sends a program hangs that does not where no send waits."""
    waits = "a send waits" if limit < 0 else f"a send of more than {limit} bytes waits"
    return (
        f"This is a deadlock where {waits} for its receive. So do sends of NCCL and of PyTorch's "
        "gloo; MPI's may, from a size of its own on; messages in memory of a group's empty() do. "
        "All others over shm and tcp are copied: there it is none, as none of the "
        f"{tried} interleavings with larger buffers fails. Safe everywhere are isend, recv and "
        "then wait; batch_isend_irecv; and to let some ranks receive first."
    )


class _Node:
    def __init__(self, choice: Choice) -> None:
        self.options, self.sleep, self.at = choice.options, set(choice.sleep), choice.at

    def advance(self) -> bool:
        """On to the next match that is to be tried; False where there is none."""
        self.sleep.add(self.options[self.at])
        left = [i for i, m in enumerate(self.options) if m not in self.sleep]
        self.at = left[0] if left else -1
        return bool(left)


def runs(run: Callable[[Schedule], Ran], limit: int) -> Iterator[tuple[Schedule, Ran]]:
    """Every interleaving with sends of up to ``limit`` bytes that do not wait."""
    way: list[_Node] = []
    sleep: frozenset[Match] = frozenset()
    while True:
        schedule = Schedule(limit, tuple(n.at for n in way), sleep)
        ran = run(schedule)
        known = [n.options for n in way]
        if [c.options for c in ran.choices[: len(way)]] != known:
            ran = replace(ran, varied=ran.varied | {"something that differs from run to run"})
            yield schedule, ran
            return
        made = tuple(c.at for c in ran.choices)
        yield replace(schedule, choices=made, sleep=frozenset()), ran
        way += [_Node(c) for c in ran.choices[len(way) :]]
        while way and not way[-1].advance():
            way.pop()
        if not way:
            return
        taken = way[-1].options[way[-1].at]
        sleep = frozenset(m for m in way[-1].sleep if independent(m, taken))


@dataclass
class _Search:
    run: Callable[[Schedule], Ran]
    budget: int
    tried: int = 0
    varied: set[str] = field(default_factory=set)
    first: tuple[Schedule, Ran] | None = None
    sizes: set[int] = field(default_factory=set)

    def over(self, limit: int) -> Verdict | None:
        """Try all with this limit; a verdict where that ends it."""
        for schedule, ran in runs(self.run, limit):
            self.varied |= ran.varied
            self.sizes |= ran.sizes
            if ran.end == PRUNED:
                continue
            if self.tried >= self.budget:  # so there was more to try
                return Verdict("incomplete", self.tried, "the budget is used up (--explore K)")
            self.tried += 1
            if ran.end != ENDED:
                return self.shortest(schedule, ran)
            if self.first is None:
                self.first = schedule, ran
            if ran.results != self.first[1].results:
                return self.differing(schedule, ran)
        return None

    def shortest(self, schedule: Schedule, ran: Ran) -> Verdict:
        """With as few choices as fail in the same way."""
        for count in range(min(len(schedule.choices), _TRIES)):
            shorter = replace(schedule, choices=schedule.choices[:count])
            found = self.run(shorter)
            if found.end == ran.end:
                schedule, ran = shorter, found
                break
        text = ran.text
        if ran.end == DEADLOCK and schedule.limit < ALL:  # larger limits have been tried
            text = "\n".join([text.rstrip(), _safe_where(schedule.limit, self.tried - 1)])
        return Verdict(ran.end, self.tried, text, _trimmed(schedule), ran=ran)

    def differing(self, schedule: Schedule, ran: Ran) -> Verdict:
        assert self.first is not None
        other, before = _trimmed(self.first[0]), self.first[1]
        schedule = _trimmed(schedule)
        rows = zip(before.results, ran.results, strict=True)
        rank, (a, b) = next((i, row) for i, row in enumerate(rows) if row[0] != row[1])
        text = f"rank {rank}: {_short(a, b)}\n  in interleaving {other}, and\n{_short(b, a)}\n"
        return Verdict("results", self.tried, f"{text}  in this one", schedule, other, ran)


def _trimmed(schedule: Schedule) -> Schedule:
    """Without the choices at its end that are made by themselves."""
    made = list(schedule.choices)
    while made and made[-1] == 0:
        made.pop()
    return replace(schedule, choices=tuple(made), sleep=frozenset())


def _short(text: str, other: str) -> str:
    """The first line that differs."""
    mine, theirs = text.splitlines(), other.splitlines()
    for i, line in enumerate(mine):
        if i >= len(theirs) or theirs[i] != line:
            return line
    return mine[-1] if mine else "nothing"


def search(run: Callable[[Schedule], Ran], budget: int) -> Verdict:
    """Try interleavings until something is found, all are tried, or ``budget`` runs are used up."""
    state = _Search(run, budget)
    limits = [ALL]
    found = state.over(ALL)
    if found is None:
        limits += sorted(state.sizes, reverse=True)[1:] + ([NONE] if state.sizes else [])
        for limit in limits[1:]:
            found = state.over(limit)
            if found is not None:
                break
    varied = tuple(sorted(state.varied))
    text = f"the program hangs on {', '.join(varied)}" if varied else ""
    if found is not None:
        both = f"{found.text}, and {text}" if text and not found.is_counterexample else found.text
        return replace(found, varied=varied, text=both)
    if varied:
        return Verdict("incomplete", state.tried, text, limits=tuple(limits), varied=varied)
    return Verdict("proof", state.tried, limits=tuple(limits))
