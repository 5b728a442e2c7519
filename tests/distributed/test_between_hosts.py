"""Training over several hosts: DDP and fully_shard compute bit for bit what they do on one."""

from __future__ import annotations

import pytest

import disttrain as dt
import disttrain.distributed as dist
from disttrain import nn, optim
from disttrain.comm.group.default_group import default_group
from disttrain.comm.meeting import meeting
from disttrain.distributed.fsdp import fully_shard
from support.ranks import run_ranks

STEPS = 3


def train(rank, kind):
    """The bytes of all parameters after a few steps."""
    dt.manual_seed(3)
    model = nn.Sequential(nn.Linear(40, 301), nn.GELU(), nn.Linear(301, 60), nn.Linear(60, 7))
    if kind == "ddp":
        model = dist.DistributedDataParallel(model, bucket_cap_mb=0.05)
    else:
        fully_shard(model)
    steps = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dt.manual_seed(100 + rank)
    for _ in range(STEPS):
        x, y = dt.randn(6, 40), dt.randint(0, 7, (6,))
        steps.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        steps.step()
    found = model.parameters()
    full = [p.full_tensor() if kind == "fsdp" else p for p in found]
    return [p.detach().numpy().tobytes() for p in full]


def on_hosts(hosts, kind, path, monkeypatch):
    def body(rank):
        monkeypatch.setattr(meeting, "host_id", lambda: hosts[rank])
        dist.init_process_group(
            "gloo", f"file://{path}", rank=rank, world_size=len(hosts), timeout=20
        )
        used = default_group().transport.kind
        result = train(rank, kind)
        dist.destroy_process_group()
        return used, result

    return run_ranks(len(hosts), body)


@pytest.mark.parametrize(("kind", "layout"), [("ddp", "aabb"), ("fsdp", "abba")])
def test_two_hosts_with_two_ranks_train_as_one_host(kind, layout, tmp_path, monkeypatch):
    one = on_hosts("aaaa", kind, tmp_path / "one", monkeypatch)
    assert [used for used, _ in one] == ["shm"] * 4
    several = on_hosts(layout, kind, tmp_path / layout, monkeypatch)
    assert [used for used, _ in several] == ["tcp"] * 4
    assert [result for _, result in several] == [result for _, result in one]


def test_the_transport_between_hosts_may_be_asked_for_on_one(tmp_path):
    def body(rank):
        dist.init_process_group("tcp", f"file://{tmp_path}/s", rank=rank, world_size=2, timeout=20)
        x = dt.ones(5) * (rank + 1)
        dist.all_reduce(x)
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        dist.destroy_process_group()
        return default_kind(), x.tolist(), objects

    def default_kind():
        return default_group() is None

    want = (True, [3.0] * 5, [{"rank": 0}, {"rank": 1}])
    assert run_ranks(2, body) == [want, want]


def test_an_exception_reaches_the_other_hosts_with_its_traceback(tmp_path):
    def body(rank):
        dist.init_process_group("tcp", f"file://{tmp_path}/s", rank=rank, world_size=3, timeout=20)
        try:
            if rank == 1:
                raise ValueError("on purpose")
            dist.all_reduce(dt.ones(3))
        except ValueError:
            dist.destroy_process_group()
        except dt.errors.PeerFailed as error:
            return error.rank, error.cause, "raise ValueError" in error.traceback
        return None

    told = (1, "ValueError: on purpose", True)
    assert run_ranks(3, body) == [told, None, told]
