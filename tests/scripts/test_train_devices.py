"""``scripts/train.py --device cuda`` on the stand-in for devices: the CPU's numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import train as program

import disttrain as dt

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = {
    "digits": ["--data.batch_size", "64", "--model.name", "mlp", "--model.hidden", "[8]",
               "--train.steps_per_epoch", "3", "--train.epochs", "2"],
    "gpt": ["--config", str(CONFIGS / "gpt_char.toml"), "--data.batch_size", "8",
            "--data.block_size", "8", "--model.width", "16", "--model.num_layers", "1",
            "--train.steps_per_epoch", "2", "--train.epochs", "1", "--log.sample", "2"],
}  # fmt: skip


def words(kind, folder, device, *more):
    return [*SMALL[kind], "--log.dir", str(folder / device), "--log.tensorboard", "false",
            "--device", device, *more]  # fmt: skip


@pytest.mark.parametrize("kind", SMALL)
def test_a_run_is_the_same_on_a_device(double, tmp_path, capsys, kind):
    results = {}
    for device in ("cpu", "cuda"):
        settings, _ = program.read_command_line(
            words(kind, tmp_path, device, "--parallel.strategy", "none")
        )
        results[device] = program.train(settings)
    here, there = results["cpu"], results["cuda"]
    assert there.train_loss == pytest.approx(here.train_loss, rel=1e-3)
    assert double.memory_stats(0)["peak_allocated"] > 0


@pytest.mark.parametrize(("strategy", "ranks"), [("ddp", 2), ("zero", 2), ("fsdp", 2), ("hsdp", 4)])
def test_every_strategy_trains_on_devices(double, tmp_path, strategy, ranks):
    """Four ranks share two devices."""
    results = {}
    for device in ("cuda", "cpu"):
        settings, _ = program.read_command_line(
            words(
                "digits", tmp_path, device, "--parallel.strategy", strategy, "--train.epochs", "1"
            )
        )
        body = lambda settings=settings: program.train(settings)
        results[device] = dt.distributed.simulate(body, ranks, seed=1).results[0]
    here, there = results["cpu"], results["cuda"]
    assert there.train_loss == pytest.approx(here.train_loss, rel=1e-3)
    used = [double.memory_stats(i)["peak_allocated"] > 0 for i in (0, 1)]
    assert used == [True, True]


def test_a_run_goes_on_where_there_is_another_kind_of_device(double, tmp_path):
    """In the middle of an epoch, both ways; the end is that of a run on the CPU."""
    few = ("--parallel.strategy", "none", "--train.save_every", "2")
    settings, _ = program.read_command_line(words("digits", tmp_path / "whole", "cpu", *few))
    whole = program.train(settings)
    for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
        folder = tmp_path / f"{first}-{second}"
        settings, _ = program.read_command_line(words("digits", folder, first, *few))
        run = program.train(settings).run
        shutil.rmtree(run / "epoch_0002")
        again = words("digits", folder, second, *few, "--resume", str(run))
        result = program.train(*program.read_command_line(again))
        assert result.train_loss == pytest.approx(whole.train_loss, rel=1e-3)


def test_without_a_device_the_program_says_so(tmp_path, capsys):
    assert program.main(words("digits", tmp_path, "cuda", "--parallel.strategy", "none")) == 2
    assert "train.py: " in (said := capsys.readouterr().err) and "cuda" in said
    assert program.main(words("digits", tmp_path, "tpu", "--parallel.strategy", "none")) == 2
    assert "device" in capsys.readouterr().err
