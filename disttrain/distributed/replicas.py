"""Copies of one model on all ranks, each for its part of a batch: who takes which rows, what they
draw, how copies begin alike and their values come together; how several ranks are told of each
other by ``TF_CONFIG``. For loops that are not DDP's: there the gradients are at hand at once, and
backward is over. Every rank makes the same calls in the same order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import context
from ..comm.job.worker_env import read_worker_env
from ..core.random import get_rng_state, set_rng_state
from ..core.tensor import Tensor, wrap
from ..errors import ConfigError, ShapeError
from ..ops import tensor, zeros_like
from ..ops.functions.creation import create
from ..ops.functions.views.join import cat
from ..settings import TF_CONFIG
from .collectives import objects
from .collectives.tensors import all_reduce, all_reduce_coalesced, broadcast
from .groups.new_group import get_rank, get_world_size
from .groups.state import group_or_default, init_process_group, is_initialized
from .nn import functional


def place(join: bool = True) -> tuple[int, int]:
    """This rank and how many there are. ``join``: where several were started and the program has
    not joined their group, it does now."""
    if not is_initialized() and not (join and _join()):
        return 0, 1
    return get_rank(), get_world_size()


def _join() -> bool:
    if read_worker_env().world_size > 1:
        init_process_group()
        return True
    cluster, kind, index = cluster_told()
    places = [(k, i) for k in ("chief", "worker") for i in range(len(_addresses(cluster, k)))]
    alone = len(places) < 2 and kind not in ("chief", "worker")  # an evaluator, a server
    if places and (kind, index) not in places and not alone:
        raise ConfigError(f"TF_CONFIG: the task {kind} {index} is not in the cluster {cluster}")
    if len(places) < 2:
        if simulated := context.current().world_size > 1:
            init_process_group()
        return simulated
    first = cluster[places[0][0]][0]
    rank = places.index((kind, index))
    init_process_group(init_method=f"tcp://{first}", rank=rank, world_size=len(places))
    return True


def _addresses(cluster: dict, kind: str) -> list[str]:
    """Where the tasks of a kind are: host:port each."""
    found = cluster.get(kind, [])
    for address in found if isinstance(found, list) else [found]:
        host, _, port = str(address).rpartition(":")
        fits = host and port.isdecimal() and 0 < int(port) < 65536
        if not (isinstance(found, list) and fits):
            raise ConfigError(f"TF_CONFIG: {address!r} given for {kind}; a list of addresses, each "
                              "host:port, is needed")  # fmt: skip
    return found


def cluster_told(text: str | None = None) -> tuple[dict[str, list[str]], str, int]:
    """The cluster (addresses by kind of task), the kind of this task and its number, as ``text``
    (None: the variable ``TF_CONFIG``) says in JSON."""
    said = TF_CONFIG.text() if text is None else text
    try:
        told = json.loads(said or "{}")
        task = told.get("task", {})
        return dict(told.get("cluster", {})), task.get("type", "worker"), int(task.get("index", 0))
    except (ValueError, AttributeError, TypeError) as error:
        what = f"{said!r} given, which is no description of a cluster: {error}"
        raise ConfigError(f"TF_CONFIG: {what}") from None


def rows(count: int) -> tuple[slice, float]:
    """Which of a batch's ``count`` rows this rank takes, and their share of all: neighbours, as
    many on each as can be. A rank that none is left for takes the first, with a share of 0."""
    rank, size = place()
    begin, end = rank * count // size, (rank + 1) * count // size
    return (slice(begin, end), (end - begin) / count) if end > begin else (slice(0, 1), 0.0)


def own_rows(count: int) -> tuple[slice, float]:
    """The same where each rank has ``count`` of its own: all, and their share of all ranks'."""
    total = tensor([float(count)])
    all_reduce(total)
    return slice(None), count / total.item()


def summed(tensors: Sequence[Any], share: float = 1.0) -> list[Any]:
    """The sums over ranks of ``share`` times each tensor, outside the graph; None stays None. With
    the shares of rows: the mean over all rows of what is a mean over each rank's; nothing of a
    share of 0."""
    found = [t for t in tensors if t is not None]
    out = [t.detach() * share if share else zeros_like(t) for t in found]
    all_reduce_coalesced(out)
    rest = iter(out)
    return [None if t is None else next(rest) for t in tensors]


def begin_alike(tensors: Sequence[Tensor]) -> None:
    """Rank 0's values in place of all others', and its generators of random numbers (ours, numpy's,
    Python's): what is drawn next is the same everywhere."""
    for t in tensors:
        broadcast(t, 0)
    _set(objects.broadcast(group_or_default(), _states(), 0))


@contextmanager
def same_draws(
    more: Callable[[], Any] = lambda: None, put: Callable[[Any], None] = lambda state: None
) -> Iterator[None]:
    """All ranks draw what rank 0 draws, from this library's, numpy's and Python's streams; after
    the block each goes on with its own numbers. ``more``, ``put``: the state of another stream."""
    mine = (*_states(), more())
    states = objects.broadcast(group_or_default(), mine, 0)
    _set(states[:3])
    put(states[3])
    try:
        yield
    finally:
        if get_rank():
            _set(mine[:3])
            put(mine[3])


def _states() -> tuple:
    return get_rng_state(), np.random.get_state(), random.getstate()


def _set(states: tuple) -> None:
    ours, numpys, pythons = states
    set_rng_state(ours)
    np.random.set_state(numpys)
    random.setstate(pythons)


def together(x: Tensor, mean: bool = False) -> Tensor:
    """The sum, or the mean, of the ranks' ``x``, of its type; gradients go through it."""
    out = functional.all_reduce(x)
    return (out / get_world_size()).to(x.dtype) if mean else out


def after_another(x: Tensor, dim: int) -> Tensor:
    """The ranks' ``x``, one after the other along ``dim``, where their sizes may differ."""
    at = dim % max(x.ndim, 1)
    told = functional.all_gather(wrap(np.array(tuple(x.shape), np.int64)))
    shapes = [[int(n) for n in t.tolist()] for t in told]
    if any(s[:at] + s[at + 1 :] != shapes[0][:at] + shapes[0][at + 1 :] for s in shapes):
        raise ShapeError(f"the ranks' values to be gathered along {dim} have the shapes {shapes}; "
                         "their other sizes have to be alike")  # fmt: skip
    if all(s == shapes[0] for s in shapes):
        return cat(list(functional.all_gather(x)), dim)
    longest = max(s[at] for s in shapes)
    fill = create.zeros(*x.shape[:at], longest - x.shape[at], *x.shape[at + 1 :], dtype=x.dtype)
    rows = functional.all_gather(cat([x, fill], at))
    return cat([t.narrow(at, 0, s[at]) for t, s in zip(rows, shapes, strict=True)], at)
