"""``@pytest.mark.ranks``: what runs where, and how pytest shows what came of it."""

from __future__ import annotations

import importlib

import pytest

pytest_plugins = ["pytester"]
# Pytest runs inside this process, which has the threads of tests that ran before.
OPTIONS = ("-p", "no:cacheprovider", "--strict-markers", "-Wdefault",
           "-Wignore:Module already imported", "-Wignore:This process")  # fmt: skip

REAL = """
import os, signal, sys, time, unittest, warnings
import pytest
import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import PeerFailed

RANK = lambda: int(os.environ["RANK"])

@pytest.fixture
def base(tmp_path):
    print("made by", os.getpid())
    yield os.getpid()
    (tmp_path / "ended").write_text("once")
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "ended"]

@pytest.mark.ranks(2, backend="gloo")
@pytest.mark.parametrize("value", [3, 4])
def test_passes(base, tmp_path, value, monkeypatch, caplog):
    assert os.getpid() != base and os.environ["WORLD_SIZE"] == "2"
    x = dt.full((2,), float(value))
    dist.all_reduce(x)
    assert x.tolist() == [2.0 * value] * 2
    monkeypatch.setenv("ONLY_HERE", str(RANK()))
    (tmp_path / str(RANK())).touch()

def test_nothing_is_left_of_it():
    assert "ONLY_HERE" not in os.environ and "RANK" not in os.environ
    assert not dist.is_initialized()

@pytest.mark.ranks(3, backend="gloo")
def test_one_fails(capsys):
    rank = dist.get_rank()
    print("first", rank)
    assert capsys.readouterr().out == f"first {rank}\\n"
    print("then", rank)
    os.write(2, b"raw %d\\n" % rank)
    warnings.warn("be careful")
    seen = {"rank": rank}
    if rank == 1:
        assert seen == {"rank": 2}
    dist.barrier()

@pytest.mark.ranks(2)
def test_all_fail():
    mine = "the same"
    assert 1 == 2, "on both"

@pytest.mark.ranks(2)
def test_each_fails():
    assert RANK() == 5

class TestMore:
    @pytest.mark.ranks(2)
    def test_skips(self):
        pytest.skip("not here")

    @pytest.mark.ranks(2)
    def test_skips_on_one(self):
        if RANK() == 1:
            pytest.skip("not there")

    @pytest.mark.xfail(strict=True, raises=ValueError)
    @pytest.mark.ranks(2, backend="gloo")
    def test_fails_as_expected(self):
        if dist.get_rank() == 1:
            raise ValueError("expected")
        dist.barrier()

    @pytest.mark.xfail(strict=True)
    @pytest.mark.ranks(2)
    def test_passes_unexpectedly(self):
        pass

    @pytest.mark.ranks(2)
    def test_dies(self):
        if RANK() == 1:
            os.kill(os.getpid(), signal.SIGSEGV)

    @pytest.mark.ranks(2)
    def test_vanishes(self):
        if RANK() == 1:
            os._exit(0)

class TestUnit(unittest.TestCase):
    def setUp(self):
        self.number = RANK()

    @pytest.mark.ranks(2)
    def test_unit(self):
        self.assertEqual(self.number, 0)

@pytest.mark.ranks(2, tmeout=3)
def test_of_a_wrong_mark():
    pass
"""


@pytest.fixture(scope="module")
def loaded():
    """What were loaded inside would be forgotten there, and loaded again."""
    importlib.import_module("disttrain_launcher.testing.run").real.warm_up()


@pytest.fixture
def run(loaded, pytester, monkeypatch):
    """Run a file of tests inside; the result, with the outcome of each test by its name."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(text, *options):
        pytester.makepyfile(test_it=text)
        return pytester.runpytest_inprocess(*OPTIONS, *options)

    return run


def outcomes(result):
    return {line.split()[1].rpartition("::")[2]: line.split()[0] for line in result.outlines
            if line.startswith(("PASSED", "FAILED", "SKIPPED", "XFAIL", "ERROR"))}  # fmt: skip


def test_real_ranks(run):
    result = run(REAL, "-rA", "-l")
    assert outcomes(result) == {
        "test_passes[3]": "PASSED",
        "test_passes[4]": "PASSED",
        "test_nothing_is_left_of_it": "PASSED",
        "test_one_fails": "FAILED",
        "test_all_fail": "FAILED",
        "test_each_fails": "FAILED",
        "[1]": "SKIPPED",
        "test_fails_as_expected": "XFAIL",
        "test_passes_unexpectedly": "FAILED",
        "test_dies": "FAILED",
        "test_vanishes": "FAILED",
        "test_unit": "FAILED",
        "test_of_a_wrong_mark": "ERROR",
    }
    result.assert_outcomes(passed=3, failed=7, skipped=2, xfailed=1, errors=1, warnings=1)
    shown = result.stdout
    shown.fnmatch_lines([
        "*_ test_one_fails _*", "rank 1 of 3:", "*seen == {\"rank\": 2}",
        "E*AssertionError: assert {'rank': 1} == {'rank': 2}", "seen       = {'rank': 1}",
        "test_it.py:*: AssertionError", "ranks 0, 2 ended with PeerFailed, for rank 1",
        "*Captured stdout call (rank 0)*", "then 0", "*Captured stderr call (rank 0)*", "raw 0",
        "*Captured stdout call (rank 2)*", "then 2",
        "*_ test_all_fail _*", "ranks 0-1 of 2:", "E*AssertionError: on both",
        "mine       = 'the same'",
        "*_ test_each_fails _*", "rank 0 of 2:", "E*assert 0 == 5", "rank 1 of 2:",
        "E*assert 1 == 5",
        "*_ TestMore.test_passes_unexpectedly _*", "ranks 0-1 of 2:", "[[]XPASS(strict)[]]*",
        "*_ TestMore.test_dies _*", "rank 1 of 2:",
        "test_it.py:*: in test_dies", "E   killed by SIGSEGV*",
        "*_ TestMore.test_vanishes _*", "rank 1 of 2:", "E   ended with exit code 0 in the middle*",
        "*_ TestUnit.test_unit _*", "rank 1 of 2:", "E*AssertionError: 1 != 0",
        "*UserWarning: be careful",
        "SKIPPED [[]1[]]*: not here", "SKIPPED [[]1[]]*: rank 1: not there",
        "FAILED test_it.py::test_one_fails - rank 1: AssertionError: assert {'rank*",
    ])  # fmt: skip
    shown.fnmatch_lines(["@pytest.mark.ranks: tmeout= given; one of backend=, seeds=*"])
    assert "in from_call" not in shown.str() and "launcher/testing" not in shown.str()


def test_a_hang_is_a_failure_that_says_where_all_stand(run):
    result = run("""
        import os, time, pytest
        from disttrain import distributed as dist

        @pytest.mark.ranks(2, backend="gloo", timeout=0.5)
        def test_waits():
            if dist.get_rank() == 1:
                busy()
            dist.barrier()

        def busy():
            while True:
                time.sleep(0.01)
        """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "rank 0 of 2:", "test_it.py:8: in test_waits", "*dist.barrier()",
        "E   not ended after 0.5 s; its last call: waits in barrier() at *; rank 1 has not arrived",
        "rank 1 of 2:", "test_it.py:7: in test_waits", "test_it.py:1?: in busy",
        "E   not ended after 0.5 s",
    ])  # fmt: skip


SIMULATED = """
import os
import pytest
import disttrain as dt
from disttrain import distributed as dist
from disttrain.errors import PeerFailed

@pytest.mark.ranks(3, backend="gloo", seeds=(0, 4))
def test_order():
    sources = []
    print("on", dist.get_rank())
    for _ in range(2):
        if dist.get_rank() == 0:
            sources.append(dist.recv(dt.zeros(1)))
    if dist.get_rank() != 0:
        dist.send(dt.ones(1), 0)
    else:
        assert sources == [1, 2]

@pytest.mark.ranks(2, backend="gloo", simulate={"hosts": 2})
def test_deadlock():
    assert os.environ["GROUP_WORLD_SIZE"] == "2"
    if dist.get_rank() == 0:
        dist.barrier()
    else:
        dist.recv(dt.zeros(1), 0)

@pytest.mark.ranks(3, backend="gloo", simulate=True, faults="kill 1@all_reduce:2")
def test_killed():
    dist.all_reduce(dt.ones(1))
    with pytest.raises(PeerFailed):
        dist.all_reduce(dt.ones(1))

@pytest.mark.ranks(2, backend="gloo", faults="kill 1@all_reduce:2")
def test_really_killed():
    dist.all_reduce(dt.ones(1))
    with pytest.raises(PeerFailed) as told:
        dist.all_reduce(dt.ones(1))
    assert told.value.rank == 1

@pytest.mark.ranks(2, backend="gloo", faults="kill 1@all_reduce:9")
def test_spared():
    dist.all_reduce(dt.ones(1))

@pytest.mark.ranks(2, faults="drop 1@all_reduce:1")
def test_not_for_real():
    pass
"""


def test_simulated_ranks_and_faults(run):
    result = run(SIMULATED, "-rA")
    assert outcomes(result) == {
        "test_order": "FAILED",
        "test_deadlock": "FAILED",
        "test_killed": "PASSED",
        "test_really_killed": "PASSED",
        "test_spared": "FAILED",
        "test_not_for_real": "ERROR",
    }
    result.stdout.fnmatch_lines([
        "seed 4, after 1 of 2 have passed; run it again with: pytest test_it.py::test_order "
        "--ranks-seed=4",
        "rank 0 of 3:", "E*assert [[]2, 1[]] == [[]1, 2[]]",
        "ranks 1-2 ended with PeerFailed, for rank 0",
        "*Captured stdout call*", "[[]rank 0[]] on 0",
        "*_ test_deadlock _*", "rank 0 of 2:", "*dist.barrier()",
        "E*disttrain.errors.Deadlock: no simulated rank can go on:",
        "rank 1 of 2:", "*dist.recv(dt.zeros(1), 0)",
        "faults=[[]'kill 1@all_reduce:9'[]]: no rank has made that call, so nothing was tested",
    ])  # fmt: skip
    again = run(SIMULATED, "-k", "test_order", "--ranks-seed=4")
    again.assert_outcomes(failed=1, deselected=5)


def test_subtests_are_reported_and_debuggers_refused(run):
    result = run(
        """
        import os, pytest

        @pytest.mark.ranks(2)
        def test_parts(subtests):
            for i in range(3):
                with subtests.test(i=i):
                    assert i != 1 or os.environ["RANK"] == "0"

        @pytest.mark.ranks(2)
        def test_debugs():
            breakpoint()
        """,
        "--pdb",
    )
    result.stdout.fnmatch_lines([
        "*ranks 0-1 of 2:*", "*RuntimeError: breakpoint(): ranks have no terminal to debug in*",
        "*--pdb: the ranks were processes without a terminal*",
    ])  # fmt: skip
    if pytest.version_tuple >= (9,):
        result.stdout.fnmatch_lines([
            "*test_parts (i='1', rank=1)*", "*assert (1 != 1 or '1' == '0'*",
            "*contains 1 failed subtest*",
        ])  # fmt: skip
        result.assert_outcomes(failed=3)


def test_it_can_be_switched_off(run):
    text = (
        "import os, pytest\n@pytest.mark.ranks(2)\ndef test_it(): assert 'RANK' not in os.environ"
    )
    run(text, "-p", "no:disttrain").assert_outcomes(passed=1)
    run(text).assert_outcomes(failed=1)


def test_it_loads_nothing_before_a_marked_test(pytester):
    pytester.makepyfile("""
        import sys

        def test_nothing():
            assert "disttrain_launcher.testing.plugin" in sys.modules
            assert not {"disttrain", "numpy", "disttrain_launcher.testing.run"} & sys.modules.keys()
            import disttrain.errors
            assert type(disttrain.errors.__loader__).__name__ == "SourceFileLoader"
        """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
