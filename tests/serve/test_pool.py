"""Workers and generations as the front knows them; the test is the supervisor and each worker."""

import asyncio
import os

import numpy as np
import pytest

from disttrain.serve import pool as module
from disttrain.serve.coding import Inference
from disttrain.serve.measures import Measures
from disttrain.serve.messages import pair
from disttrain.serve.options import Options
from disttrain.serve.pool import Pool
from disttrain.serve.refusal import Refused
from disttrain.serve.signature import Signature, Spec
from disttrain.serve.slabs import Slab

ROW = (("b", 3),)
SIGNATURE = Signature(
    (Spec("x", "float32", *ROW),), (Spec("y", "float32", *ROW),), {"b": (1, None)}, "b"
)
FLOATS = np.dtype("float32")


class Place:
    """A pool, the supervisor's end, and workers' ends."""

    def __init__(self, **options) -> None:
        self.supervisor, ours = pair()
        self.ours = ours
        chosen = {"models": {"m": "f"}, "workers": 2, "delay": 0.0, **options}
        self.pool = Pool(Options(**chosen), ours, Measures(), lambda: True)
        self.ends, self.pids = [], iter(range(100, 200))

    async def generation(self, number: int, prints=(1, 1), covers: int = 0):
        self.pool.begin(number, covers)
        workers = [self.worker(number) for _ in prints]
        for (channel, _), mark in zip(workers, prints):
            self.ready(channel, mark)
        await asyncio.sleep(0.01)
        return workers

    def worker(self, generation: int):
        channel, theirs = pair()
        slabs = [(Slab(), Slab()) for _ in range(2)]
        fds = [os.dup(n) for n in (theirs.sock.fileno(), *(s.fd for both in slabs for s in both))]
        theirs.close()
        self.pool.add({"worker": 0, "pid": next(self.pids), "generation": generation}, fds)
        self.ends.append((channel, slabs))
        return channel, slabs

    def ready(self, channel, mark: int) -> None:
        told = {"signature": SIGNATURE.told(), "fingerprint": [[mark]]}
        channel.send({"ready": {"m": told}})

    def ask(self, rows=1, timeout=30.0, value=1.0):
        answers: list = []
        x = np.full((rows, 3), value, np.float32)
        inference = Inference(None, [x], ((3,),), rows, [(0, False)], None)

        def done(request, outcome) -> None:
            answers.append(outcome if isinstance(outcome, Refused) else outcome[0].copy())

        self.pool.submit("m", self.pool.current.models["m"], inference, done, timeout)
        return answers

    async def serve(self, worker) -> int:
        """Run one batch: y = 2 x. How many rows it had."""
        await asyncio.sleep(0.01)
        channel, slabs = worker
        message = channel.receive()
        inlet, outlet = slabs[message["slot"]]
        ((shape, offset),) = message["inputs"]
        outlet.array(0, tuple(shape), FLOATS)[...] = 2 * inlet.array(offset, tuple(shape), FLOATS)
        channel.send({"ran": message["run"], "outputs": [[shape, 0]], "s": 0.0})
        await asyncio.sleep(0.01)
        return shape[0]

    def close(self) -> None:
        for generation in list(self.pool.generations.values()):
            self.pool._end(generation)
        for channel, slabs in self.ends:
            channel.close()
            for both in slabs:
                both[0].close()
                both[1].close()
        self.supervisor.close()
        self.ours.close()


def run(body, **options) -> None:
    async def inside() -> None:
        place = Place(**options)
        try:
            await body(place)
        finally:
            place.close()

    asyncio.run(inside())


def test_a_generation_is_current_when_all_of_it_is_ready() -> None:
    async def body(place) -> None:
        place.pool.begin(1, 0)
        (first, _), (second, _) = place.worker(1), place.worker(1)
        place.ready(first, 1)
        await asyncio.sleep(0.01)
        assert place.pool.current is None and not place.pool.is_ready()
        place.ready(second, 1)
        await asyncio.sleep(0.01)
        assert place.pool.is_ready() and place.supervisor.receive() == {"current": 1}
        assert place.pool.current.models["m"].version == "1"

    run(body)


def test_requests_are_joined_and_shared_out() -> None:
    async def body(place) -> None:
        (worker,) = await place.generation(1, (1,))
        answers = [place.ask(rows, value=rows) for rows in (1, 2, 3)]
        assert await place.serve(worker) == 6
        for rows, (answer,) in zip((1, 2, 3), answers):
            assert answer.tolist() == [[2.0 * rows] * 3] * rows

    run(body, workers=1)


def test_a_reload_waits_for_what_the_old_ones_have(capfd) -> None:
    async def body(place) -> None:
        (old,) = await place.generation(1, (1,))
        first, second = place.ask(), place.ask()
        third = place.ask(value=5)
        await asyncio.sleep(0.01)  # one batch of one row runs, two wait
        load = place.pool.ask_to_load()
        (new,) = await place.generation(2, (2,), covers=1)
        assert load.result() is None and place.pool.current.models["m"].version == "2"
        fourth = place.ask()
        assert [await place.serve(old) for _ in range(3)] == [1, 1, 1]
        assert old[0].receive() is None  # it may end
        assert await place.serve(new) == 1
        assert all(len(a) == 1 for a in (first, second, third, fourth)) and third[0][0, 0] == 10

    run(body, workers=1, max_batch=1)


def test_files_that_are_replaced_between_two_reads_are_not_served() -> None:
    async def body(place) -> None:
        await place.generation(1)
        place.supervisor.receive()
        load = place.pool.ask_to_load()
        assert place.supervisor.receive() == {"load": 1}
        workers = await place.generation(2, (2, 3), covers=1)
        assert "was replaced while" in load.result() and place.pool.current.number == 1
        assert place.supervisor.receive()["abandon"] == 2
        assert all(channel.receive() is None for channel, _ in workers)
        late, _ = place.worker(2)
        assert late.receive() is None
        later, _ = place.worker(1)  # in place of a dead one, of a file that is another now
        place.ready(later, 9)
        await asyncio.sleep(0.01)
        assert place.supervisor.receive() == {"load": 2} and later.receive() is None

    run(body)


def test_a_load_is_covered_by_what_began_after_it() -> None:
    async def body(place) -> None:
        first = place.pool.ask_to_load()
        second = place.pool.ask_to_load()
        await place.generation(1, covers=1)
        assert first.done() and not second.done()
        await place.generation(2, covers=2)
        assert second.done()

    run(body)


def test_the_end_of_a_worker_is_the_end_of_its_batch() -> None:
    async def body(place) -> None:
        one, other = await place.generation(1)
        answers = [place.ask()]
        await asyncio.sleep(0.01)
        answers.append(place.ask())
        await asyncio.sleep(0.01)
        one[0].close()
        await asyncio.sleep(0.01)
        assert isinstance(answers[0][0], Refused) and answers[0][0].status == 503
        await place.serve(other)
        assert answers[1][0].shape == (1, 3)

    run(body)


def test_who_runs_what_nobody_waits_for_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(module, "_HUNG", 0.05)

    async def body(place) -> None:
        await place.generation(1, (1,))
        place.supervisor.receive()
        answers = place.ask(timeout=0.02)
        waiting = place.ask(timeout=0.02)
        await asyncio.sleep(0.3)
        assert answers[0].status == waiting[0].status == 504
        assert place.supervisor.receive() == {"kill": 100}

    run(body, workers=1, max_batch=1)


def test_too_many_are_refused_with_a_time() -> None:
    async def body(place) -> None:
        await place.generation(1, (1,))
        place.ask()
        await asyncio.sleep(0.01)
        place.ask()
        with pytest.raises(Refused) as caught:
            place.ask()
        assert caught.value.status == 429 and caught.value.retry >= 1

    run(body, workers=1, max_batch=1, queue=1)
