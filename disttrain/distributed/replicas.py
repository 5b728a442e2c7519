"""Replicas: ranks that compute the same model on their parts of a batch. What they draw, and how
their values come together; how several ranks are told of each other by ``TF_CONFIG``."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..comm.job.worker_env import read_worker_env
from ..core import Tensor
from ..core.random import default_generator
from ..errors import ConfigError
from ..ops.functions.views.join import cat
from ..settings import TF_CONFIG
from .collectives.tensors import broadcast_object_list
from .groups.new_group import get_rank, get_world_size
from .groups.state import init_process_group, is_initialized
from .nn import functional


def ranks(join: bool = True) -> tuple[int, int]:
    """This rank, and how many there are. ``join``: join the group, where several were started."""
    if not is_initialized() and not (join and _join()):
        return 0, 1
    return get_rank(), get_world_size()


def _join() -> bool:
    if read_worker_env().world_size > 1:
        init_process_group()
        return True
    cluster, kind, index = cluster_told()
    places = [(k, i) for k in ("chief", "worker") for i in range(len(cluster.get(k, [])))]
    if len(places) < 2:
        return False
    if (kind, index) not in places:
        raise ConfigError(f"TF_CONFIG: the task {kind} {index} is not in the cluster {cluster}")
    first = cluster[places[0][0]][0]
    rank = places.index((kind, index))
    init_process_group(init_method=f"tcp://{first}", rank=rank, world_size=len(places))
    return True


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


@contextmanager
def same_draws(
    more: Callable[[], Any] = lambda: None, put: Callable[[Any], None] = lambda state: None
) -> Iterator[None]:
    """All ranks draw what rank 0 draws, from this library's, numpy's and Python's streams; after
    the block each goes on with its own numbers. ``more``, ``put``: the state of another stream."""
    mine = (default_generator.get_state(), np.random.get_state(), random.getstate(), more())
    states = [mine]
    broadcast_object_list(states, 0)
    _set(states[0], put)
    try:
        yield
    finally:
        if get_rank():
            _set(mine, put)


def _set(states: tuple, put: Callable[[Any], None]) -> None:
    default_generator.set_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
    put(states[3])


def together(x: Tensor, mean: bool = False) -> Tensor:
    """The sum, or the mean, of the ranks' ``x``, of its type; gradients go through it."""
    out = functional.all_reduce(x)
    return (out / get_world_size()).to(x.dtype) if mean else out


def after_another(x: Tensor, dim: int) -> Tensor:
    """The ranks' ``x``, one after the other along ``dim``."""
    return cat(list(functional.all_gather(x)), dim)
