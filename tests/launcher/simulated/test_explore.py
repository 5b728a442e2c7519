"""Exploring schedules and faults: what is tried, what is shown, how it is replayed."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from disttrain.comm.transports.sim.explore import Trial, Verdict
from disttrain.comm.transports.sim.faults import parse_fault
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.options.simulation import Flags
from disttrain_launcher.plan.job import Plan
from disttrain_launcher.simulated import explore as module
from disttrain_launcher.simulated import forked
from disttrain_launcher.simulated.explore import explore, replay, run_trial

pytestmark = pytest.mark.simulated

PLAN = Plan(("train.py", "--name", "a b"), 4)
WELL = Verdict(0, (), (((0, "all_reduce"), 3), ((1, "all_reduce"), 3)))
KILL = parse_fault("kill", "1@all_reduce:2", 4)


def wrong(trial):
    return Verdict(1, ((0, "ValueError", f"ValueError: bad with {trial.num_ranks}\nmore"),))


class Trials:
    """In place of processes: ``judge(trial)``."""

    def __init__(self, monkeypatch, judge):
        self.tried, self.shown, self.said, self.judge = [], [], [], judge
        self.orders = []  # how many of them were to be tried
        monkeypatch.setattr(module, "run_trial", self.run)
        monkeypatch.setattr(module, "say", self.said.append)
        monkeypatch.setattr(module, "explore_orders", self.explore_orders)

    def explore_orders(self, plan, flags, budget):
        self.orders.append(budget)
        return 0

    def run(self, plan, flags, trial, shown=False):
        (self.shown if shown else self.tried).append(trial)
        return self.judge(trial)


def test_all_is_well(monkeypatch):
    trials = Trials(monkeypatch, lambda trial: WELL)
    assert explore(PLAN, Flags(explore=5, seed=7)) == 0
    assert trials.tried[0] == Trial(4, 7) and len(trials.tried) == 5
    assert trials.said[0].startswith("5 schedules and faults tried in ")
    assert trials.shown == [] and trials.orders == [5]


def test_a_program_that_fails_by_itself_is_told_at_once(monkeypatch):
    trials = Trials(monkeypatch, wrong)
    assert explore(PLAN, Flags(explore=50)) == 1
    assert trials.tried == trials.shown == [Trial(4, 0)]
    assert trials.said[0] == "it fails without any fault, in the first schedule"
    assert "4 ranks, seed 0, faults: none" in trials.said[1] and trials.orders == []


def test_faults_that_fail_leave_the_orders_to_be_tried(monkeypatch):
    trials = Trials(monkeypatch, lambda trial: wrong(trial) if trial.faults else WELL)
    assert explore(PLAN, Flags(explore=20, seed=2)) == 1
    assert trials.shown[0].faults and trials.orders == [20]


def test_the_simplest_trial_that_fails_alike_is_shown(monkeypatch):
    def judge(trial):
        return wrong(trial) if trial.seed % 5 == 3 and trial.num_ranks >= 3 else WELL

    trials = Trials(monkeypatch, judge)
    code = explore(PLAN, Flags(explore=200))
    if code:  # which trials there are is drawn from the seed
        (shown,) = trials.shown
        assert shown.num_ranks == 3 and not shown.faults and shown.seed % 5 == 3
        assert "fails: rank 0: ValueError: bad with" in trials.said[0]
        assert "more" not in trials.said[0]
    assert code == 1


def test_ranks_that_the_command_line_names_stay(monkeypatch):
    def judge(trial):
        return wrong(trial) if trial.seed else WELL

    trials = Trials(monkeypatch, judge)
    assert explore(PLAN, Flags(explore=50, straggler=("3=2",))) == 1
    assert trials.shown[0].num_ranks == 4


def test_a_trial_is_replayed_by_a_command_that_means_it():
    flags = Flags(hosts=4, delay=("0@barrier:1=5ms",))
    words = shlex.split(replay(replace(PLAN, face="torch"), flags, Trial(3, 9, (KILL,))))
    assert words[:3] == ["dtrun", "--simulate", "3"] and "--as-torch" in words
    options = parse(words[1:], {})
    assert options.program == PLAN.program and options.nproc_per_node == 3
    meant = options.simulated
    assert (meant.seed, meant.kill, meant.delay) == (9, ("1@all_reduce:2",), flags.delay)
    assert meant.hosts == 3, "no more hosts than ranks"
    assert meant.compute == "0", "programs compute nothing, where nothing is said"
    module_words = shlex.split(replay(Plan(("a.b",), 2, module=True), Flags(), Trial(2, 0)))
    assert parse(module_words[1:], {}).module


class Gone:
    """A child that is not forked: ``data`` comes from it."""

    def __init__(self, monkeypatch, data):
        self.ended = []
        monkeypatch.setattr(forked.os, "fork", lambda: 4711)
        monkeypatch.setattr(forked.os, "kill", lambda pid, sig: self.ended.append((pid, sig)))
        monkeypatch.setattr(forked.os, "waitpid", lambda pid, flags: (pid, 9))
        monkeypatch.setattr(forked, "_read", lambda fd, deadline: data)


@pytest.mark.parametrize("data, kind", [(None, "Hung"), (b"", "Died")])
def test_a_trial_that_hangs_or_dies_has_failed_and_is_ended(monkeypatch, data, kind):
    gone = Gone(monkeypatch, data)
    verdict = run_trial(PLAN, Flags(), Trial(4, 0))
    assert verdict.code == 1 and verdict.blame[0][1] == kind
    assert gone.ended == [(4711, 9)]
