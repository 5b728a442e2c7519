"""One process and several ranks say the same: DDP, fully_shard, micro-batches."""

from __future__ import annotations

import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain.distributed.fsdp import fully_shard
from disttrain.record.diff import diff
from disttrain.record.reader import read

pytestmark = pytest.mark.simulated
nn = dt.nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(self.first(x).relu())


def train(folder, world, wrap, micro=1, level="ops", wrong=False):
    g = dt.Generator().manual_seed(1)
    x, y = dt.randn(2, 12, 6, generator=g), dt.randint(0, 3, (2, 12), generator=g)

    def body():
        dist.init_process_group()
        dt.manual_seed(0)
        net = Net()
        with dt.record(folder, level):
            model = wrap(net)
            optimizer = dt.optim.AdamW(model.parameters(), lr=0.01)
            n = 12 // world // micro
            for step in range(2):
                optimizer.zero_grad()
                for k in range(micro):
                    at = (dist.get_rank() * micro + k) * n
                    out = model(x[step, at : at + n]) * (2 if wrong and step else 1)
                    loss = nn.functional.cross_entropy(out, y[step, at : at + n])
                    (loss / micro).backward()
                optimizer.step()

    dist.simulate(body, world)
    return read(str(folder))


def sharded(net):
    for part in (net.first, net.second):
        fully_shard(part)
    return fully_shard(net)


WRAPS = {"ddp": nn.parallel.DistributedDataParallel, "fully_shard": sharded}


@pytest.mark.parametrize("level", ["modules", "ops"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_one_process_and_three_ranks_agree(tmp_path, wrap, level):
    one = train(tmp_path / "one", 1, lambda net: net, level=level)
    many = train(tmp_path / "many", 3, WRAPS[wrap], level=level)
    found = diff(one, many)
    assert (found.mode, found.first) == ("whole", None)
    assert found.compared > 20
    back = diff(many, one)
    assert (back.first, back.compared) == (None, found.compared)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_difference_is_found(tmp_path, wrap):
    one = train(tmp_path / "one", 1, lambda net: net, level="modules")
    many = train(tmp_path / "many", 3, WRAPS[wrap], level="modules", wrong=True)
    first = diff(one, many).first
    assert first is not None
    assert (first.step, first.row.name) == (1, "Net.first.weight")


def test_shards_have_the_bits_of_the_whole_before_the_first_step(tmp_path):
    one = train(tmp_path / "one", 1, lambda net: net, level="modules")
    many = train(tmp_path / "many", 3, sharded, level="modules")
    found = diff(one, many, ulp=0.0)
    assert found.first is None or found.first.row.name not in ("first.weight", "second.weight")
    states = [
        r for s in many.streams.values() for r in s if r.name == "Net.first.weight" and r.whole
    ]
    assert states


def test_micro_batches_add_up(tmp_path):
    one = train(tmp_path / "one", 1, lambda net: net, level="modules")
    parts = train(tmp_path / "parts", 1, lambda net: net, micro=3, level="modules")
    found = diff(one, parts, mode="whole")
    assert found.first is None
    assert found.compared > 20
