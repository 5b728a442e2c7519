"""``disttrain pipeline``: proofs and counterexamples of schedules."""

from __future__ import annotations

import json

import pytest

from disttrain.cli import main
from disttrain.distributed.pipelining.plans import SCHEDULES, known


def test_all_schedules(capsys):
    assert main(["pipeline", "all", "--ranks", "1:3", "--micro", "1:6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("proof: ") for line in lines)
    assert {line.split(", ")[0].removeprefix("proof: ") for line in lines} == {*SCHEDULES}


def test_one_schedule_as_json_and_drawn(capsys):
    assert main(["pipeline", "interleaved1f1b", "--ranks", "2", "--stages", "6", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["stages"] == 6 and found["holds"] and found["kind"] == "proof"
    assert main(["pipeline", "gpipe", "--ranks", "2", "--micro", "2", "--draw"]) == 0
    assert "rank 1 | .  F0 F1 B0 -  B1" in capsys.readouterr().out


def test_a_file_and_what_is_wrong_with_it(capsys, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(known("ZBVZeroBubble", 2, 4, 3).to_csv())
    assert main(["pipeline", str(file)]) == 0
    file.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n")
    assert main(["pipeline", str(file)]) == 1
    out = capsys.readouterr().out
    assert "counterexample: mine.csv" in out and "2 ranks wait for each other" in out
    assert main(["pipeline", "1F1B", "--ranks", "3", "--memory", "2"]) == 1
    assert "3 forwards; 2 are allowed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, said",
    [
        (["2f2b"], "is no schedule and no file"),
        (["gpipe", "--ranks", "0"], "--ranks 0"),
        (["gpipe", "--micro", "a:b"], "--micro a"),
        (["gpipe", "--ranks", "2", "--stages", "3"], "3 stages on 2 ranks"),
        (["interleaved1f1b", "--ranks", "2", "--stages", "3"], "same number of stages"),
        (["dualpipev", "--ranks", "2", "--micro", "1:3"], "no schedule can have these"),
    ],
)
def test_wrong_arguments(capsys, words, said):
    assert main(["pipeline", *words]) == 2
    assert said in capsys.readouterr().err
