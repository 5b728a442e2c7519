"""``scripts/train.py`` as a user starts it: over several ranks, cut short, resumed, mistyped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disttrain.metrics import read_jsonl

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "scripts" / "train.py")
DTRUN = [sys.executable, "-m", "disttrain_launcher", "--local-ranks-filter", "0"]
QUICK = ["--model.name", "mlp", "--model.hidden", "32", "--optim.lr", "0.01"]
FINAL = re.compile(
    r"final: test_accuracy=(\d\.\d{3}) train_loss=(\d\.\d{4}) world_size=(\d+) seconds=\d+\.\d"
)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def start(num_ranks: int, folder: Path, *words: str, **how) -> subprocess.Popen:
    ranks = [*DTRUN, "--nproc-per-node", str(num_ranks)] if num_ranks else [sys.executable]
    command = [*ranks, PROGRAM, *QUICK, "--log.dir", str(folder), *words]
    return subprocess.Popen(command, env=environment(), text=True, **how)


def train(num_ranks: int, folder: Path, *words: str) -> tuple[int, str, str]:
    pipe = subprocess.PIPE
    with start(num_ranks, folder, *words, stdout=pipe, stderr=pipe) as process:
        out, err = process.communicate(timeout=50)
    return process.returncode, out, err


def final(out: str) -> tuple[str, ...]:
    """Accuracy, loss and world size of the last line, which must say nothing else."""
    found = FINAL.fullmatch(out.strip().splitlines()[-1])
    assert found, out
    return found.groups()


def test_two_ranks_twice_the_same(tmp_path):
    runs = [train(2, tmp_path, "--train.epochs", "3") for _ in range(2)]
    assert [code for code, _, _ in runs] == [0, 0], runs
    assert final(runs[0][1]) == final(runs[1][1])
    assert float(final(runs[0][1])[0]) > 0.8 and final(runs[0][1])[2] == "2"


def test_ranks_do_not_change_what_is_learned(tmp_path):
    one = final(train(0, tmp_path, "--train.epochs", "2")[1])
    two = final(train(2, tmp_path, "--train.epochs", "2")[1])
    assert abs(float(one[1]) - float(two[1])) < 2e-3
    assert abs(float(one[0]) - float(two[0])) < 0.02


def kill_after_two_epochs(process: subprocess.Popen, run: Path) -> None:
    kill_when(process, run, "epoch_000[2-5]")


def kill_when(process: subprocess.Popen, run: Path, there: str) -> None:
    deadline = time.monotonic() + 40
    while not list(run.glob(f"{there}/manifest.json")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=20)


def test_killed_and_resumed_ends_like_the_whole_run(tmp_path):
    words = ["--train.epochs", "6", "--model.dropout", "0.1"]
    whole = final(train(2, tmp_path / "whole", *words)[1])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(2, tmp_path / "cut", *words, **quiet)
    kill_after_two_epochs(process, tmp_path / "cut" / "0001")
    code, out, err = train(2, tmp_path / "cut", *words, "--resume")
    assert code == 0, err
    assert final(out) == whole


def test_killed_within_an_epoch_and_resumed(tmp_path):
    words = ["--train.epochs", "2", "--model.dropout", "0.1", "--train.save_every", "5"]
    words += ["--train.steps_per_epoch", "12"]
    whole = final(train(2, tmp_path / "whole", *words)[1])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(2, tmp_path / "cut", *words, **quiet)
    kill_when(process, tmp_path / "cut" / "0001", "epoch_0000_step_*[05]")
    code, out, err = train(2, tmp_path / "cut", *words, "--resume")
    assert code == 0, err
    assert final(out) == whole


def test_killed_sharded_run_goes_on_with_fewer_ranks(tmp_path):
    """The losses are those of the run that was not killed, to the last bit."""
    words = ["--config", str(ROOT / "configs" / "gpt_char_fsdp.toml"), "--model.name", "gpt"]
    words += ["--data.block_size", "8", "--data.batch_size", "16", "--model.width", "16"]
    words += ["--train.epochs", "4", "--train.steps_per_epoch", "3", "--log.every", "1"]
    words += ["--log.sample", "0", "--parallel.recompute", "false"]
    assert train(1, tmp_path / "whole", *words)[0] == 0
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(2, tmp_path / "cut", *words, **quiet)
    kill_after_two_epochs(process, tmp_path / "cut" / "0001")
    code, _, err = train(1, tmp_path / "cut", *words, "--resume")
    assert code == 0, err
    whole, cut = (curve(tmp_path / name / "0001") for name in ("whole", "cut"))
    assert len(whole) == 12 + 4 and cut == whole


def curve(run: Path) -> dict[tuple[str, int], float]:
    """The recorded losses, by kind and step; each is there once."""
    records = [r for r in read_jsonl(run / "metrics.jsonl") if r["kind"] != "resume"]
    found = {(r["kind"], r["step"]): r["loss"] for r in records}
    assert len(found) == len(records)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--optim.lrr", "1"], "--optim.lrr is no setting; did you mean --optim.lr?"),
        (["--config", "configs/digits.toml"], "there is no such file"),
        (["--resume"], "there is no checkpoint"),
        (["--data-dir", "/nowhere"], "/nowhere is no folder"),
        (["--data.batch_size", "2000"], "the training data has only 1437 samples"),
    ],
)
def test_mistakes_are_told_without_a_traceback(tmp_path, words, said):
    code, out, err = train(0, tmp_path, *words)
    assert code == 2 and said in err and "Traceback" not in err and out == ""


def test_a_batch_that_ranks_do_not_divide_is_learned_from_alike(tmp_path):
    words = ["--data.batch_size", "33", "--train.epochs", "1"]
    three, one = (train(n, tmp_path / f"{n}", *words) for n in (3, 0))
    assert three[0] == 0, three
    assert abs(float(final(three[1])[1]) - float(final(one[1])[1])) < 2e-3


def test_each_rank_needs_a_sample(tmp_path):
    code, _, err = train(3, tmp_path, "--data.batch_size", "2")
    assert code == 2 and "2 given for 3 ranks; at least 3 is needed, a sample for each" in err


def test_help_lists_settings(tmp_path):
    code, out, _ = train(0, tmp_path, "--help")
    assert code == 0 and "--optim.lr" in out and "--resume" in out
