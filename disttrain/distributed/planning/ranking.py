"""Which layouts there are for a model on a cluster, which of them fit, and which is fastest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from ...errors import ConfigError
from ...sizes import size
from .clusters import Machines
from .constants import Constants
from .costs import STACK, Costs, Times
from .layouts import FSDP, FULL, HSDP, NONE, SELECTIVE, ZERO1, Layout
from .memory import Held, Memory
from .transformer import Transformer

USABLE = 0.95  # of a device's memory: the rest is the driver's, and what no allocator can use
_MOST_MICRO = 16


@dataclass(frozen=True)
class Job:
    """What is to be trained: ``batch`` sequences of ``seq`` tokens a step."""

    model: Transformer
    machines: Machines
    batch: int
    seq: int
    precision: str = "bf16"
    stack: str = STACK

    def __post_init__(self) -> None:
        for name in ("batch", "seq"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} given; needed is 1 or more")
        if 0 < self.model.positions < self.seq:
            raise ConfigError(
                f"seq={self.seq} given; the model has positions={self.model.positions}"
            )
        kind = self.precision.removesuffix("_amp")
        if kind not in self.machines.device.peaks:
            known = ", ".join(sorted(self.machines.device.peaks))
            raise ConfigError(
                f"precision={self.precision!r} given; {self.machines.device.name} has {known}"
            )


@dataclass(frozen=True)
class Choice:
    """A layout, its times and its memory."""

    layout: Layout
    times: Times
    held: Held
    mfu: float
    fits: bool

    def as_row(self) -> dict:
        """For JSON: seconds and bytes."""
        lay = self.layout
        return {
            "name": lay.name,
            "layout": asdict(lay),
            "step_seconds": self.times.total,
            "compute_seconds": self.times.compute,
            "bubble_seconds": self.times.bubble,
            "optimizer_seconds": self.times.optimizer,
            "exposed_seconds": self.times.exposed,
            "exposed": self.times.sent,
            "mfu": self.mfu,
            "memory_bytes": {**asdict(self.held), "total": self.held.total},
            "fits": self.fits,
        }


def divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, min(n, most) + 1) if n % d == 0]


def _meshes(job: Job) -> Iterator[Layout]:
    """Degrees that the model's and the machines' numbers allow, as plain data parallelism."""
    model, machines = job.model, job.machines
    world = machines.devices
    widest = min(machines.island, world, model.heads)
    divided = (model.heads, model.groups, model.width, model.expert_ffn, model.shared_ffn)
    for tensor in divisors(world, widest):
        if any(n % tensor for n in divided):
            continue
        rest = world // tensor
        for pipeline in divisors(rest, model.layers):
            for context in divisors(rest // pipeline, 16):
                if context > 1 and (job.seq % (2 * context) or job.seq < 4096 * context):
                    continue
                data = rest // pipeline // context
                if data > job.batch:
                    continue
                for expert in _experts(model, data * context):
                    yield Layout(job.batch, job.seq, 1, data, tensor, context, pipeline, expert,
                                 precision=job.precision)  # fmt: skip


def _experts(model: Transformer, ranks: int) -> list[int]:
    if not model.experts:
        return [1]
    return [d for d in divisors(ranks, model.experts) if model.experts % d == 0]


def _sharded(job: Job, mesh: Layout) -> Iterator[Layout]:
    yield mesh
    ranks = mesh.data * mesh.context
    if ranks == 1:
        return
    yield replace(mesh, sharding=ZERO1)
    if mesh.pipeline == 1:
        yield replace(mesh, sharding=FSDP)
        near = max(1, job.machines.island // mesh.tensor)
        if 1 < near < ranks and ranks % near == 0 and near % mesh.context == 0:
            yield replace(mesh, sharding=HSDP, replicas=ranks // near)


def layouts(job: Job) -> Iterator[Layout]:
    """All that are looked at."""
    for mesh in _meshes(job):
        each = job.batch // mesh.data
        if job.batch % mesh.data:
            continue
        micros = [m for m in divisors(each, _MOST_MICRO) if m & (m - 1) == 0]
        for base in _sharded(job, mesh):
            for micro in micros:
                for recompute in (NONE, SELECTIVE, FULL):
                    for chunks in (1, 2, 4):
                        found = replace(base, micro=micro, recompute=recompute, chunks=chunks)
                        if chunks == 1 or _interleaves(job, found):
                            yield found


def _interleaves(job: Job, lay: Layout) -> bool:
    stages = lay.pipeline * lay.chunks
    return lay.pipeline > 1 and job.model.layers % stages == 0 and lay.micros % lay.pipeline == 0


def judge(job: Job, layout: Layout, constants: Constants) -> Choice:
    """What one layout takes."""
    costs = Costs(job.model, layout, job.machines, constants, job.stack)
    times, held = costs.times(), Memory(costs).held()
    work = job.model.flops(job.seq) * job.batch * job.seq
    mfu = work / (times.total * job.machines.devices * job.machines.device.peaks[costs.kind])
    fits = held.total <= USABLE * job.machines.device.memory
    return Choice(layout, times, held, mfu, fits)


@dataclass(frozen=True)
class Ranking:
    """``best``: of each strategy the fastest that fits, fastest first. ``ruled_out``: of each that
    never fits what needs least."""

    job: Job
    best: list[Choice]
    ruled_out: list[Choice]
    looked_at: int


def rank(job: Job, constants: Constants) -> Ranking:
    """Raises ``ConfigError`` where the batch cannot be divided in any way."""
    fastest: dict[str, Choice] = {}
    smallest: dict[str, Choice] = {}
    count, fitting = 0, set()
    for layout in layouts(job):
        count += 1
        base = replace(layout, recompute=NONE)
        if base in fitting:
            continue  # to compute more again takes longer, and is not needed
        choice = judge(job, layout, constants)
        name = replace(layout, chunks=1).name
        if choice.fits:
            fitting.add(base)
            if name not in fastest or choice.times.total < fastest[name].times.total:
                fastest[name] = choice
        elif name not in smallest or choice.held.total < smallest[name].held.total:
            smallest[name] = choice
    if not count:
        raise ConfigError(
            f"a batch of {job.batch} cannot be divided among {job.machines.devices} devices of "
            f"{job.machines.name}; give one that their number of replicas divides"
        )
    best = sorted(fastest.values(), key=lambda c: c.times.total)
    out = [c for name, c in smallest.items() if name not in fastest]
    return Ranking(job, best, sorted(out, key=lambda c: c.held.total), count)


_HEADS = ("strategy", "micro", "recompute", "step", "MFU", "exposed", "bubble", "memory")


def _cells(choice: Choice) -> list[str]:
    lay, times = choice.layout, choice.times
    return [
        lay.name,
        str(lay.micro),
        lay.recompute,
        f"{times.total:.3f} s",
        f"{100 * choice.mfu:.1f} %",
        f"{100 * times.exposed / times.total:.1f} %",
        f"{100 * times.bubble / times.total:.1f} %",
        size(round(choice.held.total)),
    ]


def lined_up(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns: the first one to the left, others to the right."""
    widths = [max(len(r[i]) for r in [heads, *rows]) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        rest = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *rest])

    return [line(r) for r in [heads, *rows]]


def as_text(ranking: Ranking, most: int = 10) -> str:
    """The table for people."""
    job = ranking.job
    device = job.machines.device
    lines = [
        f"{job.model.weights / 1e9:.3g} billion weights on {job.machines.devices} {device.name} "
        f"({job.machines.name}); {job.batch} sequences of {job.seq} tokens, {job.precision}; "
        f"{ranking.looked_at} layouts"
    ]
    if ranking.best:
        lines += lined_up(_HEADS, [_cells(c) for c in ranking.best[:most]])
        if len(ranking.best) > most:
            lines.append(f"... and {len(ranking.best) - most} slower ones")
    else:
        lines.append("none fits")
    room = size(round(USABLE * device.memory))
    for choice in ranking.ruled_out[:most]:
        lay = replace(choice.layout, chunks=1)
        lines.append(
            f"ruled out: {lay.name}: needs {size(round(choice.held.total))} at the least, "
            f"a device has room for {room}"
        )
    if len(ranking.ruled_out) > most:
        lines.append(f"... and {len(ranking.ruled_out) - most} more that do not fit")
    return "\n".join(lines)


def as_json(ranking: Ranking, played: Sequence[dict] = ()) -> str:
    """All of it, seconds and bytes."""
    job = ranking.job
    table = {
        "cluster": job.machines.name,
        "devices": job.machines.devices,
        "weights": job.model.weights,
        "batch": job.batch,
        "seq": job.seq,
        "precision": job.precision,
        "layouts": ranking.looked_at,
        "best": [c.as_row() for c in ranking.best],
        "ruled_out": [c.as_row() for c in ranking.ruled_out],
        "played": list(played),
    }
    return json.dumps(table, indent=1)
