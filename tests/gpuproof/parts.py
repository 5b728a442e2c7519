"""The parts of the proof, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """``proofs/<name>.py`` has its ``prove(job)``. ``seconds``: its limit. ``alone``: it measures,
    so nothing runs beside it. ``shards``: it is divided among so many processes. ``patience``:
    seconds for one case, after which the others go on without it."""

    name: str
    title: str
    seconds: float
    alone: bool = False
    shards: int = 1
    patience: float = 45


PARTS = (
    Part("environment", "The machine", 60),
    Part("primitives", "Every primitive: cpu = cuda", 200, shards=3),
    Part("kernels", "Kernels against numpy", 200, shards=2),
    Part("face", "torch.cuda's names: streams, events, random numbers, memory", 100),
    Part("training", "Training steps: cpu = cuda", 150),
    Part(
        "ranks", "Two ranks on one device: DDP, FSDP, collectives, mismatch, kill", 200, patience=70
    ),
    Part("speed_ops", "Speed: launches, products, attention", 70, alone=True),
    Part("speed_mlp", "Speed: a step that is bound by launches", 50, alone=True),
    Part("speed_gpt", "Speed: GPT-2 124M in bfloat16", 140, alone=True, patience=110),
    Part("speed_reduce", "Speed: all-reduce between two ranks", 60, alone=True),
)
BUDGET = 570.0  # seconds for all of them


def chosen(names: str) -> tuple[Part, ...]:
    """The parts of a list such as ``face,ranks``; the environment is always among them."""
    wanted = {n.strip() for n in names.split(",")} if names else {p.name for p in PARTS}
    unknown = wanted - {p.name for p in PARTS}
    if unknown:
        raise ValueError(f"--only {names}: {sorted(unknown)} given; parts are "
                         f"{', '.join(p.name for p in PARTS)}")  # fmt: skip
    return tuple(p for p in PARTS if p.name in wanted | {"environment"})
