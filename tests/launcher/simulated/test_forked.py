"""Runs in processes of their own: results, outputs, and ends without one."""

from __future__ import annotations

import os
import signal
import time

import pytest

from disttrain_launcher.simulated import forked
from disttrain_launcher.simulated.forked import Lost, in_child


def test_what_is_returned_and_nothing_else():
    kept = []

    def work():
        kept.append(1)
        return {"pid": os.getpid()}

    assert in_child(work)["pid"] != os.getpid() and kept == []


@pytest.mark.parametrize("shown", [True, False])
def test_outputs_are_shown_where_wanted(capfd, shown):
    def work():
        os.write(1, b"said")
        os.write(2, b"aside")

    in_child(work, shown)
    out, err = capfd.readouterr()
    assert ("said" in out, "aside" in err) == (shown, shown)


def test_a_process_that_ends_or_hangs_is_told(monkeypatch, capfd):
    with pytest.raises(Lost, match="ended with status") as lost:
        in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert lost.value.kind == "Died"
    with pytest.raises(Lost, match="ended with status"):
        in_child(lambda: 1 / 0)
    monkeypatch.setattr(forked, "PATIENCE", 0.2)
    with pytest.raises(Lost, match=r"within 0\.2 s") as lost:
        in_child(lambda: time.sleep(60))
    assert lost.value.kind == "Hung"
