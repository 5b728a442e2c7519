"""What runs in a worker process of a DataLoader: ask, load, send; until the other side is gone."""

from __future__ import annotations

import gc
import pickle
import random
import signal
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import context
from ..comm.job import termination
from ..core.random import manual_seed
from ..core.types import dtypes
from ..lifetime import die_with
from .fetch import Plan, fetcher
from .info import WorkerInfo, set_worker_info
from .position import Stamped, Streams
from .transfer import BATCH, ERROR, LENGTH, Sender

TASK, RESET = "task", "reset"


@dataclass(frozen=True)
class Job:
    """What a worker is told at its start."""

    plan: Plan
    num_workers: int
    base_seed: int
    init: Callable[[int], None] | None
    parent: int  # process that the worker works for
    is_child: bool  # of that process's main thread?
    numbers: tuple[int, int, int, int]  # rank, world_size, local_rank, local_world_size
    dtype: dtypes.dtype
    streams: dict[int, Streams]  # by worker: where its random streams go on


@dataclass(frozen=True)
class Failure:
    """An exception on its way home: ``error`` is pickled, None where that fails."""

    kind: str
    message: str
    text: str
    error: bytes | None


def run(job: Job, worker_id: int, sock: socket.socket) -> None:
    """The worker's whole life."""
    try:
        _settle(job, worker_id)
        _serve(job, worker_id, sock)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the other side is gone: so is the need for this process


def _settle(job: Job, worker_id: int) -> None:
    """Become a process of its own: die with the parent, leave its signals and its peers alone."""
    gc.freeze()  # what the parent had made stays where it is, also in memory
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends its workers
    signal.signal(signal.SIGTERM, termination.for_helpers())
    die_with(job.parent, job.is_child)
    me = context.current()
    me.numbers = job.numbers
    me.waiter = context.Waiter()  # looks after no peers, and keeps real time
    dtypes.set_default_dtype(job.dtype)
    seed = job.base_seed + worker_id
    manual_seed(seed)
    random.seed(seed)
    np.random.seed(np.random.SeedSequence([job.base_seed, worker_id]).generate_state(4))
    set_worker_info(WorkerInfo(worker_id, job.num_workers, seed, job.plan.dataset))


def _serve(job: Job, worker_id: int, sock: socket.socket) -> None:
    """Answer requests in their order. A failed ``worker_init_fn`` is the answer to the first."""
    sender = Sender(sock)
    failure, fetch = None, None
    noted: list[Streams | None] = [job.streams.get(worker_id)]
    try:
        if job.init is not None:
            job.init(worker_id)
        if worker_id in job.streams:
            job.streams[worker_id].set()
        fetch = fetcher(job.plan)
    except Exception as error:
        failure = _failure(error)
    while request := _receive(sock):
        kind, number, what = request
        if kind == RESET:
            try:
                fetch = fetcher(job.plan)
            except Exception as error:
                failure = _failure(error)
        elif failure is not None:
            sender.value(ERROR, number, failure)
            failure = None
        elif fetch is None:
            sender.end(number)
        elif not _answer(sender, fetch, number, what, job.plan.iterable, noted):
            fetch = None


def _answer(
    sender: Sender,
    fetch: Callable,
    number: int,
    what: int | list | None,
    iterable: bool,
    noted: list,
) -> bool:
    """Send one batch, or why there is none. False at the end of an iterable dataset. Random streams
    that have moved on since they were ``noted`` go along."""
    try:
        batch = fetch(what)
    except StopIteration as error:
        if iterable:
            sender.end(number)
            return False
        sender.value(ERROR, number, _failure(error))
    except Exception as error:
        sender.value(ERROR, number, _failure(error))
    else:
        streams = Streams.now()
        if noted[0] is None or not streams.same(noted[0]):
            noted[0], batch = streams, Stamped(batch, streams)
        try:
            sender.value(BATCH, number, batch)
        except OSError:
            raise
        except Exception as error:  # a batch that cannot be pickled, or no memory
            sender.value(ERROR, number, _failure(error))
    return True


def _receive(sock: socket.socket) -> tuple | None:
    """The next request; None when the other side has closed. Waits for as long as it takes: the
    end of the other side ends the wait."""
    head = _read(sock, LENGTH.size)
    if head is None:
        return None
    body = _read(sock, LENGTH.unpack(head)[0])
    return None if body is None else pickle.loads(body)


def _read(sock: socket.socket, num_bytes: int) -> bytes | None:
    out = bytearray()
    while len(out) < num_bytes:
        data = sock.recv(num_bytes - len(out))
        if not data:
            return None
        out += data
    return bytes(out)


def _failure(error: BaseException) -> Failure:
    """``error`` with its traceback as text."""
    text = "".join(traceback.format_exception(error)).rstrip()
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # some exceptions pickle but do not unpickle
    except Exception:
        pickled = None
    return Failure(type(error).__qualname__, str(error), text, pickled)
