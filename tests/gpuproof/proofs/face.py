"""What ``dt.cuda`` promises, as ``torch.cuda`` does: on the device, by its results."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ..journal import Job
from .places import same, start, with_graphs

CASES: dict[str, Callable[[Any], Any]] = {}


def case(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[fn.__name__.replace("_", " ")] = fn
    return fn


def prove(job: Job) -> None:
    """All cases; each is given ``dt.cuda``."""
    start(job)
    cuda = importlib.import_module("disttrain.cuda")
    for name, fn in CASES.items():
        job.case(name, lambda fn=fn: fn(cuda))


@case
def names_and_numbers(cuda: Any) -> str:
    assert cuda.is_available() and cuda.device_count() >= 1
    props = cuda.get_device_properties(0)
    assert props.total_memory > 0 and cuda.get_device_name(0) == props.name
    assert cuda.get_device_capability(0) == (props.major, props.minor)
    return f"{props.name}, {props.total_memory / 2**30:.0f} GiB, {props.major}.{props.minor}"


@case
def there_and_back(cuda: Any) -> None:
    for kind in ("float32", "bfloat16", "float16", "float64", "int64", "bool", "complex64"):
        host = (dt.arange(24).reshape(4, 6) % 7).to(getattr(dt, kind))
        there = host.to("cuda")
        assert there.is_cuda and there.device == dt.device("cuda", 0)
        assert (there.t().cpu() == host.t()).all().item()
        assert (there[1:, ::2].contiguous().cpu() == host[1:, ::2]).all().item()


@case
def pinned_memory_and_copies_that_do_not_wait(cuda: Any) -> None:
    host = dt.arange(1 << 16).float().pin_memory()
    assert host.is_pinned()
    there = host.to("cuda", non_blocking=True)
    back = (there * 2).to("cpu", non_blocking=True)
    cuda.synchronize()
    assert (back == host * 2).all().item()


@case
def mixed_devices_are_refused(cuda: Any) -> None:
    try:
        dt.ones(3) + dt.ones(3, device="cuda")
    except RuntimeError as error:
        assert "cpu" in str(error) and "cuda:0" in str(error)
    else:
        raise AssertionError("a sum over two devices was not refused")


@case
def streams_wait_for_events(cuda: Any) -> None:
    side, event = cuda.Stream(), cuda.Event(enable_timing=True)
    ended = cuda.Event(enable_timing=True)
    a = dt.ones(1 << 20, device="cuda")
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        event.record()
        for _ in range(20):
            a = a * 1.01
        ended.record()
    cuda.current_stream().wait_event(ended)
    total = a.sum().item()
    assert abs(total / (1.01**20 * (1 << 20)) - 1) < 1e-3
    ended.synchronize()
    assert ended.query() and event.elapsed_time(ended) >= 0


@case
def the_same_seed_gives_the_same_numbers(cuda: Any) -> None:
    draws = []
    for _ in range(2):
        dt.manual_seed(7)
        draws.append([dt.randn(1000, device="cuda"), dt.rand(999, device="cuda")])
    for one, other in zip(*draws):
        assert (one == other).all().item()
    state = cuda.get_rng_state()
    first = dt.randn(100, device="cuda")
    cuda.set_rng_state(state)
    assert (dt.randn(100, device="cuda") == first).all().item()
    normal = dt.randn(1 << 18, device="cuda").cpu().numpy()
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02


@case
def memory_is_counted(cuda: Any) -> None:
    cuda.synchronize()
    before = cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    a = dt.empty(1 << 20, device="cuda")
    assert cuda.memory_allocated() - before >= 4 << 20
    del a
    assert cuda.memory_allocated() == before
    assert cuda.max_memory_allocated() >= before + (4 << 20)
    cuda.empty_cache()


@case
def too_much_memory_is_an_error_that_can_be_survived(cuda: Any) -> None:
    total = cuda.get_device_properties(0).total_memory
    try:
        dt.empty(total, device="cuda")  # four times what there is
    except cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("memory that is not there was given")
    assert dt.ones(3, device="cuda").sum().item() == 3


@case
def a_graph_repeats_what_it_recorded(cuda: Any) -> None:
    with_graphs(cuda)
    x = dt.zeros(1000, device="cuda")
    graph = cuda.CUDAGraph()
    (x + 1).sum()  # kernels are made before
    cuda.synchronize()
    with cuda.graph(graph):
        y = x * 2 + 1
    x.copy_(dt.arange(1000, device="cuda").float())
    graph.replay()
    same(y, np.arange(1000) * 2 + 1, 1e-6)


@case
def saved_tensors_come_back(cuda: Any) -> None:
    import io

    file = io.BytesIO()
    there = dt.arange(10, device="cuda").float()
    dt.save({"a": there}, file)
    file.seek(0)
    assert dt.load(file)["a"].is_cuda
    file.seek(0)
    assert not dt.load(file, map_location="cpu")["a"].is_cuda
