"""The judge of stragglers: on made-up runs of every kind, and on recorded ones."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from disttrain.watch.stragglers import Judge, Seen, Stalls, Straggler, stalled, table

RUNS = Path(__file__).parent / "recorded"
Work = Callable[[int, int], float]  # (rank, step) -> seconds


def _run(
    work: Work, ranks: int = 4, steps: int = 200, counts: bool = True, share: Work = lambda r, i: 1
) -> tuple[list[tuple[int, Straggler]], Judge]:
    """Ranks that meet after each step; (step, what the judge says) of all looks. ``share``: of a
    processor, that a rank gets in a step."""
    judge, found = Judge(), []
    now, look, waited, deprived = 0.0, 0.0, [0.0] * ranks, [0.0] * ranks
    for step in range(steps):
        shares = [share(r, step) for r in range(ranks)]
        times = [work(r, step) / shares[r] for r in range(ranks)]
        last = max(times)
        while look < now + last:
            inside = look - now
            seen = {}
            for r in range(ranks):
                waits = max(0.0, inside - times[r])
                began = step + (inside >= times[r])
                seen[r] = Seen(
                    round((waited[r] + waits) * 1e9), step if counts else 0, began,
                    round(waits * 1e9),
                    round((deprived[r] + min(inside, times[r]) * (1 - shares[r])) * 1e9),
                    round(inside * 1e9) if counts else 0,
                )  # fmt: skip
            said = judge.look(round(look * 1e9), seen)
            if said is not None:
                found.append((step, said))
            look += judge.pace
        now += last
        waited = [w + last - t for w, t in zip(waited, times, strict=True)]
        deprived = [d + t * (1 - s) for d, t, s in zip(deprived, times, shares, strict=True)]
    return found, judge


@pytest.mark.parametrize("step", [0.012, 0.02, 0.1, 2.0])
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_a_rank_three_times_slower_is_named_once_within_twenty_steps(step, ranks):
    for slow in {0, ranks - 1}:
        found, judge = _run(lambda r, i, slow=slow: step * (3 if r == slow else 1), ranks, 60)
        assert [said.rank for _, said in found] == [slow]
        when, said = found[0]
        assert when < 20 or when * 3 * step < 1.2
        assert 2.8 < said.ratio < 3.2 and said.unit == "step"
        assert f"rank {slow} is a straggler: {said.ratio:.1f} times slower" in said.text("")
        assert "RATIO" in table(judge.totals)[0] and table(judge.totals)[1].split()[0] == str(slow)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_slow_ranks_are_both_named_in_noise_too(seed):
    rng = random.Random(seed)
    found, _ = _run(lambda r, i: rng.lognormvariate(-3, 0.2) * (3 if r in (1, 5) else 1), 8)
    assert sorted(said.rank for _, said in found) == [1, 5]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nobody_is_named_where_each_is_slow_by_chance(seed):
    rng = random.Random(seed)
    found, _ = _run(
        lambda r, i: rng.lognormvariate(-1, 0.4) * (3 if rng.random() < 0.1 else 1), 8, 400
    )
    assert found == []


@pytest.mark.parametrize("onset", [30, 47, 61])
def test_a_rank_that_becomes_slow_is_named_within_twenty_steps(onset):
    found, _ = _run(lambda r, i: 0.06 if r == 2 and i >= onset else 0.02)
    assert [said.rank for _, said in found] == [2] and found[0][0] - onset < 20


def test_programs_that_count_no_steps_are_judged_by_their_operations():
    found, _ = _run(lambda r, i: 0.06 if r == 1 else 0.02, counts=False)
    assert [(said.rank, said.unit) for _, said in found] == [(1, "operation")]
    assert re.search(
        r"63.5 ms an operation against 2.* in barrier\(\) at", found[0][1].text("barrier() at a")
    )


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_named_where_all_are_alike(seed):
    rng = random.Random(seed)
    noise = rng.choice([0.02, 0.1, 0.3])
    load = [1.0 if i < 60 else rng.choice([1, 2, 5]) for i in range(300)]  # slows all
    rare = {(rng.randrange(4), i): 0.3 for i in range(5, 300, 40)}  # a hiccup now and then

    def work(r: int, i: int) -> float:
        return 0.02 * load[i] * rng.uniform(1 - noise, 1 + noise) + rare.get((r, i), 0.0)

    assert _run(work, 4, 300)[0] == []


@pytest.mark.parametrize("pause", [0.1, 0.4, 1.0, 5.0])
def test_a_rank_that_saves_now_and_then_is_none(pause):
    found, _ = _run(lambda r, i: 0.02 + (pause if r == 0 and i % 30 == 0 else 0.0), 4, 200)
    assert found == []


@pytest.mark.parametrize("step", [0.0001, 0.001, 0.009])
def test_who_costs_less_than_20_ms_a_step_is_not_named(step):
    assert _run(lambda r, i: step * (3 if r == 1 else 1), 4, round(3 / step))[0] == []


@pytest.mark.parametrize("every", [7, 10, 20, 50, 100])
@pytest.mark.parametrize("step", [0.0005, 0.002, 0.01])
def test_a_rank_that_saves_among_empty_steps_is_none(step, every):
    found, _ = _run(lambda r, i: step + 0.3 * (r == 0 and i % every == 0), 4, 600)
    assert found == []


@pytest.mark.parametrize("seed", range(12))
def test_who_only_gets_less_of_a_processor_is_none(seed):
    """Now this rank, now that one, for seconds: busy processes are beside them. One that works for
    longer is named all the same, where it gets as much as the others."""
    rng = random.Random(seed)
    shares = {(r, k): rng.choice([0.2, 0.33, 0.5, 1.0]) for r in range(4) for k in range(30)}

    def share(rank: int, step: int) -> float:
        return shares[rank, step // 25]

    step = rng.choice([0.02, 0.05, 0.2])
    assert _run(lambda r, i: step * rng.uniform(0.9, 1.1), 4, 700, share=share)[0] == []
    found, _ = _run(lambda r, i: step * (4 if r == 2 else 1), 4, 700, share=lambda r, i: 0.5)
    assert [said.rank for _, said in found] == [2]


LONG = 10**10  # nanoseconds


@pytest.mark.parametrize("steps", [0, 7])
def test_who_does_not_come_back_is_known_after_ten_seconds(steps):
    stalls = Stalls()

    def look(now: int, *waits: int) -> tuple[bool, int]:
        return stalls.look(now, {r: Seen(w, steps, 3, w) for r, w in enumerate(waits)})

    assert look(0, 1, 0, 1) == (False, -1)
    assert look(LONG - 1, LONG, 0, LONG) == (False, -1)
    assert look(LONG, LONG, 0, LONG) == (True, 1)
    assert look(LONG + 1, LONG, 1, LONG) == (False, -1), "it has come"
    assert look(3 * LONG, 3 * LONG, 2 * LONG, 3 * LONG) == (True, -1), "of other nodes, perhaps"
    assert look(4 * LONG, 4 * LONG, 0, 0) == (False, -1)
    assert stalled(3, "f() at a:1") == "all other ranks wait for rank 3, for 10 s now in f() at a:1"
    assert stalled(3, "", "b:7").startswith("all other ranks wait for rank 3 on node b:7, for 10 s")


def test_a_rank_alone_stands_still_when_nothing_shows_of_it_for_long():
    stalls = Stalls()
    assert stalls.look(0, {5: Seen(0, 1, 1)}) == (False, -1)
    assert stalls.look(LONG, {5: Seen(0, 1, 1)}) == (True, 5)
    for seen in (Seen(0, 2, 1), Seen(0, 2, 2), Seen(1, 2, 2), Seen(2, 2, 2, 1)):
        assert stalls.look(2 * LONG, {5: seen}) == (False, -1)


def test_ranks_that_do_not_go_on_alike_and_ranks_that_go_are_not_compared():
    judge = Judge()
    for i in range(200):
        seen = {0: Seen(0, 0, 10 * i), 1: Seen(i * 90_000_000, 0, 30 * i)}
        assert judge.look(i * 100_000_000, seen) is None
    assert judge.look(1, {0: Seen(0, 0, 0)}) is None and judge.look(2, {}) is None
    assert table({}) == ["no steps were compared"]


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.json")), ids=lambda p: p.stem)
def test_recorded_runs(path):
    """Looks at real ranks (2 cores), as the agent takes them: ``{rank: [waited, steps, operations,
    waits]}``. The name says how many ranks, and what was done to them."""
    run = json.loads(path.read_text())
    judge = Judge()
    named = []
    for now, row in run["looks"]:
        said = judge.look(now, {int(r): Seen(*values) for r, values in row.items()})
        if said is not None:
            named.append((said.rank, min(values[1] or values[2] for values in row.values())))
    assert [rank for rank, _ in named] == run["slow"]
    assert all(step <= 20 for _, step in named)
