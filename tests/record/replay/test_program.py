"""Recorded ranks run again alone, and give the same bits: drawn programs under the real launcher,
and what goes wrong."""

from __future__ import annotations

import os

import pytest

from support.replayed import PARTS, RPC, drawn, record, replay, said_by, start_replay

pytestmark = pytest.mark.timeout(150)
NAMES = [*PARTS]
SEED = int(os.environ.get("REPLAY_SEED", "0"))


def replay_all(folder, out: str, ranks: int) -> None:
    """Every rank's replay is equal, and prints what the rank printed."""
    started = [start_replay(folder, "run", "--rank", str(r)) for r in range(ranks)]
    for rank, process in enumerate(started):
        said, errors = process.communicate("", timeout=100)
        assert process.returncode == 0, errors
        assert "bitwise equal" in errors
        assert said == said_by(rank, out)


@pytest.mark.parametrize("number", range((len(NAMES) + 1) // 2))
def test_drawn_programs_are_replayed(tmp_path, number):
    ranks = 2 if number else 3
    first = NAMES[2 * number : 2 * number + 2]
    level = ("ops", "modules", "collectives")[number % 3]
    out = record(tmp_path, drawn(number + SEED, first), "--record-level", level, ranks=ranks)
    replay_all(tmp_path, out, ranks)


def test_remote_calls_are_replayed(tmp_path):
    out = record(tmp_path, RPC, ranks=2)
    replay_all(tmp_path, out, 2)


def test_simulated_ranks_and_programs_of_pytorchs_names_are_replayed(tmp_path):
    text = PLAIN.replace("import disttrain as dt", "import torch as dt")
    text = text.replace("import disttrain.distributed", "import torch.distributed")
    text = text.replace("from disttrain import nn", "from torch import nn")
    out = record(tmp_path, text, how=("--simulate", "2", "--as-torch"))
    replay_all(tmp_path, out, 2)


FAILS = """
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
t = dt.ones(3)
for i in range(3):
    dist.all_reduce(t)
    if i == 1 and dist.get_rank() == 1:
        raise ValueError("here it fails")
"""


def test_how_a_rank_failed_is_replayed(tmp_path):
    record(tmp_path, FAILS, fails=True)
    code, _, errors = replay(tmp_path, "run", "--rank", "1")
    assert code == 0 and "ValueError: here it fails" in errors
    code, _, errors = replay(tmp_path, "run", "--rank", "0")
    assert code == 0 and "PeerFailed" in errors


PLAIN = """
import disttrain as dt, disttrain.distributed as dist
from disttrain import nn
dist.init_process_group()
dt.manual_seed(dist.get_rank())
net = nn.Linear(3, 2)
opt = dt.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    opt.zero_grad()
    net(dt.randn(4, 3)).square().sum().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    opt.step()
names = [None] * 2
dist.all_gather_object(names, f"rank {dist.get_rank()}")
print(names)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A recording of rank 1 alone."""
    folder = tmp_path_factory.mktemp("plain")
    record(folder, PLAIN, "--record-ranks", "1")
    return folder


def changed(folder, old: str, new: str, *words: str) -> str:
    assert old in PLAIN
    (folder / "other.py").write_text(PLAIN.replace(old, new))
    code, _, errors = replay(folder, "run", "--program", "other.py", *words)
    assert code == 1
    [found] = [x for x in errors.splitlines() if "the first difference" in x]
    return found


def test_one_rank_alone_is_recorded(plain):
    assert {p.name for p in (plain / "run").iterdir()} == {
        "record.json", "rank_1.bin", "rank_1.names", "rank_1.data"
    }  # fmt: skip
    assert replay(plain, "run")[0] == 0
    code, _, errors = replay(plain, "run", "--rank", "0")
    assert code == 2 and "these ranks received: 1" in errors


def test_another_value_is_found_at_its_operation(plain):
    found = changed(plain, "square().sum()", "square().mul(2.0).sum()")
    assert "step 0" in found and "mul" in found and "other.py:10" in found


def test_another_setting_is_said_with_both(plain):
    found = changed(plain, "lr=0.1", "lr=0.2")
    assert "lr=0.2" in found and "recorded is" in found and "lr=0.1" in found


def test_another_collective_is_said_with_both_lines(plain):
    found = changed(plain, "dist.all_reduce(p.grad)", "\n        dist.broadcast(p.grad, 0)")
    assert "broadcast(float32[2, 3], root=0) at" in found and "other.py:13" in found
    assert "recorded is all_reduce(float32[2, 3], op=SUM) at" in found and "train.py:12" in found


def test_a_call_more_and_a_call_less_are_found(plain):
    found = changed(plain, "print(names)", "dist.barrier()")
    assert "the program calls barrier() at" in found and "no more such call" in found
    found = changed(plain, "dist.all_gather_object", "if 0: dist.all_gather_object")
    assert "the recording goes on with" in found


@pytest.mark.parametrize("place, line, shown", [
    ("step:2", "step 2 begins", "train.py(13)"), ("op:square#2", "before square", "train.py(10)"),
    ("call:3", "before call 3", "train.py(12)"), ("step:0", "the program begins", "train.py(1)"),
])  # fmt: skip
def test_the_debugger_is_opened_there(plain, place, line, shown):
    code, out, errors = replay(plain, "run", "--until", place, typed="p 6 * 7\nc\n")
    assert code == 0 and line in errors
    assert shown.partition("(")[0] in out and "42" in out and "['rank 0', 'rank 1']" in out


def test_a_place_that_is_not_reached_is_said(plain):
    assert "did not come there" in replay(plain, "run", "--until", "step:9", typed="c\n")[2]
    code, _, errors = replay(plain, "run", "--until", "line:4")
    assert code == 2 and "op:NAME#2" in errors


def test_a_folder_that_was_changed_is_refused(plain, tmp_path):
    for name in ("run", "train.py", "key"):
        if name != "run":
            os.symlink(plain / name, tmp_path / name)
    (tmp_path / "run").mkdir()
    for path in (plain / "run").iterdir():
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    log = tmp_path / "run" / "rank_1.data"
    data = log.read_bytes()
    log.write_bytes(data.replace(b"rank 0", b"rank 7"))  # in the pickle that rank 0 had sent
    code, out, errors = replay(tmp_path, "run")
    assert code != 0 and "is not what was recorded" in errors and "rank 7" not in out
    log.write_bytes(data.replace(b"train.py", b"other.py"))  # the program to be run
    code, _, errors = replay(tmp_path, "run")
    assert code == 2 and "--trust" in errors


def test_another_users_recording_needs_trust(plain, tmp_path):
    code, _, errors = replay(plain, "run", XDG_CONFIG_HOME=str(tmp_path))
    assert code == 2 and "--trust" in errors
    assert replay(plain, "run", "--trust", XDG_CONFIG_HOME=str(tmp_path))[0] == 0


def test_a_bundle_is_replayed_elsewhere(plain, tmp_path):
    code, out, _ = replay(plain, "run", "--bundle", str(tmp_path / "one.bundle"))
    assert code == 0 and "MB" in out
    (tmp_path / "train.py").write_text(PLAIN + "\n# a line more\n")
    code, out, errors = replay(tmp_path, "--bundle", "one.bundle")
    assert code == 2  # this folder's user has another key
    words = ("--bundle", "one.bundle", "--trust", "--program", "train.py")
    code, out, errors = replay(tmp_path, *words, "--cwd", ".")
    assert code == 0 and "['rank 0', 'rank 1']" in out and "bitwise equal" in errors
    assert "train.py has changed" in errors
    code, _, errors = replay(tmp_path, *words, "--strict")
    assert code == 2 and "--strict" in errors
