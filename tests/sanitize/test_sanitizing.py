"""``dt.sanitize``: as a block, as a call, with kinds chosen, and what is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.core.backward import autograd
from disttrain.errors import ConfigError
from disttrain.nn import functional as F
from disttrain.optim.optimizer import Optimizer
from disttrain.sanitize import sanitizing
from support.sanitized import Net, batch, kinds, train

ROOT = Path(__file__).parents[2]


def wrong(steps: int = 4) -> None:
    """Never clears gradients."""
    model = nn.Linear(4, 3)
    optimizer = dt.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def test_a_block_says_what_it_finds(capfd):
    with dt.sanitize() as watch:
        wrong()
        wrong()
    (found,) = watch.findings
    assert (found.kind, found.severity, found.rank) == ("gradients-never-zeroed", "error", 0)
    line = wrong.__code__.co_firstlineno + 6
    assert (found.place.file, found.place.line) == (__file__, line)
    said = capfd.readouterr().err
    assert said.count(f"{__file__}:{line}, step 3") == 1 and "optimizer.zero_grad()" in said
    assert "1 error:" in said


def test_a_call_looks_until_it_is_stopped(capfd):
    watch = dt.sanitize()
    wrong()
    assert [f.kind for f in dt.sanitize.findings()] == ["gradients-never-zeroed"]
    watch.stop()
    watch.stop()
    wrong()
    assert len(watch.findings) == 1 and dt.sanitize.findings() == []
    assert capfd.readouterr().err.count("1 error:") == 1


def test_nothing_is_said_of_a_good_program(capfd):
    with dt.sanitize():
        model = Net(norm=False)
        train(model, dt.optim.SGD(model.parameters(), lr=0.01))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("what", ["error", "gradients-never-zeroed", ["warning", "error"]])
def test_raising(what):
    with pytest.raises(dt.sanitize.SanitizeError, match="gradients-never-zeroed") as caught:
        with dt.sanitize(raise_on=what, quiet=True):
            wrong()
    assert caught.value.finding.place.file == __file__
    with dt.sanitize(quiet=True):  # everything is as before
        pass


def test_choosing_kinds():
    assert kinds(wrong, only="warning") == set()
    assert kinds(wrong, ignore="error") == set()
    assert kinds(wrong, ignore="warning") == {"gradients-never-zeroed"}
    assert kinds(wrong, only=["gradients-never-zeroed"]) == {"gradients-never-zeroed"}


def test_ignoring_for_a_block():
    def body():
        with dt.sanitize.ignore("gradients-never-zeroed"):
            wrong()
        with dt.sanitize.ignore():
            wrong()

    assert kinds(body) == set()
    with dt.sanitize.ignore("error"):  # where nothing is looked for
        wrong()


@pytest.mark.parametrize(
    "given", [{"only": "x"}, {"ignore": ["error", ""]}, {"raise_on": "errors"}, {"only": [3]}]
)
def test_wrong_arguments_are_refused(given):
    with pytest.raises(ConfigError, match="one of error, warning, advice or of"):
        dt.sanitize(**given)
    with pytest.raises(ConfigError, match="one of error"):
        dt.sanitize.ignore("x").__enter__()
    assert "sanitize" not in dt.context.current().slots


def test_a_block_in_a_program_that_is_looked_at(capfd):
    job = dt.sanitize(only="warning")
    with dt.sanitize(raise_on=()) as block:
        wrong()
    wrong()  # the job does not ask for it, and the block has ended
    with dt.sanitize(quiet=True, only="error") as other, dt.sanitize(quiet=True) as inner:
        wrong()
        assert len(dt.sanitize.findings()) == 1
    with pytest.raises(dt.sanitize.SanitizeError), dt.sanitize(raise_on="error", quiet=True):
        wrong()
    job.stop()
    assert "sanitize" not in dt.context.current().slots and job.findings == []
    told = [[f.kind for f in watch.findings] for watch in (block, other, inner)]
    assert told == [["gradients-never-zeroed"]] * 3
    assert capfd.readouterr().err.count("steps with gradients") == 1


def test_the_first_that_ends_leaves_the_others():
    job = dt.sanitize(quiet=True)
    block = dt.sanitize(quiet=True)
    job.stop()
    wrong()
    block.stop()
    assert job.findings == [] and len(block.findings) == 1


def test_everything_is_as_it_was():
    before = nn.Module.__call__, autograd._drive, Optimizer.step, dt.optim.LBFGS.step
    names = dict(vars(F))
    with dt.sanitize(quiet=True):
        assert nn.Module.__call__ is not before[0]
    assert (nn.Module.__call__, autograd._drive, Optimizer.step, dt.optim.LBFGS.step) == before
    assert dict(vars(F)) == names
    assert "sanitize" not in dt.context.current().slots


def test_the_same_bits_with_and_without():
    def run() -> list:
        dt.manual_seed(3)
        model = Net()
        train(model, dt.optim.Adam(model.parameters()))
        return [p.tolist() for p in model.parameters()]

    expected = run()
    with dt.sanitize(quiet=True):
        assert run() == expected


def in_a_thread(body) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def refused_here() -> None:
    with pytest.raises(ConfigError, match="another thread"):
        dt.sanitize()


def test_a_thread_that_trains():
    """The first one that does; others are left alone from then on."""
    with dt.sanitize(quiet=True) as watch:
        in_a_thread(lambda: wrong(6))
        found = watch.findings
        in_a_thread(lambda: wrong(6))
    assert [f.kind for f in found] == ["gradients-never-zeroed"] and watch.findings == found
    with dt.sanitize(quiet=True) as watch:
        train(model := nn.Linear(4, 3), dt.optim.SGD(model.parameters(), lr=0.01))
        in_a_thread(wrong)
        in_a_thread(refused_here)
    assert watch.findings == []


def test_a_report(tmp_path):
    report = tmp_path / "found.jsonl"
    with dt.sanitize(quiet=True, report=str(report)):
        wrong()
    (row,) = [json.loads(line) for line in report.read_text().splitlines()]
    assert row["kind"] == "gradients-never-zeroed" and row["file"] == __file__
    assert row["severity"] == "error" and "zero_grad" in row["fix"] and row["rank"] == 0


def test_an_error_of_the_program_passes():
    with pytest.raises(ZeroDivisionError):
        with dt.sanitize(quiet=True):
            model = nn.Linear(4, 3)
            model(dt.ones(1, 4))
            1 / 0
    with dt.sanitize(quiet=True) as watch:
        with pytest.raises(dt.errors.ShapeError):
            nn.Sequential(nn.Linear(4, 3))(dt.ones(1, 5))
        assert watch._session.stack == []


def test_a_check_that_fails_does_not_end_the_program(monkeypatch, capfd):
    monkeypatch.setattr(sanitizing.schedules.Rates, "before_step", lambda self, *a: 1 / 0)
    with dt.sanitize() as watch:
        wrong()
    assert [type(e) for e in watch.failed] == [ZeroDivisionError]
    assert [f.kind for f in watch.findings] == ["gradients-never-zeroed"]
    assert capfd.readouterr().err.count("Rates looks no longer") == 1


def test_it_works_from_the_settings(monkeypatch):
    started = []
    monkeypatch.setattr(sanitizing, "sanitize", lambda **how: started.append(how))
    slots = dt.context.current().slots
    sanitizing.begin()
    monkeypatch.setenv("DISTTRAIN_SANITIZE", "1")
    sanitizing.begin()
    sanitizing.begin()  # once, by a launcher or the front door
    slots.pop(sanitizing._BEGUN)
    monkeypatch.setenv("DISTTRAIN_SANITIZE", "error")
    monkeypatch.setenv("DISTTRAIN_SANITIZE_REPORT", "here")
    sanitizing.begin()
    slots.pop(sanitizing._BEGUN)
    assert started == [{"only": None, "report": ""}, {"only": "error", "report": "here"}]


@pytest.mark.parametrize("start, setting", [("dt.sanitize()", "0"), ("", "1")])
def test_a_program_that_ends_sums_up(start, setting):
    program = (
        f"import disttrain as dt\nfrom disttrain import nn\n{start}\n"
        "m = nn.Linear(2, 1)\no = dt.optim.SGD(m.parameters(), lr=0.1)\n"
        "for _ in range(4):\n    m(dt.ones(1, 2)).sum().backward()\n    o.step()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DISTTRAIN_SANITIZE": setting},
    )  # fmt: skip
    assert done.returncode == 0
    assert "1 error:" in done.stderr and "<string>:7, step 3" in done.stderr
