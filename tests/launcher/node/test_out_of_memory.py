"""Whom the kernel has killed for want of memory: what the files of control groups say."""

from __future__ import annotations

import os

import pytest

from disttrain_launcher.node import out_of_memory
from disttrain_launcher.node.out_of_memory import Kills, group_of, kills_in, limit_of

V1 = {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"}
V2 = {"memory.events": "low 0\nhigh 0\nmax 9\noom 3\noom_kill {}\noom_group_kill 0\n"}


@pytest.fixture(params=[V1, V2], ids=["version 1", "version 2"])
def group(request, tmp_path):
    """Lets the kernel have killed so many."""

    def has_killed(count):
        for name, text in request.param.items():
            (tmp_path / name).write_text(text.format(count))
        return str(tmp_path)

    return has_killed


def test_only_a_kill_of_the_kernel_is_told_and_each_once(group, monkeypatch, tmp_path):
    me = os.getpid()
    monkeypatch.setattr(out_of_memory, "group_of", lambda pid: group(2))
    kills = Kills()
    kills.look([me])
    assert kills.why(me) == "", "somebody else has sent the signal"
    kills.look([me])
    (tmp_path / "memory.max").write_text(f"{64 << 20}\n")
    group(3)
    told = kills.why(me)
    assert f"out of memory: the kernel has chosen process {me} (memory cgroup {tmp_path}" in told
    assert "limit 64 MiB; " in told and "MiB were resident when it was last seen" in told
    kills.look([me])
    assert kills.why(me) == "", "that one was told"
    assert kills.why(1 << 30) == "", "never seen"


def test_counts_and_limits_are_read_as_both_versions_write_them(group, tmp_path):
    assert kills_in(group(7)) == 7
    assert limit_of(str(tmp_path)) is None
    (tmp_path / "memory.max").write_text("max\n")
    assert limit_of(str(tmp_path)) is None
    (tmp_path / "memory.max").write_text("4096\n")
    assert limit_of(str(tmp_path)) == 4096
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert limit_of(str(tmp_path)) is None and limit_of("") is None


def test_a_process_that_is_gone_has_no_group():
    assert group_of(1 << 30) == ""
    assert kills_in("") >= 0  # of the whole machine
