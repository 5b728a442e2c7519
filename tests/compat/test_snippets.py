"""Snippets as the field's tutorials write them, run by ``python -m disttrain.compat.torch``."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(tmp_path: Path, program: str, *before: str) -> subprocess.CompletedProcess:
    """Run a program; ``before`` replaces the stand-in's command."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    command = before or (sys.executable, "-m", "disttrain.compat.torch")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, str(path)], env=env, capture_output=True, text=True, timeout=50, cwd=tmp_path
    )


def lines(tmp_path: Path, program: str, *before: str) -> list[str]:
    done = run(tmp_path, program, *before)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_polynomial_and_its_derivative(tmp_path):
    program = """
        import torch
        x = torch.tensor(3.0, requires_grad=True)
        y = x**2 + 3*x + 1
        y.backward()
        print(y, x.grad, x.dtype, torch.zeros(2, 3).shape)
    """
    assert lines(tmp_path, program) == [
        "tensor(19., grad_fn=<AddBackward0>) tensor(9.) torch.float32 torch.Size([2, 3])"
    ]


def test_module_and_the_five_step_loop(tmp_path):
    program = """
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.utils.data import DataLoader, TensorDataset

        class MLP(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))

            def forward(self, x):
                return self.layers(x)

        torch.manual_seed(0)
        x = torch.randn(256, 2)
        y = (x[:, 0] * x[:, 1] > 0).long()
        model = MLP()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
        for epoch in range(40):
            for bx, by in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(bx), by)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
                optimizer.step()
        with torch.no_grad():
            accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
        print(accuracy > 0.95, sum(p.numel() for p in model.parameters() if p.requires_grad))
        for p in model.layers[0].parameters():
            p.requires_grad = False
        print(sum(p.numel() for p in model.parameters() if p.requires_grad))
        torch.save(model.state_dict(), "model.pt")
        model.load_state_dict(torch.load("model.pt", weights_only=True))
        print(model)
    """
    out = lines(tmp_path, program)
    assert out[:2] == ["True 82", "34"]
    assert out[-1] == ")" and "(0): Linear(in_features=2, out_features=16, bias=True)" in out[4]


def test_custom_function_accumulation_and_checkpoint(tmp_path):
    program = """
        import torch
        from torch import nn
        from torch.utils.checkpoint import checkpoint

        class Sigmoid(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = 1 / (1 + torch.exp(-x))
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx, grad_output):
                (y,) = ctx.saved_tensors
                return grad_output * y * (1 - y)

        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        print(torch.autograd.gradcheck(Sigmoid.apply, (x,)))
        w = torch.ones(2, requires_grad=True)
        for _ in range(3):
            (w * 2).sum().backward()
        print(w.grad)
        w.grad.zero_()
        print(w.grad)

        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

            def forward(self, x, save_memory):
                for block in self.blocks:
                    x = checkpoint(block, x, use_reentrant=False) if save_memory else block(x)
                return x

        model, x = Deep(), torch.randn(2, 4)
        grads = []
        for save_memory in (False, True):
            model.zero_grad()
            model(x, save_memory).sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        print(all(torch.equal(a, b) for a, b in zip(*grads)))
    """
    assert lines(tmp_path, program) == ["True", "tensor([6., 6.])", "tensor([0., 0.])", "True"]


def test_old_names(tmp_path):
    program = """
        import torch
        from torch.autograd import Variable
        x = Variable(torch.FloatTensor([1, 2]), requires_grad=True)
        print(isinstance(x, torch.FloatTensor), torch.LongTensor([3]).dtype)
        print(torch.Tensor(2, 3).shape)
        torch.backends.cudnn.benchmark = True
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        print(device, x.type(), torch.pi > 3, torch.get_num_threads() >= 1)
    """
    assert lines(tmp_path, program) == [
        "True torch.int64",
        "torch.Size([2, 3])",
        "cpu torch.FloatTensor True True",
    ]


def test_spawned_processes_meet(tmp_path):
    program = """
        import torch, torch.distributed as dist, torch.multiprocessing as mp

        def main(rank, size, path):
            where = "file://" + path
            dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
            t = torch.ones(2) * (rank + 1)
            dist.all_reduce(t, op=dist.ReduceOp.SUM)
            if rank == 0:
                print(t)
            dist.destroy_process_group()

        if __name__ == "__main__":
            import os
            mp.spawn(main, args=(2, os.path.abspath("meet")), nprocs=2, join=True)
    """
    assert lines(tmp_path, program) == ["tensor([3., 3.])"]


def test_ddp_under_dtrun(tmp_path):
    program = """
        import os, torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group(backend="gloo")
        rank = int(os.environ["LOCAL_RANK"])
        model = DDP(torch.nn.Linear(2, 1))
        model(torch.ones(1, 2) * (rank + 1)).sum().backward()
        if rank == 0:
            print(model.module.weight.grad)
        dist.destroy_process_group()
    """
    dtrun = (sys.executable, "-m", "disttrain_launcher", "--as-torch", "--nproc-per-node", "2")
    assert lines(tmp_path, program, *dtrun) == ["[rank 0] tensor([[1.5000, 1.5000]])"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("import torch; torch.nope", "torch.nope is not part of disttrain's stand-in"),
        ("from torch import nope", "torch.nope is not part of disttrain's stand-in"),
        ("import torch.nope", "torch.nope is not part of disttrain's stand-in"),
        ("import torch; torch.ones(2).cuda()", "device 'cuda': not available here"),
    ],
)
def test_what_is_missing_says_so(tmp_path, statement, said):
    done = run(tmp_path, statement)
    assert done.returncode == 1 and said in done.stderr


def test_refused_beside_the_real_one(tmp_path):
    program = """
        import sys, types
        sys.modules["torch"] = types.ModuleType("torch")
        import disttrain.compat.torch as stand_in
        stand_in.install()
    """
    done = run(tmp_path, program, sys.executable)
    assert done.returncode == 1 and "the real torch is imported already" in done.stderr


def test_usage(tmp_path):
    done = run(tmp_path, "", sys.executable, "-m", "disttrain.compat.torch", "nowhere.py")
    assert done.returncode == 2 and "no such file: nowhere.py" in done.stderr


def test_whole_modules_are_saved(tmp_path):
    program = """
        import torch, torch.nn.functional as F

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(2, 3)
                self.act = F.relu

            def forward(self, x):
                return self.act(self.fc(x))

        net, x = Net(), torch.ones(1, 2)
        optimizer = torch.optim.Adam(net.parameters())
        torch.save({"net": net, "optimizer": optimizer.state_dict()}, "net.pt")
        try:
            torch.load("net.pt")
        except Exception as error:
            print(str(error).partition("Weights only load failed")[1], "__main__.Net" in str(error))
        got = torch.load("net.pt", weights_only=False)["net"]
        print(type(got) is Net, torch.equal(net(x), got(x)))
        names = torch.serialization.get_unsafe_globals_in_checkpoint("net.pt")
        with torch.serialization.safe_globals([Net, torch.nn.Linear, F.relu]):
            got = torch.load("net.pt", map_location="cpu")["net"]
            print(len(names), torch.equal(net(x), got(x)))
    """
    assert lines(tmp_path, program) == ["Weights only load failed True", "True True", "3 True"]


def test_old_constructors_take_sizes_sequences_and_tensors(tmp_path):
    program = """
        import array, collections
        import numpy as np
        import torch
        L, F = torch.LongTensor, torch.FloatTensor
        for data in ([1, 2], (1, 2), range(1, 3), np.array([1, 2]), array.array("i", [1, 2]),
                     collections.deque([1, 2])):
            t = L(data)
            assert t.dtype is torch.int64 and t.tolist() == [1, 2], data
        assert torch.Tensor(range(3)).tolist() == [0.0, 1.0, 2.0]
        assert torch.ones(1).new(range(2)).tolist() == [0.0, 1.0]
        for t in (F(2, 3), F(torch.Size([2, 3])), F(size=(2, 3)), F(torch.ones(2, 3)),
                  torch.ones(1).new(2, 3), torch.Tensor(2, 3)):
            assert t.shape == (2, 3) and t.dtype is torch.float32
        assert L().shape == (0,) and L(np.int64(3)).shape == (3,) and L([]).shape == (0,)
        x = torch.ones(2)
        F(x)[0] = 9
        assert x.tolist() == [9.0, 1.0]
        assert torch.Tensor(torch.ones(2, dtype=torch.int64)).dtype is torch.int64
        for wrong in ({1, 2}, (i for i in range(3)), "12", 2.5, torch.ones(2)):
            try:
                L(wrong)
            except TypeError:
                continue
            raise AssertionError(wrong)
        print("done")
    """
    assert lines(tmp_path, program) == ["done"]


def test_differentiable_collectives_by_their_torch_names(tmp_path):
    program = """
        import torch
        import torch.distributed as dist
        import torch.distributed.nn
        from torch.distributed.nn.functional import _all_gather_base, all_reduce

        dist.init_process_group("gloo")
        x = torch.ones(2, requires_grad=True)
        y = torch.distributed.nn.all_gather(all_reduce(x * 3))[0]
        y.sum().backward()
        norm = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(2))
        print(x.grad.tolist(), type(norm).__name__, _all_gather_base.__name__)
        dist.destroy_process_group()
    """
    assert lines(tmp_path, program) == ["[3.0, 3.0] SyncBatchNorm _all_gather_base"]


def test_modules_of_strategies_load_when_they_are_used(tmp_path):
    program = """
        import sys
        import torch
        import torch.distributed as dist
        print([m for m in sys.modules if m.startswith(("disttrain.distributed.algorithms",
              "disttrain.distributed.optim", "disttrain.distributed.fsdp"))])

        from torch.distributed._composable import replicate
        from torch.distributed._composable.fsdp import fully_shard
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
        from torch.distributed.algorithms.join import Join
        from torch.distributed.algorithms.model_averaging import averagers
        from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer

        dist.init_process_group("gloo")
        model = replicate(torch.nn.Linear(2, 1))
        model.register_comm_hook(None, default.fp16_compress_hook)
        o = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
        o = PostLocalSGDOptimizer(o, averagers.PeriodicModelAverager(2))
        model(torch.ones(1, 2)).sum().backward()
        o.step()
        print(replicate.state(model) is not None, powerSGD.PowerSGDState(None).iter)
        dist.destroy_process_group()
    """
    assert lines(tmp_path, program) == ["[]", "True 0"]
