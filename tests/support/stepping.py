"""Ranks that note every step they take, and what must hold of all notes together.

``PROGRAM`` is a script for dtrun: its ranks step together and append a line for each step to a file
of their node, synchronised to the disk, as one who commits. After a restart they go on behind the
last step that anybody has noted, as from a checkpoint that all can read. ``verify`` reads the files
of all nodes:

- no step was committed by two generations (a step is committed once all ranks have noted it),
- no two generations have stepped at the same time,
- no committed step was lost: the next generation goes on behind it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PROGRAM = """
import glob, os, sys, time
import disttrain as dt
from disttrain import distributed as dist
from disttrain.comm.job.segment import Segment

pause, enough, folders = float(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
generation = Segment.attach(int(os.environ["DISTTRAIN_JOB_FD"])).epoch
seen = 0
for path in glob.glob(folders + "/steps.*"):
    lines = open(path).read().split("\\n")[:-1]
    seen = max(seen, int(lines[-1].split()[1]) if lines else 0)
mine = dt.tensor([seen])
everyone = [dt.zeros(1, dtype=mine.dtype) for _ in range(world)]
dist.all_gather(everyone, mine)
step = max(int(t) for t in everyone)
file = os.open(f"steps.{os.environ['LOCAL_RANK']}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    ends, began = dt.tensor([float(os.path.exists(enough))]), time.monotonic()
    dist.all_reduce(ends)
    if float(ends):
        break
    step += 1
    os.write(file, f"{generation} {step} {rank} {world} {time.monotonic()} {began}\\n".encode())
    os.fsync(file)
    time.sleep(pause)
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Note:
    """One line: when ``rank`` of ``world`` had made ``step``, and when it began it, on the clock of
    this machine."""

    generation: int
    step: int
    rank: int
    world: int
    at: float
    began: float


def notes_of(folders: Iterable[Path]) -> list[Note]:
    """All that was noted, in the order of time."""
    found = []
    for folder in folders:
        for path in folder.glob("steps.*"):
            for line in path.read_text().splitlines(keepends=True):
                fields = line.split()
                if line.endswith("\n") and len(fields) == 6:  # none that is being written
                    found.append(Note(*map(int, fields[:4]), *map(float, fields[4:])))
    return sorted(found, key=lambda note: note.at)


def verify(notes: list[Note], frozen: bool = False) -> dict[int, tuple[int, int]]:
    """Raises AssertionError where something does not hold. The first and the last step that each
    generation has committed. ``frozen``: a machine stood still as a whole, and its ranks may have
    ended in their first moment afterwards a step for which the others had sent their parts, before
    anybody there could stop them: such a step counts when its first rank began it, and not at all
    where it was never committed."""
    written: dict[tuple[int, int], set[int]] = defaultdict(set)
    sizes: dict[int, set[int]] = defaultdict(set)
    times: dict[int, list[float]] = defaultdict(list)
    first: dict[tuple[int, int], list[float]] = defaultdict(list)
    for note in notes:
        assert note.rank not in written[note.generation, note.step], f"noted twice: {note}"
        written[note.generation, note.step].add(note.rank)
        sizes[note.generation].add(note.world)
        times[note.generation].append(note.at)
        first[note.generation, note.step].append(note.began)
    assert all(len(size) == 1 for size in sizes.values()), f"of two sizes: {dict(sizes)}"
    committed: dict[int, int] = {}
    for (generation, step), ranks in written.items():
        if len(ranks) == max(sizes[generation]):
            assert step not in committed, f"{step}: {generation} and {committed[step]}"
            committed[step] = generation
    if frozen:
        times = defaultdict(list)
        for step, generation in committed.items():
            times[generation].append(min(first[generation, step]))
    spans: dict[int, tuple[int, int]] = {}
    order = sorted(times)
    for generation in order:
        steps = [step for step, of in committed.items() if of == generation]
        if steps:
            spans[generation] = min(steps), max(steps)
            assert len(steps) == max(steps) - min(steps) + 1, f"generation {generation} has holes"
    for before, after in pairwise(order):
        assert max(times[before]) < min(times[after]), (
            f"generations {before} and {after} have stepped at the same time: until "
            f"{max(times[before])} and from {min(times[after])}"
        )
    held = [spans[generation] for generation in order if generation in spans]
    for (_, last), (after, _) in pairwise(held):
        assert after > last, f"step {last} was lost: {after} came after it"
    return spans


def wait_for(
    folders: Iterable[Path], holds: Callable[[list[Note]], bool], seconds: float = 30.0
) -> list[Note]:
    """The notes, once something holds of them."""
    folders, until = list(folders), time.monotonic() + seconds
    while not holds(notes := notes_of(folders)):
        assert time.monotonic() < until, f"it did not come in {seconds} s; last: {notes[-3:]}"
        time.sleep(0.05)
    return notes


def longest_gap(notes: list[Note], since: float) -> float:
    """The longest time without a step by anybody after ``since``, in seconds."""
    at = [since, *(note.at for note in notes if note.at > since)]
    return max((after - before for before, after in pairwise(at)), default=0.0)
