"""What to do when an agent on Ray begins, ends, or is lost with its machine. Pure.

A slot is a node of the job: a bundle of the placement group. A machine that is lost is replaced by
another one as soon as Ray has one, and the agent there joins the others; that is no failure of the
program. Once an agent has ended by itself the job ends, and nothing is replaced any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

QUICK = 30.0  # an agent that is lost sooner has hardly begun
MOST_QUICK = 5  # so many of them in a row, and something is wrong with every machine
GIVEN_UP = 76  # exit code: the job has lost its machines


@dataclass
class Slot:
    """One node. ``begun``: when its agent was started; None while there is none."""

    begun: float | None = None
    code: int | None = None  # of an agent that has ended
    quick: int = 0  # agents in a row that were lost at once


@dataclass
class Slots:
    """All nodes of a job."""

    count: int
    slots: list[Slot] = field(default_factory=list)
    first: int | None = None  # the code of the first agent that has ended badly
    given_up: str = ""

    def __post_init__(self) -> None:
        self.slots = [Slot() for _ in range(self.count)]

    def started(self, number: int, now: float) -> None:
        """An agent was started on that node."""
        self.slots[number].begun = now

    def ended(self, number: int, code: int) -> None:
        """An agent has ended by itself."""
        self.slots[number].code = code
        if code and self.first is None:
            self.first = code

    def lost(self, number: int, now: float) -> None:
        """A machine, and what ran there, is gone."""
        slot = self.slots[number]
        quick = slot.begun is not None and now - slot.begun < QUICK
        slot.quick = slot.quick + 1 if quick else 0
        slot.begun = None
        if slot.quick >= MOST_QUICK:
            self.given_up = f"node {number} was lost {slot.quick} times within {QUICK:g} s"

    @property
    def ending(self) -> bool:
        """Is the job coming to its end?"""
        return bool(self.given_up) or any(slot.code is not None for slot in self.slots)

    @property
    def wanted(self) -> list[int]:
        """The nodes for which an agent is to be started."""
        if self.ending:
            return []
        return [n for n, slot in enumerate(self.slots) if slot.begun is None]

    @property
    def running(self) -> list[int]:
        """The nodes on which an agent runs."""
        return [
            n for n, slot in enumerate(self.slots) if slot.begun is not None and slot.code is None
        ]

    @property
    def over(self) -> bool:
        return bool(self.given_up) or (self.ending and not self.running)

    @property
    def code(self) -> int:
        """The exit code of the job: that of the agent that ended badly first."""
        return GIVEN_UP if self.given_up else self.first or 0


def bundle(nproc: str, num_nodes: int, machines: list[dict[str, float]]) -> dict[str, float]:
    """What a node needs of its machine. ``machines``: what each has. As many GPUs as ranks where
    enough machines have them, since Ray shows an agent no others.

    Raises ``ValueError`` where ``nproc`` is a word and the machines do not say what it means.
    """

    def of_each(kind: str) -> int:
        """So many have all of the best ``num_nodes`` machines."""
        have = sorted((int(machine.get(kind, 0)) for machine in machines), reverse=True)
        return have[num_nodes - 1] if len(have) >= num_nodes else 0

    if nproc in ("gpu", "auto") and of_each("GPU"):
        return {"CPU": 1.0, "GPU": float(of_each("GPU"))}
    if nproc in ("cpu", "auto") and of_each("CPU"):
        return {"CPU": float(of_each("CPU"))}
    if not nproc.isdigit():
        raise ValueError(
            f"--nproc-per-node {nproc}: Ray has no {num_nodes} machines with such devices now; "
            "give a number (an autoscaler starts machines for it)"
        )
    ranks = float(nproc)
    return {"CPU": ranks, **({"GPU": ranks} if of_each("GPU") >= ranks else {})}


def num_ranks(nproc: str, needs: dict[str, float]) -> int:
    """The ranks of each node."""
    return int(nproc) if nproc.isdigit() else int(needs.get("GPU") or needs["CPU"])
