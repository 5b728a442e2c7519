"""DataLoader: batches of a dataset, loaded here or ahead of time by worker processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from ..core.random import Generator
from ..errors import ConfigError, WorkerFailed
from .checks import Count, check_batches, check_workers
from .collate import default_collate, default_convert
from .dataset import Dataset, Indexed, IterableDataset, rng_of
from .fetch import Plan, fetcher
from .pinning import pinning
from .pool import Answer, Pool
from .position import Position, Stamped, Streams, check, requests_from, resume, set_own
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, num_batches

T = TypeVar("T", covariant=True)

_FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class DataLoader(Generic[T]):
    """Iterate over batches of ``dataset``, any number of times.

    ``batch_size`` (None: samples one by one), ``shuffle``, ``drop_last``, or an own ``sampler`` or
    ``batch_sampler`` say what is in a batch; ``collate_fn`` makes it of a list of samples.

    With ``num_workers`` processes, each is asked ahead for ``prefetch_factor`` batches; what they
    load comes through shared memory, in the order of the sampler (unless ``in_order=False``).
    ``worker_init_fn(worker_id)`` runs at their start, after their random generators (Python's,
    numpy's and this library's) got a seed of their own, drawn from ``generator`` or the rank's.
    ``persistent_workers`` live until the loader is gone. An exception in a worker is raised here
    with its own type and traceback; the death of one is a ``WorkerFailed``; ``timeout`` seconds
    (0: half an hour) without a batch are a ``WaitTimeout``.

    ``state_dict()`` says which batches of the epoch were taken; after ``load_state_dict`` the next
    pass gives the others, as this one would have.

    ``pin_memory``: batches lie in page-locked memory, from where ``to(device, non_blocking=True)``
    does not wait. No effect where there is no accelerator.
    """

    _ready = False
    _promised: int | None = None
    _position: Position | None = None  # of the epoch that was begun last
    _resumed: dict[str, Any] | None = None  # where the next one begins

    def __init__(
        self,
        dataset: Dataset[T] | Indexed[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler | Iterable | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.dataset: Any = dataset  # with whatever the program's own class has
        self.num_workers, self.timeout = num_workers, timeout
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.worker_init_fn, self.generator = worker_init_fn, generator
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers, self.in_order = persistent_workers, in_order
        self.multiprocessing_context = multiprocessing_context
        self._iterable = isinstance(dataset, IterableDataset)
        self._iterator: _WorkerIterator | None = None
        check_workers(num_workers, timeout, prefetch_factor, persistent_workers,
                      multiprocessing_context)  # fmt: skip
        rng_of(generator)
        check_batches(self._iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        self._choose(batch_size, shuffle, sampler, batch_sampler, drop_last)
        batched = self.batch_size is not None or self.batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self._ready = True

    def _choose(
        self, batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any,
        drop_last: bool,
    ) -> None:  # fmt: skip
        """Settle the sampler and the batch sampler."""
        dataset: Any = self.dataset  # with a length, where it is asked for one
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None and not self._iterable and batch_sampler is None:
            if shuffle:
                sampler = RandomSampler(dataset, generator=self.generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            maker = BatchSampler(() if sampler is None else sampler, batch_size, drop_last)
            batch_sampler = None if self._iterable else maker  # made in any case: it checks both
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if self._iterable:
            self._requests: _Requests = _NextPlease(self.dataset, batch_size, drop_last)
        else:
            self._requests = _Requests(sampler if batch_sampler is None else batch_sampler)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._ready and name in _FIXED:
            raise ConfigError(f"DataLoader: {name} cannot be changed any more; make another loader")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        if self._iterable:
            dataset: Any = self.dataset
            self._promised = len(dataset)  # what its iterators will be measured by
        return len(self._requests)

    def __iter__(self) -> Iterator[Any]:
        state, self._resumed = self._resumed, None
        count = Count(self.dataset, self._promised, self.num_workers)
        if state is not None:
            at = resume(state, count, self.generator, self.num_workers)
        else:
            begin = Streams.now(self.generator)
            # Drawn without workers, too: the order of samples is then the same with and without.
            base_seed = int(rng_of(self.generator).integers(0, 1 << 62))
            at = Position(count, self.generator, begin, base_seed)
        self._position = at
        if self.num_workers == 0:
            return _LocalIterator(self, at, state)
        if not self.persistent_workers:
            return _WorkerIterator(self, at, state)
        if self._iterator is None or self._iterator.pool.closed or state is not None:
            self._iterator = _WorkerIterator(self, at, state)
        else:
            self._iterator.restart(at)
        return self._iterator

    def state_dict(self) -> dict[str, Any]:
        """Where the pass that was begun last is, by the batches that it has given: call it between
        two of them. It holds tensors, numbers and texts.

        A sampler of an order of its own is asked for the order again when a pass goes on, and then
        passed over; its random numbers come from the rank's generator, the loader's, Python's or
        numpy's. A ``DistributedSampler`` keeps its place for any number of ranks. Worker processes
        go on with the random streams that they had. An iterable dataset is passed over again up to
        the place, unless it has ``state_dict`` and ``load_state_dict`` and there are no workers;
        to be gone on with exactly, it must draw from streams of its own.
        """
        if self._resumed is not None:
            return self._resumed
        if self._position is None:
            begin = Streams.now(self.generator)
            return Position(Count(self.dataset, None, 0), self.generator, begin, 0).fresh()
        state = self._position.state_dict(self._requests.sampler, self._iterable)
        if self._saves_dataset:
            dataset: Any = self.dataset
            state["dataset"] = dataset.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next pass goes on where ``state_dict()`` was called, on a loader made alike (of any
        rank and number of ranks, if its sampler counts all of them); after a whole pass a new one
        begins. The rank's random stream is not set: save and load it beside this."""
        check(state_dict)
        self._resumed = None if state_dict["finished"] else dict(state_dict)
        self._position = None
        if state_dict["finished"]:
            set_own(self.generator, state_dict)

    @property
    def _saves_dataset(self) -> bool:
        """Does an iterable dataset, read here, keep its own place?"""
        stateful = hasattr(self.dataset, "state_dict") and hasattr(self.dataset, "load_state_dict")
        return self._iterable and not self.num_workers and stateful

    def _plan(self) -> Plan:
        batched = self.batch_size is not None or self.batch_sampler is not None
        size = self.batch_size or 1
        return Plan(self.dataset, self.collate_fn, self._iterable, batched, size, self.drop_last)


class _Requests:
    """What is asked for, batch by batch: what a sampler gives. An iterable dataset is asked for the
    next batch until it ends."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


class _NextPlease(_Requests):
    sampler = None

    def __init__(self, dataset: Any, batch_size: int | None, drop_last: bool) -> None:
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last

    def __iter__(self) -> Iterator:
        return itertools.repeat(None)

    def __len__(self) -> int:
        n = len(self.dataset)
        return n if self.batch_size is None else num_batches(n, self.batch_size, self.drop_last)


class _LocalIterator(Iterator):
    """One epoch, loaded in this process."""

    def __init__(self, loader: DataLoader, at: Position, state: dict[str, Any] | None) -> None:
        self._source, self._position, self._count = loader._requests, at, at.count
        if state is None or loader._iterable:
            requests = iter(self._source)
        else:
            requests = requests_from(self._source.sampler, at, state)
        self._requests = at.opened(requests)
        if state is not None and "dataset" in state and loader._saves_dataset:
            dataset: Any = loader.dataset
            dataset.load_state_dict(state["dataset"])
        self._fetch = fetcher(loader._plan())
        self._pin = pinning(loader.pin_memory, loader.pin_memory_device)
        if state is not None and loader._iterable and "dataset" not in state:
            self._pass_over(at)

    def _pass_over(self, at: Position) -> None:
        """Load again what was taken before."""
        if at.first is None:
            return
        now = Streams.now()
        try:
            at.first.set(at.own)
            for _ in range(at.before):
                self._fetch(None)
        finally:
            now.set()

    def __iter__(self) -> _LocalIterator:
        return self

    def __next__(self) -> Any:
        try:
            value = self._fetch(next(self._requests))
        except StopIteration:
            self._position.finished = True
            raise
        self._count.one_more()
        return value if self._pin is None else self._pin(value)

    def __len__(self) -> int:
        return len(self._source)


class _WorkerIterator(Iterator):
    """Epochs loaded by worker processes. Requests have numbers that only rise; worker after worker
    is asked in turn, so which worker loads which batch is the same on every run."""

    def __init__(self, loader: DataLoader, at: Position, state: dict[str, Any] | None) -> None:
        self.source = loader._requests  # not the loader: it holds this iterator
        self.persistent, self.in_order = loader.persistent_workers, loader.in_order
        self.timeout = loader.timeout or None
        assert loader.prefetch_factor is not None  # with workers there is one
        self.num_workers, self.prefetch = loader.num_workers, loader.prefetch_factor
        import multiprocessing  # takes longer to import than all of this package

        ctx = loader.multiprocessing_context or "fork"
        ctx = multiprocessing.get_context(ctx) if isinstance(ctx, str) else ctx
        self.pool = Pool(
            loader._plan(), self.num_workers, ctx, at.base_seed, loader.worker_init_fn,
            self.prefetch, at.workers,
        )  # fmt: skip
        self._workers = [worker.process for worker in self.pool.workers]
        self.sent, self.position = 0, at
        self._pin = pinning(loader.pin_memory, loader.pin_memory_device)
        if state is None or loader._iterable:
            self._begin(iter(self.source))
        else:
            self._begin(requests_from(self.source.sampler, at, state))
        for _ in range(at.before if state is not None and loader._iterable else 0):
            answer = self._next_answer()  # load again what was taken before
            if answer is not None:
                self._forget(answer)
                self._ask(None if self.in_order else answer.worker)

    def restart(self, at: Position) -> None:
        """Begin another epoch with the same workers; what is left of the last one is dropped."""
        at.base_seed, at.workers = self.position.base_seed, self.position.workers
        for answer in self.arrived.values():
            self._forget(answer)
        at.starts = dict(at.workers)
        self.position = at
        self.pool.reset()
        self._begin(iter(self.source))

    def _begin(self, requests: Iterator) -> None:
        at = self.position
        self._count = at.count
        self.first = self.due = self.sent  # numbers before ``first`` are of an earlier epoch
        self.requests = at.opened(requests)
        taken = set(at.taken())
        left = [i for i in range(at.end) if i not in taken]
        self.places = itertools.chain(left, itertools.count(at.end))
        self.place: dict[int, int] = {}  # number -> which batch of the epoch it is
        self.arrived: dict[int, Answer] = {}
        self.open: dict[int, int] = {}  # number -> worker, of what has been asked for
        self.active = list(range(self.num_workers))
        self.turn = 0 if self.source.sampler is None else at.before % self.num_workers
        self.over = False
        for _ in range(self.prefetch * self.num_workers):
            self._ask()

    def _ask(self, worker: int | None = None) -> None:
        """Ask the next worker (or this one) for the next batch, if there is one."""
        if self.over or not self.active:
            return
        try:
            what = next(self.requests)
        except StopIteration:
            self.over = True
            return
        if worker is None or worker not in self.active:
            self.turn %= len(self.active)
            worker = self.active[self.turn]
            self.turn += 1
        self.open[self.sent] = worker
        self.place[self.sent] = next(self.places)
        self.pool.ask(worker, self.sent, what)
        self.sent += 1

    def __iter__(self) -> _WorkerIterator:
        return self

    def __next__(self) -> Any:
        try:
            answer = self._next_answer()
        except WorkerFailed:
            self.pool.close()
            raise
        if answer is None:
            self.position.finished = True
            if not self.persistent:
                self.pool.close()
            raise StopIteration
        self._ask(None if self.in_order else answer.worker)
        value = self.pool.value(answer)
        self.position.take(self.place.pop(answer.number))
        if value.__class__ is Stamped:
            self.position.workers[answer.worker] = value.streams
            value = value.batch
        self._count.one_more()
        return value if self._pin is None else self._pin(value)

    def _forget(self, answer: Answer) -> None:
        """Drop a batch; its worker's streams have moved on all the same."""
        if not answer.is_batch:
            self.pool.drop(answer)
            return
        value = self.pool.value(answer)
        if value.__class__ is Stamped:
            self.position.workers[answer.worker] = value.streams

    def _next_answer(self) -> Answer | None:
        """The answer that is due; None at the end of the epoch."""
        while self.open:
            number = self._due() if self.in_order else next(iter(self.arrived), None)
            answer = None if number is None else self.arrived.pop(number, None)
            if answer is None:
                self._collect()
                continue
            del self.open[answer.number]
            if not answer.is_end:
                return answer
            self._retire(answer.worker)
            self._ask()
        return None

    def _due(self) -> int:
        """The lowest number that is still open."""
        while self.due not in self.open:
            self.due += 1
        return self.due

    def _collect(self) -> None:
        what = f"batch {self._due() - self.first}" if self.in_order else "a batch"
        answer = self.pool.wait(what, self.timeout)
        if answer.number in self.open:
            self.arrived[answer.number] = answer
        else:
            self._forget(answer)

    def _retire(self, worker: int) -> None:
        """An iterable dataset has ended in ``worker``; the others go on."""
        if worker in self.active:
            at = self.active.index(worker)
            self.active.pop(at)
            self.turn -= at < self.turn

    def __len__(self) -> int:
        return len(self.source)
