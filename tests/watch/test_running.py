"""The files that tell of running jobs: who finds them, whose they are, what is swept."""

from __future__ import annotations

import dataclasses
import json
import os
import time

import pytest

from disttrain.comm.job.blackbox import Box
from disttrain.errors import CommError, ConfigError
from disttrain.watch import running


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "jobs"
    monkeypatch.setattr(running, "directories", lambda: [str(path)])
    return path


def announced(name, **more):
    job = running.this_process(name, "train.py", 1, **more)
    return job, running.announce(job)


def test_a_job_is_found_while_its_agent_runs_and_its_file_is_private(folder):
    job, path = announced("exp", world_size=8, first_rank=4)
    assert running.jobs() == [job] and job.runs
    assert os.stat(path).st_mode & 0o777 == 0o600 and os.stat(folder).st_mode & 0o777 == 0o700
    running.withdraw(path)
    assert running.jobs() == [] and not folder.exists()
    running.withdraw(path)  # twice is no error


def test_names_that_no_file_may_have_are_made_fit(folder):
    job, path = announced("../a b/" + "x" * 200)
    assert os.path.dirname(path) == str(folder)
    assert os.path.basename(path) == ".._a_b_" + "x" * 73 + f".{os.getpid()}.json"
    assert running.jobs() == [job]


def test_files_of_agents_that_are_gone_are_swept_those_of_other_places_are_not(folder):
    job, path = announced("mine")
    strangers = {
        "boot": dataclasses.replace(job, boot="before"),
        "start": dataclasses.replace(job, start=job.start + 1),
        "there": dataclasses.replace(job, boot="theirs", place="elsewhere pid:[1]"),
    }
    for name, other in strangers.items():
        (folder / f"{name}.json").write_text(json.dumps(dataclasses.asdict(other)))
    assert running.jobs() == [job]
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        [os.path.basename(path), "there.json"]
    )


def test_files_that_tell_of_no_job_are_left_out(folder):
    job, path = announced("mine")
    told = dataclasses.asdict(job)
    wrong = ["", "[", "[1]", "{}", json.dumps({**told, "pid": "1"}), "[" * 100_000,
             json.dumps({**told, "box_fd": None})]  # fmt: skip
    for i, text in enumerate(wrong):
        (folder / f"{i}.json").write_text(text)
    (folder / "link.json").symlink_to(path)
    (folder / "half.json.new").write_text(json.dumps(told))
    assert running.jobs() == [job]
    (folder / "newer.json").write_text(json.dumps({**told, "from_the_future": 1}))
    assert running.jobs() == [job, job]


def test_a_directory_that_others_may_write_to_is_refused(folder):
    folder.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match=r"of this user alone \(mode 0700\)"):
        announced("exp")
    (folder / "exp.json").write_text("{}")
    assert running.jobs() == []
    folder.rename(folder.with_name("real"))
    folder.with_name("real").chmod(0o700)
    folder.symlink_to(folder.with_name("real"))
    with pytest.raises(ConfigError, match="XDG_RUNTIME_DIR"):
        announced("exp")


def test_the_oldest_comes_first_and_is_found_by_name_beginning_or_pid(folder):
    now = time.time()
    by_name = {}
    for name, since in (("exp-b", now), ("exp-a", now - 10), ("exp", now - 5)):
        job = dataclasses.replace(running.this_process(name, f"{name}.py", 1), since=since)
        running.announce(job)
        by_name[name] = job
    assert [j.job for j in running.jobs()] == ["exp-a", "exp", "exp-b"]
    assert running.find("exp") == by_name["exp"]  # all of the name goes before its beginning
    assert running.find("exp-b") == by_name["exp-b"]
    with pytest.raises(ConfigError, match=r"'exp-' may be any of 2: .*Name it by its pid"):
        running.find("exp-")
    with pytest.raises(ConfigError, match=r"several jobs run: exp-a \(pid \d+, exp-a.py\); .*Name"):
        running.find(None)
    with pytest.raises(ConfigError, match=r"no job 'other' of yours runs here; there is exp-a"):
        running.find("other")


def test_without_jobs_that_is_said(folder):
    with pytest.raises(ConfigError, match=r"^no job of yours runs here$"):
        running.find(None)
    with pytest.raises(ConfigError, match=r"^no job 'exp' of yours runs here$"):
        running.find("exp")
    job, _ = announced("exp")
    assert running.find(None) == running.find(str(os.getpid())) == running.find("e") == job


def test_the_box_is_opened_through_the_agent_and_cannot_be_written_to(folder):
    box = Box.create(1, {"host": "here"})
    try:
        job = running.this_process("exp", "train.py", box.fd)
        there = job.open_box()
        assert there.about == {"host": "here"}
        with pytest.raises(TypeError):
            there.buffer[0] = 1
        there.close()
    finally:
        box.close()
    with pytest.raises(CommError, match="job exp: its black box cannot be read"):
        dataclasses.replace(job, box_fd=10**6).open_box()


def test_where_files_are_looked_for(monkeypatch, tmp_path):
    uid = os.getuid()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/mine")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert running.directories() == [
        "/run/mine/disttrain", f"{tmp_path}/disttrain-{uid}", f"/run/user/{uid}/disttrain",
        f"/tmp/disttrain-{uid}",
    ]  # fmt: skip
    monkeypatch.setenv("XDG_RUNTIME_DIR", "not/absolute")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.delenv("TEMP", raising=False)
    monkeypatch.delenv("TMP", raising=False)
    assert running.directories() == [f"/tmp/disttrain-{uid}", f"/run/user/{uid}/disttrain"]


def test_of_the_nodes_of_one_job_any_may_be_meant(monkeypatch):
    def node(pid: int, name: str, node: int, nodes: int = 2) -> running.Job:
        return running.Job(name, "t.py", pid, 1, "b", 1, float(pid), node=node, num_nodes=nodes)

    all_ = [node(5, "x", 1), node(6, "x", 0), node(7, "y", 0, 1), node(8, "none", 0)]
    monkeypatch.setattr(running, "jobs", lambda: all_)
    assert running.find("x", any_node=True).pid == 6
    assert running.find("5", any_node=True).pid == 5 and running.find("y", any_node=True).pid == 7
    with pytest.raises(ConfigError, match="any of 2"):
        running.find("x")
    with pytest.raises(ConfigError, match="several jobs run"):
        running.find(None, any_node=True)
