"""Workers as the front knows them: who runs what, and which generation of them is current.

A generation is a set of workers that have loaded the same files. A reload makes another one; it
becomes current when all of it are ready, and from then on requests go there. The older one ends
when it has no request left. One whose files cannot be loaded changes nothing.

Runs on an asyncio loop and blocks nowhere. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import journal
from .batches import Queue
from .coding import Inference, dtype_of
from .measures import Measures
from .messages import Channel
from .options import Options
from .refusal import Refused
from .signature import Signature
from .slabs import Slab, aligned
from .worker import SLOTS

STARTING, READY, BUSY = "starting", "ready", "busy"
_TICK = 0.05  # seconds between two looks at deadlines
_HUNG = 60.0  # seconds for which a worker runs what nobody waits for any more
_RETRY = 1

Done = Callable[["Request", "list[np.ndarray] | Refused"], None]


@dataclass(slots=True, eq=False)
class Request:
    """One inference on its way (see ``batches.Waiting``)."""

    model: str
    served: Served
    inference: Inference
    done: Done
    arrived: float
    deadline: float
    size: int
    group: Hashable
    limit: int
    rows: int
    cancelled: bool = False  # nobody waits for it: it was answered, or its client has gone

    def finish(self, outcome: list[np.ndarray] | Refused) -> None:
        """Answer it, once."""
        if not self.cancelled:
            self.cancelled = True
            self.done(self, outcome)


@dataclass(slots=True)
class Served:
    """A model of one generation."""

    generation: Generation
    signature: Signature
    version: str
    fingerprint: list
    limit: int


@dataclass(slots=True, eq=False)
class Handle:
    """A worker. ``since``: when it began what it runs; ``slot``: the one for its next batch."""

    id: int
    pid: int
    channel: Channel
    slabs: list[tuple[Slab, Slab]]
    generation: Generation
    state: str = STARTING
    batch: list[Request] = field(default_factory=list)
    since: float = 0.0
    slot: int = 0
    number: int = 0
    told: dict[str, Any] | None = None  # what it has loaded
    killed: bool = False


@dataclass(slots=True, eq=False)
class Generation:
    """Workers of the same files."""

    number: int
    queue: Queue
    workers: list[Handle] = field(default_factory=list)
    models: dict[str, Served] = field(default_factory=dict)
    covers: int = 0  # it began after this many requests for a reload
    timer: asyncio.TimerHandle | None = None


class Pool:
    """``supervisor``: the channel to the process that starts workers; ``hurry``: could nobody send
    one more request?"""

    def __init__(
        self, options: Options, supervisor: Channel, measures: Measures, hurry: Callable[[], bool]
    ) -> None:
        self.options, self.supervisor = options, supervisor
        self.measures, self.hurry = measures, hurry
        self.current: Generation | None = None
        self.generations: dict[int, Generation] = {}
        self._loads: list[tuple[int, asyncio.Future]] = []
        self._asked = 0
        self._pumping = False
        self._rate = 0.0  # requests answered in a second, lately
        self._answered = 0
        self._loop = asyncio.get_running_loop()
        self._tick()

    # -- requests ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many requests no worker has begun."""
        return sum(generation.queue.length for generation in self.generations.values())

    @property
    def running(self) -> int:
        """How many requests workers run."""
        return sum(len(w.batch) for g in self.generations.values() for w in g.workers)

    def is_ready(self) -> bool:
        """Is there a worker that can take a request?"""
        return self.current is not None and any(w.state != STARTING for w in self.current.workers)

    def retry_after(self) -> int:
        """Seconds after which what waits now is done."""
        return max(_RETRY, min(60, round(self.waiting / max(self._rate, 1.0))))

    def submit(
        self, name: str, served: Served, inference: Inference, done: Done, timeout: float
    ) -> Request:
        """Have it run. Raises ``Refused`` where too many wait."""
        queue = served.generation.queue
        if queue.length >= self.options.queue:
            raise Refused(429, f"{queue.length} requests wait", self.retry_after())
        now = time.monotonic()
        joined = bool(served.limit) and inference.rows > 0
        request = Request(
            name, served, inference, done, now, now + timeout,
            sum(array.nbytes for array in inference.arrays),
            (name, inference.key) if joined else object(),
            served.limit if joined else 0, inference.rows,
        )  # fmt: skip
        queue.add(request)
        self._pump_soon()
        return request

    def _pump_soon(self) -> None:
        """Once all that has come by now is known."""
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Give idle workers what is to run now."""
        self._pumping = False
        for generation in list(self.generations.values()):
            self._feed(generation, self.hurry())

    def _feed(self, generation: Generation, hurry: bool) -> None:
        queue, now = generation.queue, time.monotonic()
        for worker in generation.workers:
            if not queue.length:
                return
            while worker.state is READY and (batch := queue.take(now, hurry)):
                self._start(worker, batch, now)
        if any(worker.state is READY for worker in generation.workers) and queue.length:
            if generation.timer is not None:
                generation.timer.cancel()
            delay = max(0.0, queue.due() - now)
            generation.timer = self._loop.call_later(delay, self._feed, generation, hurry)

    def _start(self, worker: Handle, batch: list[Request], now: float) -> None:
        live = []
        for request in batch:
            if request.deadline <= now:
                request.finish(_late())
            elif not request.cancelled:
                live.append(request)
                self.measures.queued.add(now - request.arrived, (request.model,))
        if not live:
            return
        inlet = worker.slabs[worker.slot][0]
        try:
            places = _lay(live, inlet)
        except MemoryError as error:
            for request in live:
                request.finish(Refused(503, str(error), _RETRY))
            return
        worker.number += 1
        worker.state, worker.batch, worker.since = BUSY, live, now
        self.measures.rows.add(sum(r.rows for r in live), (live[0].model,))
        worker.channel.send(
            {"run": worker.number, "model": live[0].model, "slot": worker.slot, "inputs": places}
        )  # where it has died, its end says so

    # -- workers -----------------------------------------------------------------------------------

    def begin(self, number: int, covers: int) -> None:
        """The supervisor starts a generation."""
        queue = Queue(self.options.delay, self.options.body)
        self.generations[number] = Generation(number, queue, covers=covers)

    def add(self, message: dict[str, Any], fds: list[int]) -> None:
        """The supervisor has started a worker."""
        generation = self.generations.get(message["generation"])
        channel = Channel(_socket(fds[0]))
        slabs = [(Slab(fds[1 + 2 * k]), Slab(fds[2 + 2 * k])) for k in range(SLOTS)]
        if generation is None:  # given up meanwhile: the worker ends by itself
            _let_go(channel, slabs)
            return
        worker = Handle(message["worker"], message["pid"], channel, slabs, generation)
        generation.workers.append(worker)
        channel.sock.setblocking(False)
        self._loop.add_reader(channel.sock, self._hear, worker)

    def _hear(self, worker: Handle) -> None:
        try:
            message = worker.channel.receive()
        except BlockingIOError:
            return
        if message is None:
            self._lost(worker)
        elif "ready" in message:
            self._ready(worker, message["ready"])
        elif "failed" in message:
            self._failed(worker, message)
        elif message["ran"] == worker.number:
            self._ran(worker, message)

    def _ran(self, worker: Handle, message: dict[str, Any]) -> None:
        batch, slot = worker.batch, worker.slot
        worker.state, worker.batch, worker.slot = READY, [], (slot + 1) % SLOTS
        # What it runs next has the other slot. Those who are answered now may ask again.
        self._feed(worker.generation, False)
        if "error" in message:
            self._blame(batch, message)
        else:
            self.measures.computing.add(message["s"], (batch[0].model,))
            _share(batch, message["outputs"], worker.slabs[slot][1])
        self._pump_soon()
        self._answered += len(batch)
        self._retire()

    def _blame(self, batch: list[Request], message: dict[str, Any]) -> None:
        """An error of one request is not that of others: those of a batch run once more, alone."""
        if len(batch) == 1:
            batch[0].finish(Refused(message["status"], message["error"]))
            return
        for request in batch:
            request.group, request.limit = object(), 0
            request.served.generation.queue.add(request)

    def _lost(self, worker: Handle) -> None:
        generation = worker.generation
        self._remove(worker)
        for request in worker.batch:
            request.finish(Refused(503, "the worker that ran it has died", _RETRY))
        if generation.number in self.generations:
            if worker.state is STARTING and generation is not self.current:
                self._abandon(generation, "a worker died while it loaded the models")
            else:
                self.measures.deaths.add()
        self._retire()

    def _failed(self, worker: Handle, message: dict[str, Any]) -> None:
        generation = worker.generation
        self._remove(worker)
        if generation is self.current:  # one that came for a dead one
            journal.tell("worker_failed", "error", worker=worker.pid, error=message["failed"])
        else:
            self._abandon(generation, message["failed"])

    def _ready(self, worker: Handle, told: dict[str, Any]) -> None:
        generation = worker.generation
        if generation is self.current:
            if any(
                told[name]["fingerprint"] != s.fingerprint for name, s in generation.models.items()
            ):
                self._remove(worker)  # the files are others now
                self.ask_to_load()
                return
            worker.state = READY
            self._pump_soon()
            return
        worker.told, worker.state = told, READY
        ready = [w for w in generation.workers if w.state is READY]
        if len(ready) < self.options.workers:
            return
        if any(w.told != told for w in ready):
            self._abandon(generation, "a file was replaced while workers read it")
            return
        self._switch(generation, told)

    def _switch(self, generation: Generation, told: dict[str, Any]) -> None:
        """From now on requests go to this generation."""
        before = self.current.models if self.current else {}
        for name, found in told.items():
            signature = Signature.read(found["signature"])
            old = before.get(name)
            version = int(old.version) if old else 0
            if old is None or old.fingerprint != found["fingerprint"]:
                version += 1
            limit = signature.rows_limit(self.options.max_batch) if signature.batch else 0
            generation.models[name] = Served(
                generation, signature, str(version), found["fingerprint"], limit
            )
        self.current = generation
        self.supervisor.send({"current": generation.number})
        self.measures.loads.add(labels=("done",))
        versions = {name: served.version for name, served in generation.models.items()}
        batches = {name: s.signature.batch for name, s in generation.models.items()}
        journal.tell("models_ready", versions=versions, joined_along=batches)
        self._settle_loads(generation, None)
        self._retire()

    def _retire(self) -> None:
        """End generations that are not current and have nothing left."""
        for generation in list(self.generations.values()):
            if self.current is None or generation.number >= self.current.number:
                continue
            busy = [w for w in generation.workers if w.state is BUSY]
            if not generation.workers:
                for request in generation.queue.drop():
                    request.finish(Refused(503, "the workers of its model have died", _RETRY))
            if not busy and not generation.queue.length:
                self._end(generation)

    def _end(self, generation: Generation) -> None:
        del self.generations[generation.number]
        if generation.timer is not None:
            generation.timer.cancel()
        for worker in list(generation.workers):
            self._remove(worker)

    def _abandon(self, generation: Generation, text: str) -> None:
        self._end(generation)
        self.measures.loads.add(labels=("failed",))
        journal.tell("load_failed", "error", error=text)
        self.supervisor.send({"abandon": generation.number, "error": text})
        self._settle_loads(generation, text)

    def _remove(self, worker: Handle) -> None:
        self._loop.remove_reader(worker.channel.sock)
        if worker in worker.generation.workers:
            worker.generation.workers.remove(worker)
        _let_go(worker.channel, worker.slabs)

    # -- reloads -----------------------------------------------------------------------------------

    def ask_to_load(self) -> asyncio.Future:
        """Have the files loaded anew. What comes of it: None, or what went wrong."""
        self._asked += 1
        future = self._loop.create_future()
        self._loads.append((self._asked, future))
        self.supervisor.send({"load": self._asked})
        return future

    def _settle_loads(self, generation: Generation, outcome: str | None) -> None:
        left = []
        for number, future in self._loads:
            if number > generation.covers:
                left.append((number, future))
            elif not future.done():
                future.set_result(outcome)
        self._loads = left

    def stop(self) -> None:
        """No file is loaded any more."""
        for _, future in self._loads:
            if not future.done():
                future.set_result("the server ends")
        self._loads = []

    # -- deadlines ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        self._rate += 0.05 * (self._answered / _TICK - self._rate)
        self._answered = 0
        for generation in list(self.generations.values()):
            for request in generation.queue.expired(now):
                request.finish(_late())
            for worker in generation.workers:
                self._look(worker, now)
        self._retire()
        self._loop.call_later(_TICK, self._tick)

    def _look(self, worker: Handle, now: float) -> None:
        """Answer for a worker whose requests have no time left; give it up in the end."""
        for request in worker.batch:
            if request.deadline <= now:
                request.finish(_late())
        hung = worker.state is BUSY and now - worker.since > _HUNG
        if hung and not worker.killed and all(r.cancelled for r in worker.batch):
            worker.killed = True
            self.supervisor.send({"kill": worker.pid})


def _late() -> Refused:
    return Refused(504, "its deadline has passed")


def _lay(batch: list[Request], slab: Slab) -> list[list[Any]]:
    """Join the inputs of a batch in the slab; where they lie."""
    signature = batch[0].served.signature
    rows = sum(request.rows for request in batch)
    places: list[list[Any]] = []
    end = 0
    for k, spec in enumerate(signature.inputs):
        shape = batch[0].inference.arrays[k].shape
        whole = (rows, *shape[1:]) if len(batch) > 1 else shape
        places.append([list(whole), end])
        end = aligned(end + int(np.prod(whole, dtype=np.int64)) * dtype_of(spec.dtype).itemsize)
    slab.grow(end)
    for k, (spec, (whole, offset)) in enumerate(zip(signature.inputs, places)):
        target = slab.array(offset, tuple(whole), dtype_of(spec.dtype))
        if len(batch) == 1:
            target[...] = batch[0].inference.arrays[k]
        else:
            np.concatenate([request.inference.arrays[k] for request in batch], out=target)
    return places


def _share(batch: list[Request], places: list, slab: Slab) -> None:
    """Answer each request of a batch with its rows."""
    specs = batch[0].served.signature.outputs
    arrays = [
        slab.array(offset, tuple(shape), dtype_of(spec.dtype))
        for spec, (shape, offset) in zip(specs, places)
    ]
    if len(batch) == 1:
        batch[0].finish(arrays)
        return
    rows, at = sum(request.rows for request in batch), 0
    if any(not a.ndim or len(a) != rows for a in arrays):
        for request in batch:
            request.finish(Refused(500, "the model gave another number of rows than it was given"))
        return
    for request in batch:
        request.finish([array[at : at + request.rows] for array in arrays])
        at += request.rows


def _let_go(channel: Channel, slabs: list[tuple[Slab, Slab]]) -> None:
    channel.close()
    for inlet, outlet in slabs:
        inlet.close()
        outlet.close()


def _socket(fd: int) -> Any:
    return socket.socket(fileno=fd)
