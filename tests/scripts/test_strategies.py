"""The training program under every strategy: what it learns, on which ranks it may be resumed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import train as program

import disttrain as dt
from disttrain import config
from disttrain.distributed.checkpoint import tools
from disttrain.errors import ConfigError
from disttrain.metrics import read_jsonl
from training import checkpoint, feeding, loop, planning
from training.datasets import make_task
from training.settings import Settings
from training.tally import Tally, means

TINY = [
    "--data.name=text",
    "--data.block_size=8",
    "--data.batch_size=16",
    "--model.name=gpt",
    "--model.width=16",
    "--model.num_heads=2",
    "--model.num_layers=2",
    "--optim.clip_norm=0.5",
    "--train.epochs=2",
    "--train.steps_per_epoch=3",
    "--log.every=2",
    "--log.tensorboard=false",
]
GLOBAL = ["--parallel.deterministic=global", "--model.dropout=0.1"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """One text for all ranks, and tests on little of it: what is tested here is the training."""
    whole = make_task(config.load(Settings, None, TINY).data)
    task = replace(whole, test=dt.data.Subset(whole.test, range(40)))
    for module in (loop, planning):
        monkeypatch.setattr(module, "make_task", lambda data: task)
    monkeypatch.setattr(feeding, "TEST_BATCH", 16)


def run(folder: Path, ranks: int, strategy: str, *words: str, resume: bool = False):
    """Train on simulated ranks; the last result of rank 0 and the recorded losses."""
    settings = config.load(
        Settings, None, [*TINY, f"--parallel.strategy={strategy}", f"--log.dir={folder}", *words]
    )
    found = checkpoint.find(folder) if resume else None
    if strategy == "none":
        result = program.train(settings, found)
    else:
        body = lambda: program.train(settings, found)
        result = dt.distributed.simulate(body, ranks, seed=1).results[0]
    records = [r for r in read_jsonl(result.run / "metrics.jsonl") if r["kind"] != "resume"]
    return result, [(r["step"], r["kind"], r["loss"]) for r in records]


def losses(curve):
    return [loss for _, _, loss in curve]


def test_strategies_learn_what_one_process_learns(tmp_path):
    _, alone = run(tmp_path / "none", 1, "none", "--train.epochs=1")
    pairs = (("ddp", 2), ("zero", 2), ("fsdp", 2), ("hsdp", 4), ("2d", 4))
    for strategy, ranks in pairs:
        result, curve = run(tmp_path / strategy, ranks, strategy, "--train.epochs=1")
        assert losses(curve) == pytest.approx(losses(alone), abs=2e-5), strategy
        assert result.world_size == ranks


@pytest.mark.parametrize(
    ("strategy", "ranks", "words"),
    [
        ("none", 1, []),
        ("ddp", 2, []),
        ("fsdp", 2, ["--parallel.precision=bf16", "--parallel.recompute=true"]),
        ("hsdp", 4, []),
        ("2d", 4, []),
    ],
)
def test_compiled_steps_learn_the_same_bits(tmp_path, strategy, ranks, words):
    """(That a step runs eagerly would be a warning, and so an error here.)"""
    words = ["--train.epochs=1", "--model.dropout=0.1", "--train.steps_per_epoch=6", *words]
    _, eager = run(tmp_path / "eager", ranks, strategy, *words)
    _, compiled = run(tmp_path / "compiled", ranks, strategy, "--train.compile=true", *words)
    assert compiled == eager


@pytest.mark.parametrize(
    ("strategy", "ranks"), [("ddp", 3), ("zero", 3), ("fsdp", 3), ("hsdp", 4), ("2d", 4)]
)
def test_ranks_with_other_numbers_of_samples_learn_what_one_process_learns(
    tmp_path, strategy, ranks
):
    """The gradients are the mean over all samples, and so is the loss."""
    words = ["--train.epochs=1", "--data.batch_size=7", "--optim.name=sgd", "--optim.lr=0.5"]
    _, alone = run(tmp_path / "none", 1, "none", *words)
    _, curve = run(tmp_path / "some", ranks, strategy, *words)
    assert losses(curve) == pytest.approx(losses(alone), abs=2e-5)
    assert max(losses(alone)) - min(losses(alone)) > 0.02  # it learns


def test_narrow_weights_and_recomputed_blocks_learn_about_the_same(tmp_path):
    _, alone = run(tmp_path / "none", 1, "none", "--train.epochs=1")
    words = ["--parallel.recompute=true", "--train.epochs=1"]
    _, again = run(tmp_path / "again", 2, "fsdp", *words)
    assert losses(again) == pytest.approx(losses(alone), abs=2e-5)
    _, narrow = run(tmp_path / "narrow", 2, "fsdp", "--parallel.precision=bf16", *words)
    assert losses(narrow) == pytest.approx(losses(alone), abs=0.03) and narrow != alone


def test_losses_of_a_global_run_are_the_same_on_any_ranks(tmp_path):
    words = [*GLOBAL, "--train.epochs=1"]
    _, alone = run(tmp_path / "alone", 1, "ddp", *words)
    for strategy, ranks in (("ddp", 2), ("fsdp", 2), ("hsdp", 4)):
        _, curve = run(tmp_path / strategy, ranks, strategy, *words)
        assert curve == alone, (strategy, ranks)


def test_losses_of_a_global_run_are_the_same_on_any_grid(tmp_path):
    words = [*GLOBAL, "--train.epochs=1"]
    curves = {}
    for ranks, tensor in ((1, 1), (2, 1), (2, 2), (4, 2)):
        grid = [*words, f"--parallel.tensor={tensor}"]
        _, curves[ranks, tensor] = run(tmp_path / f"{ranks}_{tensor}", ranks, "2d", *grid)
    assert len({str(curve) for curve in curves.values()}) == 1, curves


def test_a_resumed_run_goes_on_with_other_ranks_and_strategies(tmp_path):
    words = [*GLOBAL, "--train.epochs=3", "--log.keep_checkpoints=3"]
    _, whole = run(tmp_path / "run", 1, "fsdp", *words)
    found = tmp_path / "run" / "0001"
    for epoch, ranks, strategy in ((2, 4, "fsdp"), (1, 2, "ddp")):
        for later in range(epoch + 1, 4):  # as if it had been killed after that epoch
            tools.remove(str(found / f"epoch_{later:04d}"))
        _, curve = run(tmp_path / "run", ranks, strategy, *words, resume=True)
        after = [c for c in whole if c[0] > 3 * epoch]
        assert after and curve[-len(after) :] == after, (epoch, ranks)


@pytest.mark.parametrize(
    ("first", "then"),
    [("zero", "ddp"), ("ddp", "zero"), ("none", "fsdp"), ("fsdp", "2d"), ("2d", "fsdp")],
)
def test_checkpoints_fit_every_strategy(tmp_path, first, then):
    words = ["--train.epochs=2", "--log.keep_checkpoints=3"]
    _, whole = run(tmp_path / "whole", 1, "none", *words)
    run(tmp_path / "cut", 2, first, *words)
    tools.remove(str(tmp_path / "cut" / "0001" / "epoch_0002"))
    _, curve = run(tmp_path / "cut", 2, then, *words, resume=True)
    after = [c for c in whole if c[0] > 3]
    assert losses(curve[-len(after) :]) == pytest.approx(losses(after), abs=2e-5)


WITHIN = [
    "--model.dropout=0.2",
    "--train.save_every=2",
    "--train.steps_per_epoch=5",
    "--log.every=3",
    "--log.keep_checkpoints=9",
]


@pytest.mark.parametrize(
    ("strategy", "ranks", "then", "words"),
    [
        ("none", 1, 1, []),
        ("ddp", 2, 2, []),
        ("zero", 2, 2, []),
        ("fsdp", 2, 2, []),
        ("2d", 4, 4, []),
        ("ddp", 2, 2, ["--data.num_workers=1"]),
        ("ddp", 2, 4, ["--parallel.deterministic=global"]),
        ("fsdp", 2, 1, ["--parallel.deterministic=global"]),
    ],
)
def test_resumed_within_an_epoch_ends_bit_by_bit_like_the_whole_run(
    tmp_path, strategy, ranks, then, words
):
    one, curve = run(tmp_path / "whole", ranks, strategy, *WITHIN, *words)
    names = sorted(p.name for p in one.run.glob("epoch_*"))
    steps = ["epoch_0000_step_00000002", "epoch_0000_step_00000004", "epoch_0001"]
    steps += ["epoch_0001_step_00000006", "epoch_0001_step_00000008", "epoch_0002"]
    assert names == steps
    shutil.copytree(one.run / names[1], tmp_path / "cut" / "0001" / names[1])
    two, later = run(tmp_path / "cut", then, strategy, *WITHIN, *words, resume=True)
    differs = tools.diff(str(one.run / "epoch_0002"), str(two.run / "epoch_0002"), ("settings",))
    assert not differs, differs
    assert later == curve[-len(later) :] and len(later) == 4


def test_other_ranks_go_on_within_an_epoch(tmp_path):
    one, curve = run(tmp_path, 2, "ddp", *WITHIN, "--model.dropout=0")
    for name in ("epoch_0001", "epoch_0002", "epoch_0001_step_00000006"):
        tools.remove(str(one.run / name))
    tools.remove(str(one.run / "epoch_0001_step_00000008"))
    _, both = run(tmp_path, 1, "ddp", *WITHIN, "--model.dropout=0", resume=True)
    assert [row[:2] for row in both] == [row[:2] for row in curve]  # nothing twice
    assert losses(both) == pytest.approx(losses(curve), rel=1e-5)  # the same samples in each step


def test_the_plan_of_the_run_is_shown(tmp_path, capfd):
    run(tmp_path, 2, "fsdp", "--train.epochs=1")
    shown = capfd.readouterr().out.splitlines()
    at = shown.index("memory per rank, planned:")
    assert shown[at + 1].split()[:3] == ["strategy", "ranks", "batch"]
    assert shown[at + 2].split()[:3] == ["fsdp", "2", "8"]


def test_sums_do_not_depend_on_who_brings_the_rows():
    rows = [(0.1 * i, float(i % 3), 4) for i in range(12)]

    def body(size):
        def rank():
            dt.distributed.init_process_group()
            me = dt.distributed.get_rank()
            tally = Tally(size)
            for place in range(me, 12, size):
                tally.add(place, *rows[place])
            found = tally.together(0, 12)
            dt.distributed.destroy_process_group()
            return found.tobytes()

        return dt.distributed.simulate(rank, size).results

    assert len({*body(1), *body(2), *body(3)}) == 1
    tally = Tally()
    tally.add(5, 2.0, 3, 4)
    assert means(tally.together(5, 1)) == {"loss": 2.0, "accuracy": 0.75}
    assert tally.rows == {} and means(tally.together(0, 0)) == {"loss": 0.0, "accuracy": 0.0}


@pytest.mark.parametrize(
    ("ranks", "strategy", "words", "said"),
    [
        (3, "hsdp", ["--data.batch_size=24"], "parallel.replicas: 2 given for 3 ranks"),
        (2, "2d", ["--parallel.tensor=4"], "parallel.tensor: 4 given for 2 ranks"),
        (4, "2d", ["--parallel.tensor=4"], "parallel.tensor: 4 given for 2 heads"),
        (2, "ddp", [*GLOBAL, "--data.batch_size=12"], "12 given for 8 virtual shards"),
        (3, "fsdp", GLOBAL, "virtual_shards: 8 given for 3 ranks"),
    ],
)
def test_what_does_not_divide_is_refused(tmp_path, ranks, strategy, words, said):
    with pytest.raises(Exception, match=said) as info:
        run(tmp_path, ranks, strategy, *words)
    assert isinstance(info.value.__cause__, ConfigError)
