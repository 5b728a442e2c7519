"""``scripts/gpu``: what may start when, processes that break, the report, missing packages."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from gpuproof import __main__ as command
from gpuproof import packages
from gpuproof.journal import Job, Journal, number_text, read
from gpuproof.parts import BUDGET, PARTS, Part, chosen
from gpuproof.report import _failures, markdown
from gpuproof.runner import as_data, run
from gpuproof.schedule import RESTARTS, Schedule
from gpuproof.timing import gpt_flops, in_turns, peak_of
from standins import nvml as nvml_standin

ROOT = Path(__file__).parents[2]


# --- what may start when -------------------------------------------------------------------------


def test_what_measures_runs_alone():
    a, b, fast, after = Part("a", "", 10), Part("b", "", 10, shards=2), Part("c", "", 10, True), \
        Part("d", "", 10)  # fmt: skip
    plan = Schedule((a, b, fast, after), width=2, budget=100)
    one, two = plan.next(0), plan.next(0)
    assert (one.part, two.part, two.shard) == (a, b, 0)
    assert plan.next(0) is None  # both places are taken
    assert not plan.ended(one, 1, ["x"], whole=True)
    three = plan.next(1)
    assert (three.part, three.shard) == (b, 1)
    plan.ended(two, 1, ["x"], whole=True)
    assert plan.next(1) is None  # the next one wants to be alone
    plan.ended(three, 1, ["x"], whole=True)
    alone = plan.next(2)
    assert alone.part is fast and plan.next(2) is None
    plan.ended(alone, 1, ["x"], whole=True)
    assert plan.next(3).part is after and not plan.over


def test_limits_shrink_with_the_budget_and_what_has_no_time_is_left_out():
    plan = Schedule((Part("a", "", 50), Part("b", "", 50), Part("c", "", 50)), 1, budget=60)
    first = plan.next(0)
    plan.ended(first, 50, ["x"], whole=True)
    second = plan.next(50)
    assert (first.seconds, second.seconds) == (50, 10)
    plan.ended(second, 9, ["x"], whole=True)
    assert plan.next(59) is None and plan.over
    assert [s.part.name for s in plan.left_out] == ["c"]


def test_a_broken_process_goes_on_after_the_case_that_broke_it_while_that_helps():
    plan = Schedule((Part("a", "", 50),), 1, budget=100)
    start = plan.next(0)
    assert not plan.ended(start, 1, [], whole=False)  # it came to no case: nothing would change
    plan = Schedule((Part("a", "", 50),), 1, budget=100)
    start = plan.next(0)
    assert plan.ended(start, 20, ["x", "y"], whole=False)
    again = plan.next(20)
    assert (again.after, again.seconds) == (("x", "y"), 30)
    assert not plan.ended(again, 1, ["x", "y"], whole=False)
    plan, begun = Schedule((Part("a", "", 50),), 1, budget=100), []
    for _ in range(RESTARTS + 1):
        start = plan.next(0)
        begun.append(str(len(begun)))
        more = plan.ended(start, 0.1, list(begun), whole=False)
    assert not more and plan.over


def test_the_parts_fit_into_ten_minutes():
    assert BUDGET < 600 and len({p.name for p in PARTS}) == len(PARTS)
    beside = [p.seconds for p in PARTS if not p.alone]
    assert max(beside) + sum(p.seconds for p in PARTS if p.alone) < BUDGET
    for part in PARTS:
        assert (ROOT / "tests/gpuproof/proofs" / f"{part.name}.py").exists()
    assert [p.name for p in chosen("ranks,face")] == ["environment", "face", "ranks"]
    with pytest.raises(ValueError, match=r"'faces'.*environment, primitives"):
        chosen("faces")


# --- processes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Parts of every kind, run at once."""
    folder, said = tmp_path_factory.mktemp("proof"), []
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / n) for n in ("", "scripts", "tests"))
    parts = [Part(n, n.upper(), 20, False, 2 if n == "many" else 1, 1 if n == "hang" else 9)
             for n in ("good", "mixed", "crash", "hang", "stuck", "early", "many")]  # fmt: skip
    try:
        found = run(parts, "double", folder, 60, 4, said.append, module="support.proof_parts")
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return {o.part.name: o for o in found}, said


def names(outcome, ok=True):
    return sorted(c["name"] for c in outcome.told.checks if c["ok"] is ok)


def test_what_holds_fails_and_cannot_run(outcomes):
    found, said = outcomes
    assert (found["good"].state, names(found["good"])) == ("held", ["fine"])
    mixed = found["mixed"]
    assert (mixed.state, names(mixed), names(mixed, False)) == (
        "FAILED",
        ["fine", "number"],
        ["fail"],
    )
    assert mixed.told.failures[0]["detail"] == "ValueError: two"
    assert mixed.told.skips == [{"name": "skip", "why": "no such thing here"}]
    assert mixed.told.numbers[0]["beside"] == {"PyTorch": 4.0}
    assert any(line.startswith("mixed: 2 held, 1 failed, 1 not run") for line in said)


def test_a_crash_hides_nothing_but_itself(outcomes):
    crash = outcomes[0]["crash"]
    assert names(crash) == ["fine", "fine2"]
    assert names(crash, False) == ["abort", "fail"]
    assert crash.broken == ["was killed by SIGABRT in abort"]


def test_a_hang_is_ended_with_all_that_it_started_and_the_rest_goes_on(outcomes):
    hang = outcomes[0]["hang"]
    assert names(hang) == ["fine", "fine2"] and names(hang, False) == ["hang"]
    assert hang.broken == ["was ended after 1 s of silence in hang"] and hang.seconds < 10


def test_a_device_that_answers_nothing_gets_a_fresh_process(outcomes):
    stuck = outcomes[0]["stuck"]
    assert names(stuck, False) == ["stuck"] and names(stuck) == ["fine"]
    assert stuck.broken == [] and "illegal address" in stuck.told.notes[0]


def test_a_part_that_cannot_start_is_told_with_its_words(outcomes):
    early = outcomes[0]["early"]
    assert early.state == "FAILED" and "no module of that name" in early.tails[0]


def test_shards_share_the_cases(outcomes):
    assert names(outcomes[0]["many"]) == [f"case{k}" for k in range(5)]


def test_a_line_that_was_cut_short_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    job = Job(Journal(path))
    job.case("one", lambda: None)
    with path.open("a") as file:
        file.write('{"kind": "check", "na')
    assert [c["name"] for c in read(path).checks] == ["one"]
    assert read(tmp_path / "none").checks == []


# --- the report ----------------------------------------------------------------------------------


def report_of(outcomes, platform="cuda"):
    return markdown({
        "device": "NVIDIA H200", "platform": platform, "command": "scripts/gpu", "python": "3.12",
        "revision": "abc", "seconds": 61.2, "parts": as_data(list(outcomes.values())),
    })  # fmt: skip


def test_the_report_tells_all(outcomes):
    text = report_of(outcomes[0])
    assert text.startswith("# NVIDIA H200\n\n`scripts/gpu` at abc, Python 3.12, 61 s\n")
    for line in (
        "| GOOD | held | 1 | 0 | 0 | ",
        "| CRASH | **FAILED** | 2 | 2 | 0 | ",
        "| speed | 5.00 TFLOP/s | 4.00 | 1.25x |  |",
        "* `skip`: no such thing here",
        "* `abort`: the process was killed by SIGABRT",
        "* **A process was ended after 1 s of silence in hang.**",
        "| fine | well |",
        "no module of that name",
    ):
        assert line in text, line
    assert "rehearsal" not in text
    assert "says nothing of any GPU" in report_of(outcomes[0], "double")
    json.dumps(as_data(list(outcomes[0].values())))


def test_failures_of_one_cause_are_one_line_with_its_trace():
    frames = 'File "/x/disttrain/ops/device/sort.py", line 26, in argsort\n  File "cupy/core.pyx"'
    bad = [{"name": f"argsort {k}", "ok": False, "detail": "TypeError: kind", "trace": frames}
           for k in range(60)]  # fmt: skip
    other = {"name": "add", "ok": False, "detail": "ValueError: two"}
    lines = _failures([*bad, other])
    assert lines[0].endswith(
        "`argsort 5` and 54 more: TypeError: kind (disttrain/ops/device/sort.py:26)"
    )
    assert lines[1] == "* `add`: ValueError: two"
    assert lines[2:] == ["", "`argsort 0`:", "", "```", frames, "```"]


def test_files_are_whole_and_named_by_the_device(tmp_path):
    found = {"device": "NVIDIA H200 NVL", "platform": "cuda", "command": "c", "python": "3",
             "revision": "r", "seconds": 1.0, "parts": []}  # fmt: skip
    path = command.write(found, tmp_path / "new")
    assert path.name == "nvidia-h200-nvl.md"
    assert json.loads(path.with_suffix(".json").read_text()) == found
    assert len(list(path.parent.iterdir())) == 2


def test_numbers_keep_three_digits():
    given = (1234.5, 12.34, 1.234, 0.001234, 0.0, float("inf"))
    assert [number_text(v) for v in given] == ["1,234", "12.3", "1.23", "0.00123", "0.0", "inf"]


def test_ways_are_timed_in_turns():
    clock, calls = [0.0], []

    def way(name, seconds):
        def run():
            calls.append(name)
            clock[0] += seconds

        return run

    found = in_turns({"a": way("a", 1.0), "b": way("b", 3.0)}, lambda: None, 3, 2, lambda: clock[0])
    assert found == {"a": 1.0, "b": 3.0}
    assert calls[4:] == ["a", "a", "b", "b"] * 3


def test_what_a_device_could_do():
    assert peak_of("NVIDIA H200") == 989 and peak_of("NVIDIA H100 PCIe") == 756
    assert peak_of("NVIDIA GeForce RTX 4090") == 165 and peak_of("Voodoo") is None
    assert gpt_flops(124_439_808, 12, 768, 1024) == pytest.approx(0.86e9, rel=0.01)


# --- packages and the command --------------------------------------------------------------------


def make_wheel(folder, name):
    tag = "py3-none-any"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as file:
        file.writestr(f"{name}/__init__.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{info}/RECORD", "")


def test_missing_packages_come_from_wheels_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "NEEDED", {"json": "x", "dt_one": "dt-one{}", "a.b": "dt-two"})
    monkeypatch.setattr(packages, "LIBRARIES", ("dt-three-cu{}",))
    assert packages.missing(12) == ["dt-one12", "dt-two", "dt-three-cu12"]
    make_wheel(tmp_path, "dt_one12")
    problems = packages.install(["dt-one12", "dt-two"], tmp_path, tmp_path / "put")
    assert problems == {"dt-two": f"no wheel of it in {tmp_path}"}
    assert (tmp_path / "put/dt_one12/__init__.py").exists()


def test_without_a_gpu_it_says_so_and_ends_with_two(monkeypatch, capsys, tmp_path):
    for name, value in nvml_standin.environment("driverless").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["scripts/gpu"])
    assert command.main(["--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "there is no GPU here (nvmlInit_v2: Driver Not Loaded). Nothing was tried." in said
    assert "doctor" in said and list(tmp_path.iterdir()) == []
    assert command.main(["--only", "nothing"]) == 2
    assert "parts are environment" in capsys.readouterr().err
