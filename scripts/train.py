#!/usr/bin/env python3
"""Train a network.

    dtrun --nproc-per-node 4 scripts/train.py --config configs/digits_ddp.toml
    python scripts/train.py --config configs/gpt_char.toml --train.epochs 2
    dtrun --nproc-per-node 4 --replace-ranks --max-restarts 9 --on-term checkpoint scripts/train.py
    dtrun --nproc-per-node gpu scripts/train.py --config configs/gpt_char.toml --device cuda

Every setting of the TOML file can be given on the command line: --optim.lr 0.01
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import disttrain as dt
from disttrain import config, outputs
from disttrain.distributed import elastic
from disttrain.distributed.checkpoint import Trained
from disttrain.distributed.planning import Subject
from disttrain.errors import ConfigError, DeviceError, SerializationError
from training import checkpoint, enduring, exporting
from training.loop import Result, Trainer
from training.planning import make_subject
from training.settings import Settings


def read_command_line(words: list[str]) -> tuple[Settings, Path | None]:
    """The settings, and the checkpoint to go on from."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description=__doc__,
        epilog="settings:\n" + config.describe(Settings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="TOML", help="file of settings")
    parser.add_argument(
        "--resume",
        nargs="?",
        const=True,
        metavar="RUN",
        help="go on from the newest checkpoint of the folder RUN (default: of log.dir)",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="train on the MNIST-format IDX files in DIR (--data.name idx --data.dir DIR)",
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, or cuda: each rank takes its own by LOCAL_RANK (--train.device NAME)",
    )
    options, overrides = parser.parse_known_args(words)
    if options.device is not None:
        overrides = [f"--train.device={options.device}", *overrides]
    if options.data_dir is not None:
        overrides = ["--data.name=idx", f"--data.dir={options.data_dir}", *overrides]
    path, resume = options.config, None
    if isinstance(options.resume, str):
        resume = checkpoint.find(Path(options.resume))
        path = path or resume.parent / "config.toml"
    settings = config.load(Settings, path, overrides)
    if options.resume is True:
        resume = checkpoint.find(settings.log.dir)
    return settings, resume


def own_checkpoint(settings: Settings, resume: Path | None) -> Path | None:
    """What this job goes on from: its own newest checkpoint, whatever of it was started anew; where
    it has none, ``resume``."""
    if elastic.is_newcomer():  # beside others, who give it their state
        return resume
    job = checkpoint.job_of(os.environ)
    run = checkpoint.own_run(settings.log.dir, job, resume)
    return checkpoint.newest(run) or resume


def train(settings: Settings, resume: Path | None = None) -> Result:
    """Train on this rank; every rank of the job calls it alike."""
    if settings.parallel.strategy == "none":
        return Trainer(settings, own_checkpoint(settings, resume)).fit()
    if enduring.outlives(settings):
        result = enduring.fit(settings, own_checkpoint(settings, resume))
        dt.distributed.destroy_process_group()
        return result
    dt.distributed.init_process_group()
    try:
        return Trainer(settings, _as_rank_0_says(own_checkpoint(settings, resume))).fit()
    finally:
        dt.distributed.destroy_process_group()


def _as_rank_0_says(path: Path | None) -> Path | None:
    """Nodes may see different files."""
    told = [None if path is None else str(path)]
    dt.distributed.broadcast_object_list(told)
    return None if told[0] is None else Path(told[0])


def subject(words: list[str]) -> Subject:
    """For ``disttrain plan``: what these words would train."""
    return make_subject(read_command_line(words)[0])


def trained(run: str, words: list[str]) -> Trained:
    """For ``disttrain export``: the model of the folder ``run``."""
    settings, _ = read_command_line(["--config", str(Path(run) / "config.toml"), *words])
    return exporting.make_trained(Path(run), settings)


def main(words: list[str] | None = None) -> int:
    """Run the program; the exit code is 2 for wrong settings, 143 where it was asked to end before
    all was done."""
    try:
        settings, resume = read_command_line(sys.argv[1:] if words is None else words)
        result = train(settings, resume)
    except (ConfigError, DeviceError, SerializationError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    if result.run is not None:
        print(f"run: {result.run}")
    if result.stopped:
        if result.run is not None:
            print(f"stopped, and saved; --resume {result.run} goes on", flush=True)
        return 128 + signal.SIGTERM
    if result.run is not None:
        print(
            f"final: test_accuracy={result.test_accuracy:.3f} train_loss={result.train_loss:.4f} "
            f"world_size={result.world_size} seconds={result.seconds:.1f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(outputs.command(main, "train.py"))
