"""Random legal programs of several ranks: plans that are data, ranks that follow them, and sums.

    plan = draw(seed)
    launch(lambda: follow(plan), plan.size)

A plan says which groups are made and left, and what is called on them; ``follow`` carries out one
rank's part and compares all that it receives with what the plan says that it must be. Calls come
from different lines and with different shapes, as branches make them; work in flight is waited for
later; ranks are late at random; some run two groups in two threads.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist

VERBS = (
    *("all_reduce", "all_reduce", "all_reduce", "max", "broadcast", "reduce", "all_gather"),
    *("gathered", "reduce_scatter", "all_to_all", "gather", "scatter", "barrier", "objects"),
    *("share", "message", "message", "ring"),
)
SIZES = (1, 3, 8, 60, 2500, 3100, 9000, 70_000, 300_000)
WEIGHTS = (6, 6, 6, 4, 3, 3, 2, 1, 1)


@dataclass(frozen=True)
class Step:
    """One call. ``group``: its number, -1 for the world; ``who``: a root, or (source, dest)."""

    verb: str
    number: int
    group: int = -1
    count: int = 1
    who: Any = None
    later: bool = False
    late: int | None = None  # the rank that comes late


@dataclass
class Plan:
    """What all ranks do. ``rounds``: lists of steps, each between an init and a destroy."""

    seed: int
    size: int
    rounds: list[list[Step]] = field(default_factory=list)
    destroys: bool = True


def draw(seed: int, threads: bool = False) -> Plan:
    """A plan, the same for the same ``seed``. ``threads``: some ranks use some."""
    rng = random.Random(seed)
    plan = Plan(seed, rng.choice((2, 3, 3, 4)))
    number = 0
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        steps: list[Step] = []
        alive: dict[int, list[int]] = {-1: list(range(plan.size))}
        for _ in range(rng.randrange(5, 30)):
            number += 1
            steps.append(_draw_step(rng, number, plan, alive, threads))
        plan.rounds.append(steps)
    return plan


def _draw_step(rng: random.Random, number: int, plan: Plan, alive: dict, threads: bool) -> Step:
    kind = rng.random()
    late = rng.randrange(plan.size) if rng.random() < 0.05 else None
    if kind < 0.12:
        members = rng.sample(range(plan.size), rng.randrange(1, plan.size + 1))
        alive[number] = members
        return Step("new", number, number, who=tuple(members), late=late)
    if kind < 0.17 and len(alive) > 1:
        gone = rng.choice([g for g in alive if g >= 0])
        members = alive.pop(gone)
        return Step("destroy", number, gone, who=tuple(members), late=late)
    if kind < 0.19:
        return Step("wait", number)
    if threads and kind < 0.3 and len(alive) > 2:
        pair = rng.sample([g for g in alive if g >= 0], 2)
        return Step("threads", number, count=rng.choice(SIZES), who=tuple(pair), late=late)
    group = rng.choice([-1, *alive])
    members = alive[group]
    verb = rng.choice(VERBS)
    count = rng.choices(SIZES, WEIGHTS)[0]
    who: Any = rng.choice(members)
    if verb == "message":
        who = (rng.choice(members), rng.choice(members))
    return Step(verb, number, group, count, who, rng.random() < 0.4, late)


def value(rank: int, number: int, k: int = 0) -> float:
    """What a rank gives to a step (its k-th piece): small whole numbers, whose sums are exact."""
    return float((rank * 37 + number * 11 + k * 5) % 101)


def follow(plan: Plan, odd: tuple[int, int, int] | None = None) -> int:
    """This rank's part of the plan; the number of values that were compared.

    ``odd`` makes the program wrong: (number of a step, a rank, how often that rank calls it).
    """
    checks = 0
    for steps in plan.rounds:
        dist.init_process_group()
        checks += Follower(plan, odd).run(steps)
        dist.destroy_process_group()
    return checks


def spoil(plan: Plan) -> tuple[int, int, int] | None:
    """A collective that one of its ranks shall skip or repeat; None where there is none."""
    rng = random.Random(plan.seed)
    members = {-1: tuple(range(plan.size))}
    steps = [step for steps in plan.rounds for step in steps]
    members |= {step.number: step.who for step in steps if step.verb == "new"}
    alone = ("message", "ring", "new", "destroy", "wait", "threads")
    fit = [s for s in steps if s.verb not in alone and len(members[s.group]) > 1]
    if not fit:
        return None
    step = rng.choice(fit)
    return step.number, rng.choice(members[step.group]), rng.choice((0, 2))


class Follower:
    """One rank in one round."""

    def __init__(self, plan: Plan, odd: tuple[int, int, int] | None = None) -> None:
        self.odd = odd
        self.me, self.size = dist.get_rank(), plan.size
        self.groups: dict[int, Any] = {-1: None}
        self.members: dict[int, list[int]] = {-1: list(range(plan.size))}
        self.pending: list[tuple[Any, Any]] = []  # works, and the check of what they give
        self.checks = 0

    def run(self, steps: list[Step]) -> int:
        for step in steps:
            if step.late == self.me:
                context.sleep(0.02)
            times = 1
            if self.odd is not None and self.odd[:2] == (step.number, self.me):
                times = self.odd[2]
            for _ in range(times):
                self.do(step)
        self.wait()
        return self.checks

    def wait(self) -> None:
        for work, check in self.pending:
            work.wait()
            check()
        self.pending = []

    def do(self, step: Step) -> None:
        if step.verb == "new":
            self.groups[step.number] = dist.new_group(list(step.who), sort_ranks=False)
            self.members[step.number] = list(step.who)
        elif step.verb == "wait":
            self.wait()
        elif step.verb == "threads":
            self.threads(step)
        elif self.me in self.members[step.group]:
            if step.verb == "destroy":
                self.wait()
                dist.destroy_process_group(self.groups[step.group])
            else:
                getattr(self, step.verb)(step, self.groups[step.group], self.members[step.group])

    def given(self, step: Step, k: int = 0) -> dt.Tensor:
        return dt.full((step.count,), value(self.me, step.number, k))

    def expect(self, step: Step, tensor: dt.Tensor, want: float) -> None:
        flat = tensor.reshape(-1)
        spots = {0, flat.shape[0] // 2, flat.shape[0] - 1}
        got = [flat[i].item() for i in spots]
        assert got == [want] * len(spots), (self.me, step, got, want)
        self.checks += 1

    def started(self, step: Step, work: Any, check: Any) -> None:
        if work is None:
            check()
        else:
            self.pending.append((work, check))
            if not step.later:
                self.wait()

    # -- the calls ----------------------------------------------------------------------------

    def all_reduce(self, step: Step, group: Any, members: list[int], op: Any = None) -> None:
        x = self.given(step)
        if self.me % 2 and step.count % 2 == 0:
            x = x.reshape(2, -1)
            work = dist.all_reduce(x, op or dist.ReduceOp.SUM, group, async_op=step.later)
        else:
            work = dist.all_reduce(x, op or dist.ReduceOp.SUM, group=group, async_op=step.later)
        values = [value(r, step.number) for r in members]
        want = max(values) if op else sum(values)
        self.started(step, work, lambda: self.expect(step, x, want))

    def max(self, step: Step, group: Any, members: list[int]) -> None:
        self.all_reduce(step, group, members, dist.ReduceOp.MAX)

    def broadcast(self, step: Step, group: Any, members: list[int]) -> None:
        x, want = self.given(step), value(step.who, step.number)
        if self.me == step.who:
            work = dist.broadcast(x, step.who, group, async_op=step.later)
        else:
            x = x.reshape(1, -1)
            work = dist.broadcast(x, src=step.who, group=group, async_op=step.later)
        self.started(step, work, lambda: self.expect(step, x, want))

    def reduce(self, step: Step, group: Any, members: list[int]) -> None:
        x = self.given(step)
        total = sum(value(r, step.number) for r in members)
        want = total if self.me == step.who else value(self.me, step.number)
        work = dist.reduce(x, step.who, group=group, async_op=step.later)
        self.started(step, work, lambda: self.expect(step, x, want))

    def all_gather(self, step: Step, group: Any, members: list[int]) -> None:
        outs = [dt.zeros(step.count) for _ in members]
        work = dist.all_gather(outs, self.given(step), group=group, async_op=step.later)

        def check() -> None:
            for r, out in zip(members, outs, strict=True):
                self.expect(step, out, value(r, step.number))

        self.started(step, work, check)

    def gathered(self, step: Step, group: Any, members: list[int]) -> None:
        out = dt.zeros(step.count * len(members))
        dist.all_gather_into_tensor(out, self.given(step), group=group)
        for i, r in enumerate(members):
            piece = out[i * step.count : (i + 1) * step.count]
            self.expect(step, piece, value(r, step.number))

    def reduce_scatter(self, step: Step, group: Any, members: list[int]) -> None:
        out = dt.zeros(step.count)
        ins = [self.given(step, k) for k in range(len(members))]
        work = dist.reduce_scatter(out, ins, group=group, async_op=step.later)
        want = sum(value(r, step.number, members.index(self.me)) for r in members)
        self.started(step, work, lambda: self.expect(step, out, want))

    def all_to_all(self, step: Step, group: Any, members: list[int]) -> None:
        outs = [dt.zeros(step.count) for _ in members]
        ins = [self.given(step, k) for k in range(len(members))]
        dist.all_to_all(outs, ins, group=group)
        for r, out in zip(members, outs, strict=True):
            self.expect(step, out, value(r, step.number, members.index(self.me)))

    def gather(self, step: Step, group: Any, members: list[int]) -> None:
        root = self.me == step.who
        outs = [dt.zeros(step.count) for _ in members] if root else None
        dist.gather(self.given(step), outs, dst=step.who, group=group)
        for r, out in zip(members, outs or [], strict=root):
            self.expect(step, out, value(r, step.number))

    def scatter(self, step: Step, group: Any, members: list[int]) -> None:
        out, root = dt.zeros(step.count), self.me == step.who
        ins = [self.given(step, k) for k in range(len(members))] if root else None
        dist.scatter(out, ins, src=step.who, group=group)
        self.expect(step, out, value(step.who, step.number, members.index(self.me)))

    def barrier(self, step: Step, group: Any, members: list[int]) -> None:
        dist.barrier(group)

    def objects(self, step: Step, group: Any, members: list[int]) -> None:
        told = [None] * len(members)
        dist.all_gather_object(told, {"rank": self.me, "step": [step.number] * self.me}, group)
        assert told == [{"rank": r, "step": [step.number] * r} for r in members], (step, told)
        self.checks += 1

    def share(self, step: Step, group: Any, members: list[int]) -> None:
        said = [(step.number, "x" * step.number), None]
        told = list(said) if self.me == step.who else [None, 1.5]
        if self.me == step.who:
            dist.broadcast_object_list(told, src=step.who, group=group)
        else:
            dist.broadcast_object_list(told, src=step.who, group=group)
        assert told == said, (step, told)
        self.checks += 1

    def message(self, step: Step, group: Any, members: list[int]) -> None:
        source, dest = step.who
        out = dt.zeros(step.count)
        tag = step.number % 3
        if self.me == source:
            work = dist.isend(self.given(step), dest, group, tag)
            self.pending.append((work, lambda: None))
        if self.me == dest:
            want = value(source, step.number)
            if step.later or source == dest:
                work = dist.irecv(out.reshape(1, -1), source, group, tag)
                self.pending.append((work, lambda: self.expect(step, out, want)))
            else:
                assert dist.recv(out, source, group, tag) == source
                self.expect(step, out, want)

    def ring(self, step: Step, group: Any, members: list[int]) -> None:
        at = members.index(self.me)
        after, before = members[(at + 1) % len(members)], members[at - 1]
        out = dt.zeros(step.count)
        ops = [
            dist.P2POp(dist.isend, self.given(step), after, group, 7),
            dist.P2POp(dist.irecv, out, before, group, 7),
        ]
        for work in dist.batch_isend_irecv(ops):
            self.pending.append((work, lambda: None))
        self.wait()
        self.expect(step, out, value(before, step.number))

    def threads(self, step: Step) -> None:
        """Two groups: one after the other on most ranks, at once on some."""
        self.wait()
        mine = [g for g in step.who if self.me in self.members[g]]
        work = [threading.Thread(target=self.sums, args=(step, g)) for g in mine]
        for thread in work:
            if (self.me + step.number) % 2:
                thread.run()
            else:
                thread.start()
        for thread in work:
            if thread.ident is not None:
                thread.join()

    def sums(self, step: Step, group: int) -> None:
        for k in range(3):
            x = self.given(step, k)
            dist.all_reduce(x, group=self.groups[group])
            want = sum(value(r, step.number, k) for r in self.members[group])
            self.expect(step, x, want)
