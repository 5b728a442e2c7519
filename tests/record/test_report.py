"""What is found, as text whose first line is the answer, and as JSON."""

from __future__ import annotations

import json

from disttrain.record import rows
from disttrain.record.diff import diff
from disttrain.record.report import as_json, lines
from support.recordings import row, run, stream


def test_the_first_line_is_the_answer():
    a = run([row(inputs=(1,), site="/a/b.py:3 in f")])
    b = run([row(hash=2, inputs=(1,), squares=16.0, site="/a/b.py:3 in f")])
    said = lines(diff(a, b))
    assert said[0] == "step 0, rank 0, module Net: add differs (forward, at /a/b.py:3 in f)"
    assert "inputs: 1 of 1 are equal: it is this operation that differs" in said[3]
    assert "one is 2 times the other" in said[4]
    assert said[-1].startswith("1 of 1 rows differ")


def test_no_difference_and_nothing_to_compare():
    assert lines(diff(run(stream("add")), run(stream("add"))))[0].startswith("no difference: 1 row")
    other = run(stream("add", step=9))
    assert lines(diff(run(stream("add")), other))[0].startswith("nothing to compare")


def test_at_most_ten_follow():
    names = [f"op{i}" for i in range(20)]
    found = diff(run(stream("add", *names)), run([row(hash=2), *stream("x", *names)[1:]]))
    assert len(found.following) == 10


def test_settings_show_what_differs_alone():
    a, b = (run([row(kind=rows.SETTINGS, name="SGD group 0", module="", shape="", hash=i,
                     about=f"eps=1, lr={i}")]) for i in (1, 2))  # fmt: skip
    said = lines(diff(a, b))
    assert "the settings of SGD group 0 differ" in said[0]
    assert said[1].endswith("lr=1") and said[2].endswith("lr=2")


def test_json_says_the_same():
    found = diff(run(stream("add", "mul")), run([row(hash=3), *stream("add", "mul")[1:]]))
    told = json.loads(json.dumps(as_json(found)))
    assert told["answer"] == lines(found)[0]
    assert told["first"]["a"]["name"] == "add"
    assert [r["name"] for r in told["following"]] == ["mul"]
