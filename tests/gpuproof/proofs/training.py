"""Steps of a perceptron, a convolutional net and a small GPT: on the device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.models import make_gpt, make_mlp

import disttrain as dt

from ..journal import Job
from .places import same, start

F = dt.nn.functional
STEPS = 4


def make_cnn() -> Any:
    nn = dt.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 49, 10),
    )  # fmt: skip


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    if kind == "gpt":
        codes = rng.integers(0, 65, (4, 33))
        return codes[:, :-1], codes[:, 1:]
    shape = (16, 784) if kind == "mlp" else (16, 1, 28, 28)
    return rng.standard_normal(shape, dtype=np.float32), rng.integers(0, 10, 16)


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": lambda: make_mlp(dt),
    "cnn": make_cnn,
    "gpt": lambda: make_gpt(dt, 65, 64, 4, 2, 64),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda ps: dt.optim.SGD(ps, lr=0.05, momentum=0.9),
    "adamw": lambda ps: dt.optim.AdamW(ps, lr=1e-3),
}


def train(
    kind: str,
    optimizer: str,
    device: str,
    narrow: bool = False,
    wrap: Callable[[Any], Any] = lambda step: step,
) -> tuple[list, list]:
    """The losses and the weights after ``STEPS`` steps, as ``wrap`` has them, from the same weights
    and data."""
    dt.manual_seed(0)
    number = dt.bfloat16 if narrow else dt.float32
    model = MODELS[kind]().to(device, number)
    inputs, targets = (dt.from_numpy(a).to(device) for a in data(kind))
    inputs = inputs.to(number) if inputs.is_floating_point() else inputs
    steps = OPTIMIZERS[optimizer](model.parameters())

    def step(inputs: Any, targets: Any) -> Any:
        steps.zero_grad()
        scores = model(inputs).float()
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), targets.reshape(-1))
        loss.backward()
        steps.step()
        return loss.detach()

    run = wrap(step)
    losses = [run(inputs, targets) for _ in range(STEPS)]
    return [loss.item() for loss in losses], [p.detach() for p in model.parameters()]


def prove(job: Job) -> None:
    """Each net with each optimizer in float32, and one in bfloat16."""
    start(job)
    for kind in MODELS:
        for optimizer in OPTIMIZERS:
            job.case(f"{kind} {optimizer}", lambda k=kind, o=optimizer: compared(k, o))
        job.case(f"{kind} bfloat16", lambda k=kind: compared(k, "sgd", True))
        job.case(f"{kind} twice alike", lambda k=kind: repeated(k))
        for narrow in (False, True):
            name = f"{kind} compiled{' bfloat16' if narrow else ''}"
            job.case(name, lambda k=kind, n=narrow: compiled(k, n))


def compared(kind: str, optimizer: str, narrow: bool = False) -> str:
    there, mine = train(kind, optimizer, "cuda", narrow)
    here, theirs = train(kind, optimizer, "cpu", narrow)
    tolerance = 5e-2 if narrow else 2e-3
    off = max([same(np.array(there), np.array(here), tolerance)]
              + [same(a, b, tolerance) for a, b in zip(mine, theirs)])  # fmt: skip
    return f"losses {there[0]:.4f} to {there[-1]:.4f}; greatest difference {off:.1e}"


def alike(first: tuple[list, list], second: tuple[list, list], who: str) -> None:
    assert first[0] == second[0], f"losses differ between {who}: {first[0]}, {second[0]}"
    for a, b in zip(first[1], second[1]):
        assert (a == b).all().item(), f"weights differ between {who}"


def repeated(kind: str) -> None:
    """The same bits on each run."""
    first, second = (train(kind, "adamw", "cuda") for _ in range(2))
    alike(first, second, "two runs")


def compiled(kind: str, narrow: bool) -> str:
    """The bits of eager steps, of generated kernels for many operations at once, and of values
    that are computed again."""
    eager = train(kind, "adamw", "cuda", narrow)
    ways: list[dict[str, Any]] = [{}, {"options": {"activation_memory_budget": 0.5}}]
    runs: list[Any] = []
    for words in ways:

        def wrap(step: Any, words: dict[str, Any] = words) -> Any:
            runs.append(dt.compile(step, **words))
            return runs[-1]

        alike(eager, train(kind, "adamw", "cuda", narrow, wrap), f"eager and compiled {words}")
    assert not any(run.eager for run in runs), runs[0].explain()
    fused = sum("fused[" in str(ins.prim.name) for ins in runs[0].graphs[0].instructions)
    return f"{fused} kernels of several operations"
