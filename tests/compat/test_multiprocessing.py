"""Programs that share tensors between their processes, as people write them for PyTorch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = (sys.executable, "-m", "disttrain.compat.torch")
SIMULATED = (sys.executable, "-m", "disttrain_launcher", "--as-torch", "--simulate", "1")
METHODS = ["fork", "spawn", "forkserver"]


def run(tmp_path: Path, program: str | Path, *args: str, start: tuple = STAND_IN) -> str:
    """What a program prints."""
    if isinstance(program, str):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program))
    else:
        path = program
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, str(path), *args], env=env, capture_output=True, text=True, timeout=50,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("method", [*METHODS, "mp.spawn"])
def test_hogwild_training_learns(tmp_path, method):
    program = Path(__file__).parent / "programs" / "hogwild.py"
    told = run(tmp_path, program, "--method", method)
    first, last = map(float, re.search(r"accuracy (\S+) -> (\S+)", told).groups())
    assert "steps [48, 48]" in told and first < 0.2 and last > 0.8, told


def test_processes_of_a_simulated_rank_find_the_stand_in(tmp_path):
    program = Path(__file__).parent / "programs" / "hogwild.py"
    told = run(tmp_path, program, "--method", "spawn", start=SIMULATED)
    assert "steps [48, 48]" in told, told


@pytest.mark.parametrize("method", METHODS)
def test_an_optimizer_whose_state_is_shared(tmp_path, method):
    program = """
        import sys, torch, torch.multiprocessing as mp

        class SharedAdam(torch.optim.Adam):
            def __init__(self, params, **options):
                super().__init__(params, **options)
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        state["step"] = torch.zeros(()).share_memory_()
                        state["exp_avg"] = torch.zeros_like(p).share_memory_()
                        state["exp_avg_sq"] = torch.zeros_like(p).share_memory_()

        def train(model, optimizer):
            x = torch.randn(64, 4)
            y = x @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])
            for _ in range(200):
                optimizer.zero_grad()
                ((model(x) - y) ** 2).mean().backward()
                optimizer.step()

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 1)
            model.share_memory()
            optimizer = SharedAdam(model.parameters(), lr=0.05)
            for _ in range(2):
                p = mp.Process(target=train, args=(model, optimizer))
                p.start()
                p.join()
            print(model.weight.detach().round().tolist(), optimizer.state[model.bias]["step"])
    """
    assert run(tmp_path, program, method) == "[[1.0, 2.0, 3.0, 4.0]] tensor(400.)\n"


@pytest.mark.parametrize("method", METHODS)
def test_queues_and_pools(tmp_path, method):
    program = """
        import sys, torch, torch.multiprocessing as mp

        def produce(queue, done):
            for i in range(20):
                t = torch.full((5,), float(i))
                queue.put((i, [t, t[2:]]))
                del t
            done.wait()

        def fill(t):
            t.fill_(4)
            return t.add(1)

        if __name__ == "__main__":
            ctx = mp.get_context(sys.argv[1])
            queue, done = ctx.Queue(), ctx.Event()
            p = ctx.Process(target=produce, args=(queue, done))
            p.start()
            for i in range(20):
                number, (t, part) = queue.get()
                part.add_(1)
                assert number == i and t.tolist() == [i, i, i + 1, i + 1, i + 1]
                assert t.is_shared()
            done.set()
            p.join()
            with ctx.Pool(2) as pool:
                given = [torch.zeros(2, 2) for _ in range(4)]
                got = pool.map(fill, given, 1)
            print([t.sum().item() for t in given], [t.sum().item() for t in got], p.exitcode)
    """
    assert run(tmp_path, program, method) == "[16.0, 16.0, 16.0, 16.0] [20.0, 20.0, 20.0, 20.0] 0\n"


def test_spawn_shares_what_it_is_given(tmp_path):
    """... as if it were pickled, wherever in the arguments it is; with fork nothing is shared."""
    program = """
        import torch, torch.multiprocessing as mp

        class Box:
            def __init__(self, t):
                self.t, self.lock = t, lambda: None

        def work(rank, out, boxes, model):
            out[rank] = rank + 1
            boxes["a"][0].t[rank] = rank + 1
            with torch.no_grad():
                model.bias[rank] = rank + 1

        if __name__ == "__main__":
            for method in ("spawn", "forkserver", "fork"):
                base = torch.zeros(3, 2)
                model, box = torch.nn.Linear(1, 2, bias=True), Box(base[1])
                torch.nn.init.zeros_(model.bias)
                out = torch.zeros(2)
                mp.start_processes(work, (out, {"a": [box]}, model), 2, start_method=method)
                print(out.tolist(), base.tolist(), model.bias.tolist())
    """
    shared = "[1.0, 2.0] [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]] [1.0, 2.0]"
    apart = "[0.0, 0.0] [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]] [0.0, 0.0]"
    assert run(tmp_path, program).splitlines() == [shared, shared, apart]
