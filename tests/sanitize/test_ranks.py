"""What ranks of a data-parallel group have alike, and must not: batches, weights, buffers."""

from __future__ import annotations

import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain.data import DataLoader, DistributedSampler, TensorDataset
from disttrain.distributed.ddp import DistributedDataParallel as DDP
from disttrain.distributed.fsdp import fully_shard
from disttrain.nn import functional as F
from support.sanitized import Net, batch

pytestmark = pytest.mark.simulated


def ranks_find(body, world: int = 2) -> set[str]:
    """The kinds that any of several simulated ranks finds."""

    def rank():
        dist.init_process_group()
        with dt.sanitize(quiet=True) as watch:
            body(dist.get_rank())
            dist.barrier()
        assert not watch.failed
        return {f.kind for f in watch.findings if f.severity != "advice"}

    return set().union(*dist.simulate(rank, world).results)


def train(model, loader, steps: int = 12, average: bool = False) -> None:
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = next(loader)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if average:
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        optimizer.step()


def loader_of(rank: int, shared: bool):
    """Batches for ever."""
    dt.manual_seed(0)
    data = TensorDataset(*batch(96))
    sampler = None if shared else DistributedSampler(data, 2, rank)
    return iter(DataLoader(data, batch_size=4, sampler=sampler))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("wrap", [DDP, fully_shard])
def test_ranks_that_read_the_same(shared, wrap):
    def body(rank):
        loader = loader_of(rank, shared)
        train(wrap(Net(norm=False)), loader)

    assert ranks_find(body) == ({"ranks-read-same-data"} if shared else set())


def test_few_batches_that_are_made_by_one_seed():
    def body(rank):
        dt.manual_seed(0)
        train(DDP(Net(norm=False)), iter([batch() for _ in range(12)]))

    assert ranks_find(body) == set()


@pytest.mark.parametrize("same", [True, False])
def test_averages_by_hand_of_weights_that_differ(same):
    def body(rank):
        loader = loader_of(rank, False)
        dt.manual_seed(0 if same else rank)
        train(Net(norm=False), loader, average=True)

    assert ranks_find(body) == (set() if same else {"weights-differ"})


def test_ranks_that_have_nothing_to_do_with_each_other():
    def body(rank):
        loader = loader_of(rank, False)
        dt.manual_seed(rank)
        train(Net(), loader)

    assert ranks_find(body) == set()


@pytest.mark.filterwarnings("ignore:DistributedDataParallel on rank")
def test_weights_that_part_under_ddp():
    def body(rank):
        loader = loader_of(rank, False)
        model = DDP(Net(norm=False))
        train(model, loader, 3)
        with dt.no_grad():
            model.module.last.bias += rank
        train(model, loader, 9)

    assert ranks_find(body) == {"weights-differ"}


@pytest.mark.parametrize("together", [True, False])
def test_buffers(together):
    def body(rank):
        loader = loader_of(rank, False)
        train(DDP(Net(), broadcast_buffers=together), loader)

    assert ranks_find(body) == (set() if together else {"buffers-differ"})
