"""Which trials are made, what counts as a failure, how one is made simple. Nothing runs here."""

from __future__ import annotations

from disttrain.comm.transports.sim.explore import Trial, Verdict, shrink, trials, unexpected
from disttrain.comm.transports.sim.faults import Fault, parse_fault

COUNTS = {(0, "all_reduce"): 3, (1, "all_reduce"): 3, (1, "send"): 1, (0, "close"): 1}


def fault(kind: str, text: str) -> Fault:
    return parse_fault(kind, text, 64)


def test_trials_are_drawn_from_the_seed_at_points_that_there_are() -> None:
    made = list(trials(60, 2, 5, COUNTS))
    assert made == list(trials(60, 2, 5, COUNTS)) != list(trials(60, 2, 6, COUNTS))
    assert len({trial.seed for trial in made}) == 60
    assert sum(not trial.faults for trial in made) == 30
    points = {(f.rank, f.verb, f.number) for trial in made for f in trial.faults}
    assert points == {(r, "all_reduce", n) for r in (0, 1) for n in (1, 2, 3)} | {(1, "send", 1)}
    assert {f.kind for trial in made for f in trial.faults} == {"kill", "drop", "delay"}
    assert all((f.seconds > 0) == (f.kind == "delay") for t in made for f in t.faults)


def test_what_faults_explain_is_no_failure() -> None:
    killed = Trial(4, 0, (fault("kill", "1@all_reduce:2"),))
    dead, peer = (1, "Killed", "killed"), (0, "PeerFailed", "rank 1 failed")
    assert unexpected(killed, Verdict(137, (dead, peer))) is None
    assert unexpected(Trial(4, 0), Verdict(1, (peer,))) == peer
    for wrong in ((2, "Killed", "killed"), (2, "ValueError", "bad"), (2, "Deadlock", "stuck")):
        assert unexpected(killed, Verdict(1, (dead, wrong))) == wrong
    for named, fine in (((0, 1, "x"), True), ((0, 7, "killed"), True), ((0, 2, "x"), False)):
        verdict = Verdict(137, (dead, peer), (), (named,))
        assert unexpected(killed, verdict) == (None if fine else peer)
    lost = Trial(4, 0, (fault("drop", "1@all_reduce:2"),))
    late = (3, "WaitTimeout", "waited")
    assert unexpected(lost, Verdict(1, (late, peer))) is None
    assert unexpected(killed, Verdict(1, (dead, late))) == late
    delayed = Trial(4, 0, (fault("delay", "1@all_reduce:2=1s"),))
    assert unexpected(delayed, Verdict(0)) is None
    assert unexpected(delayed, Verdict(1, (late,))) == late


def test_a_trial_shrinks_to_what_matters() -> None:
    trial = Trial(64, 999, (fault("delay", "9@send:2=5ms"), fault("kill", "40@all_reduce:17")))

    def fails(t: Trial) -> bool:
        kills = [f for f in t.faults if f.kind == "kill"]
        return t.num_ranks >= 5 and any(f.number is not None and f.number >= 3 for f in kills)

    asked: list[Trial] = []
    simplest = shrink(trial, lambda t: (asked.append(t), fails(t))[1], 2, most=400)
    assert fails(simplest) and len(asked) <= 400
    assert (simplest.num_ranks, simplest.seed, len(simplest.faults)) == (5, 0, 1)
    assert simplest.faults[0].kind == "kill" and simplest.faults[0].number in (3, 4)
    assert simplest.faults[0].rank in range(5)


def test_shrinking_stops_when_it_has_asked_often_enough() -> None:
    asked: list[Trial] = []
    trial = Trial(64, 10**6, (fault("kill", "40@all_reduce:17"),))
    assert shrink(trial, lambda t: bool(asked.append(t)), most=7) == trial and len(asked) == 7
    assert shrink(Trial(2, 0), lambda t: True, 2) == Trial(2, 0)
