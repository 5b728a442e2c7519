"""A training step of a small perceptron, whose time is that of launching: eager, and as a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.models import images, make_mlp

from ..journal import Job
from .libraries import compare, libraries, wait
from .places import start, with_graphs


def prove(job: Job) -> None:
    """Microseconds of a step with 64 samples."""
    start(job)
    found = libraries(job)
    how = {"rounds": 9, "inner": 100} if job.real else {"rounds": 1, "inner": 2}
    eager = {key: step_of(T) for key, T in found.items()}
    compare(job, "MLP step, eager", eager, "us", lambda s: s * 1e6, **how)
    job.case("MLP step, graph", lambda: _graphs(job, found, how))


def step_of(T: Any) -> Callable[[], Any]:
    """A step: forward, backward, SGD with momentum, on the same batch."""
    model = make_mlp(T).to("cuda")
    x, y = (t.to("cuda") for t in images(T, 64, 784))
    optimizer = T.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step() -> Any:
        optimizer.zero_grad()
        loss = T.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def graphed(T: Any) -> Callable[[], Any]:
    """The same step recorded once: each call replays it."""
    step, side = step_of(T), T.cuda.Stream()
    side.wait_stream(T.cuda.current_stream())
    with T.cuda.stream(side):
        for _ in range(3):
            step()
    T.cuda.current_stream().wait_stream(side)
    wait()
    graph = T.cuda.CUDAGraph()
    with T.cuda.graph(graph):
        step()
    return graph.replay


def _graphs(job: Job, found: dict[str, Any], how: dict[str, int]) -> None:
    ours = found["disttrain"]
    with_graphs(ours.cuda)
    ways = {"disttrain": graphed(ours)}
    if "PyTorch" in found:
        ways |= {
            "PyTorch eager": step_of(found["PyTorch"]),
            "PyTorch graph": graphed(found["PyTorch"]),
        }
    compare(job, "MLP step, CUDA graph", ways, "us", lambda s: s * 1e6,
            "at most 0.67x of PyTorch eager", **how)  # fmt: skip
