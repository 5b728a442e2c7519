"""How a training is laid out over devices: the degrees of each kind of parallelism. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..pipelining.check import run_on_paper
from ..pipelining.plans import interleaved, one_f_one_b

DDP, ZERO1, FSDP, HSDP = "ddp", "zero1", "fsdp", "hsdp"
NONE, SELECTIVE, FULL = "none", "selective", "full"


@dataclass(frozen=True)
class Layout:
    """``data`` x ``context`` x ``tensor`` x ``pipeline`` devices; experts are spread over
    ``expert`` of the ``data`` x ``context`` ones. ``chunks``: stages of a pipeline's rank.
    ``replicas``: of HSDP's shards. ``precision``: "bf16", "fp8", "fp32", or with "_amp" one of them
    over float32 weights. ``sequence``: norms and residuals are divided as tensors are.
    ``recompute``: nothing, what is cheap (results of norms and activations, scores where they would
    be kept), or whole layers. ``overlap``: reductions of gradients run beside the backward.
    ``fused``: scores of attention are not kept. ``split``: layers of each stage (empty: as equal as
    can be, the first ones more). ``in_pieces``: what tensor parallelism exchanges is cut into as
    many pieces as it has ranks, which travel beside the products they belong to. ``reduced``: bytes
    of a gradient that is sent (0: as the precision and the sharding say)."""

    batch: int
    seq: int
    micro: int = 1
    data: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1
    chunks: int = 1
    sharding: str = DDP
    replicas: int = 1
    recompute: str = NONE
    precision: str = "bf16"
    sequence: bool = True
    overlap: bool = True
    fused: bool = True
    split: tuple[int, ...] = ()
    in_pieces: bool = False
    reduced: int = 0

    @property
    def devices(self) -> int:
        return self.data * self.context * self.tensor * self.pipeline

    @property
    def micros(self) -> int:
        """Micro-batches of a step, the last one perhaps smaller."""
        return max(1, -(-self.batch // (self.micro * self.data)))

    @property
    def tokens(self) -> float:
        """Of one device in a micro-batch, on average."""
        return self.batch / (self.data * self.micros) * self.seq / self.context

    @property
    def shards(self) -> int:
        """Devices over which weights are spread, beside those of one layer."""
        whole = self.data * self.context
        return whole // self.replicas if self.sharding in (FSDP, HSDP) else 1

    def stage_layers(self, layers: int) -> tuple[int, ...]:
        """How many of ``layers`` each rank of a pipeline has."""
        if self.split:
            return self.split
        each, rest = divmod(layers, self.pipeline)
        return tuple(each + (i < rest) for i in range(self.pipeline))

    @property
    def name(self) -> str:
        parts = [self.sharding if self.data * self.context > 1 else "single"]
        for label, value in (("dp", self.data), ("tp", self.tensor), ("pp", self.pipeline),
                             ("cp", self.context), ("ep", self.expert)):  # fmt: skip
            if value > 1:
                parts.append(f"{label}{value}")
        if self.chunks > 1:
            parts.append(f"x{self.chunks}")
        if self.sharding == HSDP:
            parts.append(f"({self.replicas} replicas)")
        return " ".join(parts)


@lru_cache(maxsize=4096)
def bubble(ranks: int, chunks: int, micros: int) -> float:
    """What a pipeline waits for, in micro-batches of a whole rank: by its schedule, run on paper
    with few micro-batches, since more of them make it longer by themselves alone."""
    if ranks == 1:
        return 0.0
    few = min(micros, 2 * ranks)
    if chunks > 1:
        few = max(ranks, few - few % ranks)
        plan = interleaved(ranks, ranks * chunks, few)
    else:
        plan = one_f_one_b(ranks, few)
    length = run_on_paper(plan).length / (3.0 * chunks)
    return max(0.0, length - few)
