"""How much a training job still gets done while its ranks are killed again and again.

    PYTHONPATH=.:scripts:tests python -m injections.goodput --seconds 180 --every 5

Trains ``scripts/train.py`` for so long without faults, then as long with a rank killed (SIGKILL)
every so many seconds on average, and compares the steps, and the samples in them. Each time that
the job has gone on, it must not have gone back behind what was committed: the steps that its
records tell of.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from disttrain.watch.running import jobs
from disttrain_launcher.worker.processes import descendants

ROOT = Path(__file__).parents[2]


@dataclass
class Trial:
    """What one run gave. ``lost``: times that it went back behind a step that was committed."""

    steps: int
    samples: int
    kills: int
    resumed: int
    lost: int
    code: int


def run(folder: Path, ranks: int, seconds: float, every: float | None, seed: int) -> Trial:
    """Train for ``seconds``, counted from the first record on."""
    command = [sys.executable, "-m", "disttrain_launcher", "--nproc-per-node", str(ranks)]
    command += ["--replace-ranks", "--max-restarts", "100000", "--on-term", "checkpoint"]
    command += [str(ROOT / "scripts/train.py"), "--config", str(ROOT / "configs/digits_ddp.toml")]
    command += ["--train.epochs", "1000000", f"--log.dir={folder}", "--log.every", "5"]
    command += ["--log.tensorboard", "false"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "scripts"), str(ROOT / "tests")])
    output = (folder / "output.txt").open("w")
    job = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    draw, kills, lost = random.Random(seed), 0, 0
    try:
        while not records(folder):
            if job.poll() is not None:
                raise SystemExit(f"the job has ended:\n{(folder / 'output.txt').read_text()}")
            time.sleep(0.05)
        first = records(folder)[-1]["step"]
        end = time.monotonic() + seconds
        while job.poll() is None and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, draw.expovariate(1 / every) if every else left))
            victims = ranks_of(job.pid)
            if every and victims and time.monotonic() < end:
                before = records(folder)
                os.kill(draw.choice(victims), signal.SIGKILL)
                kills += 1
                lost += _goes_back(folder, before)
        last = max(r["step"] for r in records(folder))
    finally:
        job.send_signal(signal.SIGTERM)
        code = job.wait()
        output.close()
    told = [r for r in records(folder) if r["kind"] in ("train", "resume")]
    resumed = sum(r["kind"] == "resume" for r in told)
    return Trial(last - first, samples(told), kills, resumed, lost, code)


def _goes_back(folder: Path, before: list[dict], patience: float = 5.0) -> bool:
    """Does the run go on behind what ``before`` tells of, of which the last step may not have been
    committed? What it does again it records again, and what was there of that goes."""
    deadline, resumed = time.monotonic() + patience, [r for r in before if r["kind"] == "resume"]
    while time.monotonic() < deadline:
        later = [r["step"] for r in records(folder) if r["kind"] == "resume" and r not in resumed]
        if later:
            return min(later) < max(r["step"] for r in before) - 1
        time.sleep(0.02)
    return False


def samples(told: list[dict]) -> int:
    """How many were taken in all steps that ``told`` has records of, each counted once."""
    epochs: dict[int, int] = {}
    for record in told:
        if record["kind"] == "train":
            epochs[record["epoch"]] = record["samples"]
    return sum(epochs.values())


def records(folder: Path) -> list[dict]:
    """All that the run has recorded."""
    found = []
    for path in sorted(folder.glob("*/metrics.jsonl")):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # its writer was killed in the middle of it
                continue
    return [r for r in found if "step" in r]


def ranks_of(launcher: int) -> list[int]:
    """The processes of the ranks: the children of the launcher's agent."""
    below = set(descendants(launcher))
    return [pid for job in jobs() if job.pid in below for pid in _children(job.pid)]


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(prog="injections.goodput", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two kills")
    parser.add_argument("--least", type=float, default=0.85, help="of the fault-free steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    trials = []
    for every in (None, options.every):
        with tempfile.TemporaryDirectory() as folder:
            trial = run(Path(folder), options.ranks, options.seconds, every, options.seed)
            if every:
                told = (Path(folder) / "output.txt").read_text().splitlines()
                print(*[line for line in told if "Error" in line][:20], sep="\n")
        trials.append(trial)
        print(f"{'with' if every else 'without'} kills: {trial}", flush=True)
    goodput = trials[1].steps / trials[0].steps
    taken = trials[1].samples / trials[0].samples
    said = f"{goodput:.1%} of the steps and {taken:.1%} of the samples without faults"
    print(f"goodput: {said}, in {options.seconds:g} s")
    ended = all(t.code == 128 + signal.SIGTERM for t in trials)
    return 0 if goodput >= options.least and trials[1].lost == 0 and ended else 1


if __name__ == "__main__":
    sys.exit(main())
