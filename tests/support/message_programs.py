"""Small programs of sends and receives: drawn from a seed, run on simulated ranks, and run on paper
in every interleaving, one state after the other, with nothing of the simulator.

A program has a list of steps for each rank: ("send", dst, tag), ("isend", dst, tag), ("recv", src,
tag), ("irecv", src, tag) with src None for anybody, ("wait", n) for the n-th of what was started
before, ("barrier",). What is sent under a tag has ``SIZES[tag]`` bytes. A rank's result is whom its
receives got messages from, and which.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from disttrain.comm.group.group import ProcessGroup
from disttrain.comm.transports.sim.transport import connect

SIZES = (8, 16)
Step = tuple
Program = list[list[Step]]


def draw(random_: random.Random, num_ranks: int, length: int) -> Program:
    """A program; about half of what is drawn comes to its end."""
    program: Program = [[] for _ in range(num_ranks)]
    matched = random_.random() < 0.8
    for _ in range(random_.randrange(1, length)):
        src, dst = random_.sample(range(num_ranks), 2)
        tag = random_.choice((0, 0, 1))
        program[src].append((random_.choice(("send", "isend")), dst, tag))
        if matched or random_.random() < 0.5:
            whom = random_.choice((None, None, src))
            program[dst].append((random_.choice(("recv", "recv", "irecv")), whom, tag))
    for steps in program:
        if random_.random() < 0.4:
            random_.shuffle(steps)
    if random_.random() < 0.3:
        for steps in program:
            steps.insert(random_.randrange(len(steps) + 1), ("barrier",))
    for steps in program:
        started = [s[0] for s in steps if s[0] in ("isend", "irecv")]
        waits: list[Step] = [("wait", n) for n in range(len(started))]
        random_.shuffle(waits)
        steps += waits if random_.random() < 0.8 else waits[1:]
    return program


def runner(program: Program) -> Callable[[], Any]:
    """What simulated ranks run."""

    def run() -> list:
        group = ProcessGroup(connect())
        got: list[Any] = []
        started: list[Any] = []
        for step in program[group.rank]:
            if step[0] in ("send", "isend"):
                _, dst, tag = step
                work = group.isend(np.zeros(SIZES[tag] // 8), dst, tag)
            elif step[0] in ("recv", "irecv"):
                _, src, tag = step
                place = len(got)
                got.append(None)
                work = group.irecv(np.empty(SIZES[tag] // 8), src, tag)
                work.on_end(lambda w, place=place: got.__setitem__(place, w._result))
            elif step[0] == "wait":
                started[step[1]].wait()
                continue
            else:
                group.barrier()
                continue
            if step[0] in ("isend", "irecv"):
                started.append(work)
            else:
                work.wait()
        return sorted_by_wait(got, program[group.rank])

    return run


def sorted_by_wait(got: list, steps: list[Step]) -> list:
    """What the receives got that were waited for: of others nobody knows at the end."""
    waited, number, place = set(), 0, 0
    asked = {s[1] for s in steps if s[0] == "wait"}
    for step in steps:
        if step[0] in ("isend", "irecv"):
            if step[0] == "irecv" and number in asked:
                waited.add(place)
            number += 1
        waited |= {place} if step[0] == "recv" else set()
        place += step[0] in ("recv", "irecv")
    return [g for i, g in enumerate(got) if i in waited]


def outcomes(program: Program, limit: int) -> set[tuple]:
    """What can come of it, in every interleaving: ("deadlock",), or ("ended", results)."""
    n = len(program)
    # How far each rank is; for each the messages to it: (source, tag, sender's place, taken); and
    # its receives: (source, tag, place, from whom it got one).
    first = ((0,) * n, ((),) * n, ((),) * n)
    seen, row, found = set(), [first], set()
    while row:
        state = row.pop()
        if state in seen:
            continue
        seen.add(state)
        following = list(_following(program, state, limit))
        row += following
        if not following:
            found.add(_end(program, state))
    return found


def _following(program: Program, state: tuple, limit: int):
    places, messages, receives = state
    at_barrier = [p < len(s) and s[p][0] == "barrier" for p, s in zip(places, program)]
    if all(at_barrier):
        yield tuple(p + 1 for p in places), messages, receives
    for rank, steps in enumerate(program):
        moved = _step(steps, rank, state, limit) if places[rank] < len(steps) else None
        if moved is not None:
            yield moved
        for m, message in enumerate(messages[rank]):
            src, tag, _, taken = message
            earlier = messages[rank][:m]
            if taken or any(e[:2] == (src, tag) and not e[3] for e in earlier):
                continue
            for r, (whom, wanted, place, got) in enumerate(receives[rank]):
                if got is None and wanted == tag and whom in (None, src):
                    yield (
                        places,
                        _put(messages, rank, m, (*message[:3], True)),
                        _put(receives, rank, r, (whom, wanted, place, src)),
                    )
                    break  # the earliest receive that fits gets it


def _put(rows: tuple, rank: int, at: int, value: tuple) -> tuple:
    row = (*rows[rank][:at], value, *rows[rank][at + 1 :])
    return (*rows[:rank], row, *rows[rank + 1 :])


def _step(steps: list[Step], rank: int, state: tuple, limit: int) -> tuple | None:
    """The state after the next step of a rank; None where it must wait."""
    places, messages, receives = state
    at = places[rank]
    step = steps[at]
    ahead = (*places[:rank], at + 1, *places[rank + 1 :])
    if step[0] in ("send", "isend"):
        _, dst, tag = step
        mine = [m for m in messages[dst] if m[0] == rank and m[2] == at]
        if not mine:
            posted = (
                *messages[:dst],
                (*messages[dst], (rank, tag, at, False)),
                *messages[dst + 1 :],
            )
            waits = step[0] == "send" and SIZES[tag] > limit
            return (places if waits else ahead), posted, receives
        return (ahead, messages, receives) if mine[0][3] else None
    if step[0] in ("recv", "irecv"):
        _, src, tag = step
        mine = [r for r in receives[rank] if r[2] == at]
        if not mine:
            row = (*receives[rank], (src, tag, at, None))
            posted = (*receives[:rank], row, *receives[rank + 1 :])
            return (ahead if step[0] == "irecv" else places), messages, posted
        return (ahead, messages, receives) if mine[0][3] is not None else None
    if step[0] == "wait":
        started = [i for i, s in enumerate(steps) if s[0] in ("isend", "irecv")][step[1]]
        kind, peer, tag = steps[started]
        if kind == "isend":
            (sent,) = [m for m in messages[peer] if m[0] == rank and m[2] == started]
            done = sent[3] or SIZES[tag] <= limit
        else:
            done = next(r for r in receives[rank] if r[2] == started)[3] is not None
        return (ahead, messages, receives) if done else None
    return None  # a barrier


def _end(program: Program, state: tuple) -> tuple:
    places, _, receives = state
    if any(p < len(s) for p, s in zip(places, program)):
        return ("deadlock",)
    results = []
    for rank, steps in enumerate(program):
        got = [r[3] for r in sorted(receives[rank], key=lambda r: r[2])]
        results.append(repr(sorted_by_wait(got, steps)))
    return ("ended", tuple(results))
