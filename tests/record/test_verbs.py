"""Collectives, messages, loaders and compiled functions while a rank records."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain.backends.llvm.kernels.digest import digest
from disttrain.comm.group.group import ProcessGroup
from disttrain.record import rows
from disttrain.record.reader import read
from support.recordings import only

pytestmark = pytest.mark.simulated


def recorded(folder, body, world: int = 2, level: str = "collectives", **how):
    def rank():
        dist.init_process_group()
        with dt.record(folder, level, **how):
            return body(dist.get_rank())

    return dist.simulate(rank, world).results, read(str(folder)).streams


def test_what_is_given_and_what_comes(tmp_path):
    def body(rank):
        dist.all_reduce(dt.full((3,), float(rank + 1)))

    _, found = recorded(tmp_path, body)
    for rank, stream in found.items():
        given, got = stream
        assert (given.kind, got.kind, given.name) == (rows.COLLECTIVE, rows.RECEIVED, "all_reduce")
        assert given.hash == digest(np.full(3, rank + 1, np.float32)).hash
        assert got.hash == digest(np.full(3, 3, np.float32)).hash
        assert got.call == ("world", 1)


def test_every_verb_goes_on(tmp_path):
    def body(rank):
        t, parts = dt.full((2,), float(rank)), [dt.zeros(2), dt.zeros(2)]
        dist.broadcast(t, src=1)
        dist.all_gather(parts, t)
        dist.reduce(t, dst=0)
        dist.scatter(t, [dt.ones(2), dt.ones(2)] if rank == 0 else None, src=0)
        dist.gather(t, parts if rank == 0 else None, dst=0)
        dist.reduce_scatter(t, parts)
        dist.all_to_all(parts, [t, t])
        dist.barrier()
        works = [dist.isend(t, 1 - rank), dist.irecv(parts[0], 1 - rank)]
        [w.wait() for w in works]
        return dist.all_reduce(dt.ones(1), async_op=True).wait()

    _, found = recorded(tmp_path, body)
    names = {r.name for r in found[0]}
    assert names == {
        "broadcast", "all_gather", "reduce", "scatter", "gather", "reduce_scatter", "all_to_all",
        "barrier", "isend", "irecv", "all_reduce",
    }  # fmt: skip
    [message] = [r for r in found[0] if r.name == "irecv" and r.kind == rows.RECEIVED]
    assert message.about.startswith("from rank 1")


def test_what_nobody_reads_is_not_measured(tmp_path):
    def body(rank):
        dist.broadcast(dt.full((3,), float(rank)), src=1)

    _, found = recorded(tmp_path, body)
    first, second = (stream[0] for stream in (found[0], found[1]))
    assert (first.hash, first.shape) == (0, "float32[3]") and second.hash


def test_classes_are_as_they_were_when_nobody_records(tmp_path):
    before = ProcessGroup.all_reduce
    with dt.record(tmp_path):
        assert ProcessGroup.all_reduce is not before
    assert ProcessGroup.all_reduce is before


def test_batches_with_the_numbers_of_their_samples(tmp_path):
    data = dt.data.TensorDataset(dt.arange(6).float())
    loader = dt.data.DataLoader(data, batch_size=2, sampler=[5, 1, 0, 2])
    with dt.record(tmp_path, "collectives"):
        seen = [batch[0].tolist() for batch in loader]
    assert seen == [[5, 1], [0, 2]]
    told = [(r.name, r.about) for r in only(tmp_path)]
    assert told == [("sample ids", "samples 5 1"), ("batch", "samples 5 1"),
                    ("sample ids", "samples 0 2"), ("batch", "samples 0 2")]  # fmt: skip


def test_compiled_functions_run_as_programs(tmp_path, caplog):
    step = dt.compile(lambda x: x * 2 + 1)
    x = dt.ones(3)
    step(x), step(x)
    with caplog.at_level(logging.WARNING), dt.record(tmp_path):
        step(x), step(x)
    assert [r.name for r in only(tmp_path)] == ["mul", "add"] * 2
    assert len([m for m in caplog.messages if "compiled functions" in m]) == 1
