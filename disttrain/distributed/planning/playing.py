"""Plays a layout on the simulator's links, where messages that meet wait for each other.

Every rank has a program: computations, messages that are started, messages that are waited for. The
devices of one layer (tensor parallelism) act as one rank: what they exchange stays on links that
nobody else uses, and counts as computation, as do sequences' and experts' exchanges inside an
island. Pipelines follow their own schedules (``distributed.pipelining``), gathers are started a
layer ahead, reductions when the last micro-batch has made them. Deterministic; no tensors.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from ...comm.transports.sim.fabric import Ports
from ...comm.transports.sim.network import Link, Network
from ...comm.transports.sim.timeline import Timeline
from ...errors import ConfigError
from ..pipelining.actions import Action, Kind, Plan
from ..pipelining.plans import interleaved, one_f_one_b
from .costs import Costs
from .layouts import FSDP, HSDP

MOST_STEPS = 3_000_000


@dataclass(frozen=True)
class Compute:
    seconds: float
    name: str


@dataclass(frozen=True)
class Start:
    """Begin ``verb`` with all of ``group``; whoever needs it waits for ``key``."""

    key: tuple
    verb: str
    group: tuple[int, ...]
    nbytes: float


@dataclass(frozen=True)
class Send:
    key: tuple
    to: int
    nbytes: float


@dataclass(frozen=True)
class Wait:
    key: tuple


Step = Compute | Start | Send | Wait


class Player:
    """One step of a layout."""

    def __init__(self, costs: Costs) -> None:
        lay, machines, c = costs.layout, costs.machines, costs.constants
        self.costs, self.lay = costs, lay
        self.width = lay.data * lay.context
        self.ranks = self.width * lay.pipeline
        near = max(1, machines.island // lay.tensor)
        hosts = tuple(rank // near for rank in range(self.ranks))
        beside = min(machines.island, machines.devices)  # whose adapters an island has together
        local = Link(
            machines.local.latency * c.get("latency"),
            machines.local.bandwidth
            * c.get("fast_links", machines.device.family)
            * min(lay.tensor, machines.island),
        )
        remote = Link(
            machines.network.latency * c.get("latency"),
            machines.network.bandwidth * beside * c.get("network") / machines.oversubscription,
        )
        self.network = Network(hosts, local, remote, "ring")
        self.ports = Ports(self.network)
        self._check_size()
        self.timeline = Timeline(self.ranks)
        self.plan = self._schedule()
        self._prepare()

    def _schedule(self) -> Plan:
        lay = self.lay
        if lay.chunks > 1:
            return interleaved(lay.pipeline, lay.pipeline * lay.chunks, lay.micros)
        return one_f_one_b(lay.pipeline, lay.micros)

    def _check_size(self) -> None:
        layers = self.costs.model.layers if self._gathers else 4
        steps = self.ranks * self.lay.micros * self.lay.chunks * 2 * layers
        if steps > MOST_STEPS:
            raise ConfigError(
                f"{self.lay.name}: about {steps:,} steps are too many to play; at most "
                f"{MOST_STEPS:,} are"
            )

    @property
    def _gathers(self) -> bool:
        return self.lay.sharding in (FSDP, HSDP) and self.lay.shards > 1

    def _prepare(self) -> None:
        """Seconds of a stage's passes, and of a layer's."""
        costs, lay = self.costs, self.lay
        stages = lay.pipeline * lay.chunks
        forward = backward = 0.0
        for sparse, count in costs.kinds.items():
            ahead, back = costs.passes(sparse)
            forward += count * ahead.total
            backward += count * back.total
        first, last = costs.ends()
        layers = costs.model.layers
        self.layers = max(1, layers // stages)
        counts = lay.stage_layers(layers) if lay.chunks == 1 else (1,) * stages
        self.shares = [n / sum(counts) for n in counts]  # of all layers, in each stage
        self.seconds = {Kind.F: forward, Kind.B: backward}
        self.first, self.last = first, last
        self.stages = stages
        self.message = lay.tokens * costs.model.hidden * costs.itemsize
        if not lay.sequence:
            self.message *= lay.tensor
        elements = sum(
            n * costs.model.layer_weights(s, 1, lay.expert) for s, n in costs.kinds.items()
        )
        # of one layer, of all ranks that hold it together
        self.layer_bytes = elements / layers * costs.gathered_size
        self.scattered_bytes = elements / layers * costs.reduced_size
        # a sum is a scatter and a gather of as many bytes
        both = (costs.reduced_size + costs.returned_size) / 2.0
        self.gradient_bytes = elements / lay.pipeline * both
        self.optimizer = costs.times().optimizer

    # -- programs -----------------------------------------------------------------------------

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The ranks with the same stage."""
        begin = rank // self.width * self.width
        return tuple(range(begin, begin + self.width))

    def shards_of(self, rank: int) -> tuple[int, ...]:
        """Those among whom a layer's weights are spread."""
        whole = self.group_of(rank)
        place = (rank - whole[0]) // self.lay.shards * self.lay.shards
        return whole[place : place + self.lay.shards]

    def program(self, rank: int) -> Iterator[Step]:
        """What a rank does in a step."""
        pipe, place = divmod(rank, self.width)
        mine = [a for a in self.plan.orders[pipe] if a.kind in (Kind.F, Kind.B)]
        seen, reduced = 0, []
        for action in mine:
            yield from self._arrival(action, place)
            final = action.kind is Kind.B and action.micro == self.lay.micros - 1
            if self._gathers:
                yield from self._sharded_pass(action, rank, seen)
                seen += 1
            elif final and self.width > 1:
                yield from self._last_pass(action, rank)
                reduced.append(action.stage)
            else:
                yield Compute(self._length(action), str(action))
            yield from self._departure(action, place)
        for stage in reduced:
            for layer in range(self.layers):
                yield Wait(("reduce", pipe, stage, layer))
        yield Compute(self.optimizer, "optimizer")

    def _length(self, action: Action) -> float:
        seconds = self.seconds[action.kind] * self.shares[action.stage]
        thirds = 1.0 if action.kind is Kind.F else 2.0
        if action.stage == 0:
            seconds += self.first * thirds / 3.0
        if action.stage == self.stages - 1:
            seconds += self.last * thirds / 3.0
        return seconds

    def _arrival(self, action: Action, place: int) -> Iterator[Step]:
        step = -1 if action.kind is Kind.F else 1
        before = action.stage + step
        if 0 <= before < self.stages:
            yield Wait((action.kind, before, action.micro, place))

    def _departure(self, action: Action, place: int) -> Iterator[Step]:
        step = 1 if action.kind is Kind.F else -1
        behind = action.stage + step
        if 0 <= behind < self.stages:
            to = self.plan.rank_of[behind] * self.width + place
            key = (action.kind, action.stage, action.micro, place)
            yield Send(key, to, self.message)

    def _last_pass(self, action: Action, rank: int) -> Iterator[Step]:
        """The backward that completes the gradients of a stage: each layer's leave as they are
        made, or all at the end where nothing may overlap."""
        pipe = rank // self.width
        nbytes = self.gradient_bytes / self.lay.chunks / self.layers
        each = self._length(action) / self.layers
        keys = [("reduce", pipe, action.stage, layer) for layer in range(self.layers)]
        starts = [Start(key, "all_reduce", self.group_of(rank), nbytes) for key in keys]
        for start in starts:
            yield Compute(each, str(action))
            if self.lay.overlap:
                yield start
        if not self.lay.overlap:
            yield from starts

    def _sharded_pass(self, action: Action, rank: int, number: int) -> Iterator[Step]:
        """Layer by layer: the next one's weights are on their way while this one computes; a
        backward's gradients leave as they are made."""
        group = self.shards_of(rank)
        each = self._length(action) / self.layers
        mark = (group[0], number)
        slowed = self.costs.constants.get("contention")
        back = action.kind is Kind.B
        moving = self.network.seconds("all_gather", group, self.layer_bytes)
        if back:
            moving += self.network.seconds("reduce_scatter", group, self.scattered_bytes)
        hidden = min(each, moving)
        yield Start(("gather", *mark, 0), "all_gather", group, self.layer_bytes)
        for layer in range(self.layers):
            if layer + 1 < self.layers:
                yield Start(("gather", *mark, layer + 1), "all_gather", group, self.layer_bytes)
            yield Wait(("gather", *mark, layer))
            yield Compute(each + slowed * hidden, str(action))
            if back:
                yield Start(
                    ("scatter", *mark, layer), "reduce_scatter", group, self.scattered_bytes
                )
        if back:
            yield Wait(("scatter", *mark, self.layers - 1))

    # -- playing ------------------------------------------------------------------------------

    def play(self) -> float:
        """The seconds of the step; ``timeline`` tells the rest."""
        programs = [self.program(rank) for rank in range(self.ranks)]
        self._ready: list[tuple[float, int]] = [(0.0, rank) for rank in range(self.ranks)]
        self._done: dict[tuple, tuple[float, float]] = {}
        self._came: dict[tuple, int] = {}
        self._parked: dict[tuple, list[tuple[float, int]]] = {}
        ended = 0.0
        while self._ready:
            now, rank = heapq.heappop(self._ready)
            step = next(programs[rank], None)
            if step is None:
                self.timeline.stepped(rank, now)
                ended = max(ended, now)
            else:
                self._take(step, now, rank)
        if self._parked:
            raise ConfigError(f"{self.lay.name}: {next(iter(self._parked))} never comes")
        return ended

    def _take(self, step: Step, now: float, rank: int) -> None:
        if isinstance(step, Compute):
            self.timeline.computed(rank, now, now + step.seconds)
            heapq.heappush(self._ready, (now + step.seconds, rank))
        elif isinstance(step, Wait):
            self._wait(step.key, now, rank)
        else:
            if isinstance(step, Send):
                link = self.network.link(rank, step.to)
                start, end = self.ports.send(now, link.seconds(0, step.nbytes), rank, step.to)
                name = "send"
                self.timeline.flew((rank, step.to), name, start, end, round(step.nbytes))
                self._arrives(step.key, start, end + link.latency)
            else:
                self._start(step, now)
            heapq.heappush(self._ready, (now, rank))

    def _start(self, step: Start, now: float) -> None:
        came = self._came[step.key] = self._came.get(step.key, 0) + 1
        if came < len(step.group):
            return
        del self._came[step.key]
        seconds = self.network.seconds(step.verb, step.group, step.nbytes)
        start, end = self.ports.take(now, seconds, step.group)
        self.timeline.flew(step.group, step.verb, start, end, round(step.nbytes))
        self._arrives(step.key, start, end)

    def _arrives(self, key: tuple, start: float, end: float) -> None:
        self._done[key] = start, end
        for now, rank in self._parked.pop(key, ()):
            self._wait(key, now, rank)

    def _wait(self, key: tuple, now: float, rank: int) -> None:
        found = self._done.get(key)
        if found is None:
            self._parked.setdefault(key, []).append((now, rank))
            return
        start, end = found
        if end > now:
            self.timeline.waited(rank, str(key[0]), now, end, start)
        heapq.heappush(self._ready, (max(now, end), rank))
