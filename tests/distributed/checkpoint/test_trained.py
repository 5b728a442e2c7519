"""Models of any strategy, on any number of ranks, come out as the one model that they are."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain import nn
from disttrain.distributed import checkpoint as dcp
from disttrain.distributed import pipelining as pp
from disttrain.distributed import simulate
from disttrain.distributed.checkpoint import load_model, newest_checkpoint, tools, trained
from disttrain.distributed.fsdp import FullyShardedDataParallel, fully_shard
from disttrain.distributed.fsdp.activation import apply_activation_checkpointing
from disttrain.distributed.mesh import init_device_mesh
from disttrain.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from disttrain.errors import ConfigError, SerializationError, StateDictError
from disttrain.serialize import from_pretrained, save_pretrained

pytestmark = pytest.mark.simulated
CODES = [[1, 4, 2], [0, 5, 5]]


class Net(nn.Module):
    """Sizes that no number of ranks divides, a buffer, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 6)
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)
        self.norm = nn.BatchNorm1d(6)
        self.scores = nn.Linear(6, 7, bias=False)
        self.scores.weight = self.tokens.weight

    def forward(self, codes: dt.Tensor) -> dt.Tensor:
        x = self.tokens(codes)
        x = x + self.down(dt.relu(self.up(x)))
        return self.scores(self.norm(x.transpose(1, 2)).transpose(1, 2))


def net() -> Net:
    dt.manual_seed(5)
    made = Net()
    made.norm.running_mean.normal_()
    return made


def ddp(model: nn.Module) -> nn.Module:
    return dist.DistributedDataParallel(model)


def fsdp(model: nn.Module) -> nn.Module:
    fully_shard(model.up)
    return fully_shard(model)


def flat(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(model, use_orig_params=True)


def recomputed(model: nn.Module) -> nn.Module:
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Linear))
    return fully_shard(model)


def hybrid(model: nn.Module) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (2, dist.get_world_size() // 2)))


def tensor(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def grid(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tp"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return fully_shard(parallelize_module(model, mesh["tp"], plan), mesh=mesh["data"])


def compiled(model: nn.Module) -> nn.Module:
    return dt.compile(dist.DistributedDataParallel(model))


STRATEGIES = [
    (ddp, 2), (fsdp, 3), (flat, 2), (recomputed, 2), (hybrid, 4), (tensor, 2), (grid, 4),
    (compiled, 2),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "ranks"), STRATEGIES, ids=lambda x: getattr(x, "__name__", x))
def test_every_strategy_gives_the_model_of_one_process(tmp_path, strategy, ranks):
    def save() -> None:
        dist.init_process_group()
        wrapped = strategy(net())
        dcp.save({"model": wrapped.state_dict()}, checkpoint_id=tmp_path / "c")
        dist.destroy_process_group()

    simulate(save, ranks)
    model = load_model(Net, tmp_path / "c")
    assert model(dt.tensor(CODES)).tolist() == net().eval()(dt.tensor(CODES)).tolist()
    assert not model.training and model.scores.weight is model.tokens.weight


def test_stages_of_a_pipeline_are_one_model(tmp_path):
    def chain() -> nn.Sequential:
        dt.manual_seed(2)
        inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        return nn.Sequential(nn.Linear(4, 3), inner, nn.BatchNorm1d(3), nn.Linear(3, 2))

    def save() -> None:
        dist.init_process_group()
        part = pp.split_layers(chain(), 3)[dist.get_rank()]
        dcp.save({"model": part.state_dict()}, checkpoint_id=tmp_path / "c")
        dist.destroy_process_group()

    simulate(save, 3)
    x = dt.randn(5, 4)
    assert load_model(chain, tmp_path / "c")(x).tolist() == chain().eval()(x).tolist()


def test_a_module_given_whole_and_a_key_with_dots(tmp_path):
    where = tmp_path / "c"
    dcp.save({"state": {"net": net().state_dict(), "step": 3}}, checkpoint_id=where)
    model = load_model(Net, where, "state.net")
    assert model.up.weight.tolist() == net().up.weight.tolist()
    with pytest.raises(ConfigError, match="nothing under 'model'; on top it has state"):
        load_model(Net, where)
    with pytest.raises(ConfigError, match="int; a state dict is needed"):
        load_model(Net, where, "state.step")


def test_what_does_not_fit_is_listed(tmp_path):
    where = tmp_path / "c"
    dcp.save({"model": net().state_dict()}, checkpoint_id=where)
    with pytest.raises(StateDictError, match=r"(?s)model: .*Unexpected.*tokens\.weight"):
        load_model(lambda: nn.Linear(6, 12), where)
    with pytest.raises(ConfigError, match="made int; a module is needed"):
        load_model(lambda: 3, where)
    state = {"module.weight": dt.ones(1, 1), "_orig_mod.weight": dt.ones(1, 1)}
    dcp.save({"model": state}, checkpoint_id=tmp_path / "two")
    with pytest.raises(SerializationError, match="'weight' stands there under two names"):
        load_model(lambda: nn.Linear(1, 1, bias=False), tmp_path / "two")


def test_a_layer_that_is_called_module_keeps_its_name(tmp_path):
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 2)

    saved = Outer()
    dcp.save({"model": {f"module.{n}": t for n, t in saved.state_dict().items()}},
             checkpoint_id=tmp_path / "wrapped")  # fmt: skip
    dcp.save({"model": saved.state_dict()}, checkpoint_id=tmp_path / "plain")
    for name in ("plain", "wrapped"):
        assert load_model(Outer, tmp_path / name).module.weight.tolist() == (
            saved.module.weight.tolist()
        )


def test_the_newest_checkpoint_of_runs(tmp_path):
    def save(name: str) -> Path:
        dcp.save({"n": 1}, checkpoint_id=tmp_path / name)
        return tmp_path / name

    with pytest.raises(ConfigError, match=r"holds no checkpoint\. Name"):
        newest_checkpoint(tmp_path)
    save("0002/step_9")
    last = save("0002/step_10")
    save("0001/step_11")
    assert newest_checkpoint(tmp_path) == str(last)
    assert newest_checkpoint(tmp_path / "0001") == str(tmp_path / "0001" / "step_11")
    assert newest_checkpoint(last) == str(last)
    for file in last.iterdir():
        if file.suffix != ".safetensors":
            file.unlink()
    assert newest_checkpoint(tmp_path / "0002") == str(tmp_path / "0002" / "step_9")
    with pytest.raises(ConfigError, match="is no folder"):
        newest_checkpoint(tmp_path / "none")


@pytest.mark.parametrize(("strategy", "ranks"), [(fsdp, 3), (tensor, 2)])
def test_a_model_on_ranks_leaves_as_a_folder(tmp_path, strategy, ranks):
    def save() -> None:
        dist.init_process_group()
        first = dist.get_rank() == 0
        save_pretrained(strategy(net()), tmp_path, max_shard_size=400, is_main_process=first)
        dist.destroy_process_group()

    simulate(save, ranks)
    model = from_pretrained(Net(), tmp_path).eval()
    assert model(dt.tensor(CODES)).tolist() == net().eval()(dt.tensor(CODES)).tolist()


def test_a_checkpoint_that_is_the_state_dict(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    dcp.save(model.state_dict(), checkpoint_id=tmp_path / "step_1")

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))

    again = load_model(build, tmp_path / "step_1", "")
    x = dt.ones(2, 3)
    assert again(x).tolist() == model(x).tolist()
    with pytest.raises(ConfigError, match="has nothing under 'model'; on top it has 0, 2"):
        load_model(build, tmp_path / "step_1")


def test_a_checkpoint_that_is_deleted_while_it_is_read(tmp_path, monkeypatch):
    """By the program that trains: the next one is taken."""
    model = nn.Linear(2, 1)
    for step in (1, 2):
        dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / f"step_{step}")
    gone, read = [], trained.tools.values

    def deleted(where: str, keys: object) -> object:
        if not gone:
            gone.append(where)
            tools.remove(where)
            dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "step_3")
        return read(where, keys)

    monkeypatch.setattr(trained.tools, "values", deleted)
    where, again = trained.load_newest(lambda: nn.Linear(2, 1), tmp_path)
    assert Path(where).name == "step_3" and Path(gone[0]).name == "step_2"
    assert again.weight.tolist() == model.weight.tolist()


def test_checkpoints_that_come_and_go(tmp_path):
    """Beside a program that writes and deletes them one always is found."""
    state = {"model": nn.Linear(2, 1).state_dict()}
    dcp.save(state, checkpoint_id=tmp_path / "run" / "step_0")
    done = threading.Event()

    def write() -> None:
        for step in range(1, 5):
            dcp.save(state, checkpoint_id=tmp_path / "run" / f"step_{step}")
            tools.remove(str(tmp_path / "run" / f"step_{step - 1}"))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        trained.load_newest(lambda: nn.Linear(2, 1), tmp_path)
    thread.join()
