"""GPT-2 with 124 million parameters in bfloat16: tokens a second, share of the device's peak, and
memory, beside PyTorch eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.models import make_gpt

from ..journal import Job
from ..timing import gpt_flops, in_turns, peak_of
from .libraries import libraries, wait
from .places import start

REAL = {"vocab": 50304, "width": 768, "heads": 12, "layers": 12, "context": 1024, "batch": 8}
OURS = "disttrain, dt.compile"
SMALL = {"vocab": 96, "width": 32, "heads": 2, "layers": 2, "context": 16, "batch": 2}


def prove(job: Job) -> None:
    """First ours beside eager, which is soon there; then what dt.compile makes, beside what
    torch.compile makes."""
    start(job)
    found = libraries(job)
    size = dict(REAL if job.real else SMALL)
    ours = found["disttrain"]
    how = {"rounds": 5, "inner": 4} if job.real else {"rounds": 1, "inner": 1}
    steps: dict[str, Callable[[], Any]] = {}

    def ready() -> None:
        steps["disttrain"], model = step_of(ours, size)
        size["parameters"] = sum(p.numel() for p in model.parameters())
        job.journal.note(
            f"{size['parameters']:,} parameters, batches of {size['batch']} x {size['context']}, "
            "bfloat16 weights, AdamW"
        )

    job.case("steps of GPT-2 124M", ready)
    torch = found.get("PyTorch")
    job.case("peak memory of a step", lambda: _memory(job, found, size))
    if torch is not None:
        eager = "PyTorch eager"
        job.case("PyTorch is ready", lambda: steps.update({eager: step_of(torch, size)[0]}))
    job.case("tokens a second beside eager", lambda: _speed(job, ours, steps, size, how, ""))
    job.case("dt.compile is ready", lambda: steps.update({OURS: _compiled(ours, size)}))
    if torch is not None:
        name = "PyTorch, torch.compile"
        job.case("torch.compile is ready", lambda: steps.update({name: _compiled(torch, size)}))
    bar = "at least 0.8x, hoped 1.05x"
    job.case("tokens a second, compiled", lambda: _speed(job, ours, steps, size, how, bar, OURS))
    job.case("peak memory of a step, compiled", lambda: _memory(job, found, size, True))


def step_of(T: Any, size: dict[str, int], compiled: bool = False) -> tuple[Callable[[], Any], Any]:
    """A training step on one batch of random codes, and the model. ``compiled``: ours as a whole,
    PyTorch's forward and backward, whose optimizer is one kernel."""
    shape = {k: size[k] for k in ("vocab", "width", "heads", "layers", "context")}
    T.manual_seed(0)
    model = make_gpt(T, **shape)
    model.head.weight = model.tokens.weight
    model = model.to("cuda").to(T.bfloat16)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, size["vocab"], (size["batch"], size["context"] + 1))
    x, y = (T.from_numpy(np.ascontiguousarray(a)).to("cuda") for a in (codes[:, :-1], codes[:, 1:]))
    kind = {"fused": True} if T.__name__ == "torch" else {}
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-4, **kind)

    def loss_of(x: Any, y: Any) -> Any:
        scores = model(x)
        return T.nn.functional.cross_entropy(scores.reshape(-1, size["vocab"]), y.reshape(-1))

    theirs = T.__name__ == "torch"
    forward = T.compile(loss_of) if compiled and theirs else loss_of

    def step() -> Any:
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss

    return T.compile(step) if compiled and not theirs else step, model


def _compiled(T: Any, size: dict[str, int]) -> Callable[[], Any]:
    step, _ = step_of(T, size, compiled=True)
    for _ in range(4):
        step()
    wait()
    assert not getattr(step, "eager", None), step.explain()  # type: ignore[attr-defined]
    return step


def _speed(
    job: Job,
    T: Any,
    steps: dict[str, Any],
    size: dict[str, int],
    how: dict[str, int],
    bar: str,
    own: str = "disttrain",
) -> None:
    tokens = size["batch"] * size["context"]
    found = {k: tokens / s for k, s in in_turns(steps, wait, **how).items()}
    mine = found.pop(own)
    words = ", compiled" if own == OURS else ""
    job.journal.number(f"GPT-2 124M bf16{words}", mine, "tokens/s", bar=bar,
                       **({"beside": found} if found else {}))  # fmt: skip
    peak = peak_of(T.cuda.get_device_name(0)) if job.real else None
    if peak is not None:
        each = gpt_flops(size["parameters"], size["layers"], size["width"], size["context"])
        share = {k: 100 * v * each / (peak * 1e12) for k, v in found.items()}
        own_share = 100 * mine * each / (peak * 1e12)
        job.journal.number(f"share of {peak:.0f} TFLOP/s{words}", own_share, "%",
                           **({"beside": share} if share else {}))  # fmt: skip


def _memory(job: Job, found: dict[str, Any], size: dict[str, int], compiled: bool = False) -> None:
    """The most that tensors held in two steps, of each library by itself."""
    peaks = {}
    for key, T in found.items():
        T.cuda.empty_cache()
        T.cuda.reset_peak_memory_stats()
        before = T.cuda.memory_allocated()
        step, model = step_of(T, size, compiled)
        if compiled:  # (what is run once, to see what it does, holds more)
            for _ in range(3):
                step()
            wait()
            T.cuda.reset_peak_memory_stats()
        for _ in range(2):
            step()
        wait()
        peaks[key] = (T.cuda.max_memory_allocated() - before) / 2**20
        del step, model
        T.cuda.empty_cache()
    mine = peaks.pop("disttrain")
    name = "peak memory, compiled" if compiled else "peak memory"
    job.journal.number(name, mine, "MiB", bar="at most 1.00x",
                       **({"beside": peaks} if peaks else {}))  # fmt: skip
