"""Training that goes on when ranks are lost and come: what is kept, and that nothing committed is
lost, wherever ranks end (simulated ranks; ``tests/launcher/test_replaced_ranks.py`` has real ones).
"""

from __future__ import annotations

import json
import os
import random
import signal

import pytest

import disttrain as dt
from disttrain import context, nn
from disttrain import distributed as dist
from disttrain.comm.job import termination
from disttrain.distributed import elastic
from disttrain.distributed.ddp import DistributedDataParallel
from disttrain.errors import CommError, ConfigError, PeerFailed
from support.newcomers import start_anew

SCHEDULES = int(os.environ.get("SCHEDULES", "1"))


def make() -> tuple[nn.Module, dt.optim.Optimizer]:
    dt.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    return model, dt.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def step_of(model: nn.Module, optimizer: dt.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(dt.randn(5, 4)).square().mean().backward()
    optimizer.step()


def everything(state: elastic.State) -> tuple:
    tensors = [t.tolist() for t in state.model.state_dict().values()]
    kept = state.optimizer.state_dict()["state"].values()
    return tensors, [s["momentum_buffer"].tolist() for s in kept], state.step, str(state.seen)


def test_a_state_goes_back_to_its_last_commit_and_draws_the_same_again():
    model, optimizer = make()
    state = elastic.State(model=model, optimizer=optimizer, step=0, seen={"ids": [1]})
    for _ in range(2):
        step_of(model, optimizer)
        state.step += 1
        state.seen["ids"].append(state.step)
        state.commit()
    before = everything(state)
    for _ in range(2):
        step_of(model, optimizer)
        state.step += 1
        after = everything(state)
        state.seen["ids"].append(99)
        assert everything(state) != before
        state.restore()
        assert everything(state) == before and state.commits == 2
        step_of(model, optimizer)  # with the same random numbers
        state.step += 1
        assert everything(state) == after
        state.restore()


def test_what_was_under_way_is_dropped_with_the_step():
    model, optimizer = make()
    scaler = dt.amp.GradScaler("cpu")
    weight = dt.zeros(2, requires_grad=True)  # kept by itself: the program's object stays
    state = elastic.State(model=model, optimizer=optimizer, scaler=scaler, own=[weight])
    state.commit()
    for _ in range(2):  # broken off between unscale_() and update()
        loss = model(dt.randn(5, 4)).square().mean() + weight.sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        with dt.no_grad():
            weight += 1
        state.restore()
        assert all(p.grad is None for p in model.parameters())
        assert state.own[0] is weight and weight.grad is None and weight.tolist() == [0, 0]


def test_a_commit_that_fails_in_the_middle_leaves_the_one_before():
    class Meter:
        broken = False

        def state_dict(self):
            if self.broken:
                raise PeerFailed("meter", 1, "it was killed")
            return {}

        def load_state_dict(self, told):
            pass

    state = elastic.State(values=dt.zeros(2), meter=Meter())
    state.commit()
    state.values += 1
    state.meter.broken = True
    with pytest.raises(PeerFailed):
        state.commit()
    state.restore()
    assert state.commits == 1 and state.values.tolist() == [0, 0]


@pytest.mark.simulated
def test_what_cannot_be_kept_is_refused():
    with pytest.raises(ConfigError, match=r"commit= was given, which is a name of State's own"):
        elastic.State(commit=1)
    with pytest.raises(TypeError, match=r"train\(\) was called with int first; an elastic.State"):
        elastic.run(train)(3)

    def body():
        mesh = dist.init_device_mesh("cpu", (2,))
        sharded = dist.tensor.distribute_tensor(dt.ones(4), mesh, [dist.tensor.Shard(0)])
        with pytest.raises(TypeError, match=r"elastic.State: weights holds a DTensor"):
            elastic.State(weights=[sharded]).commit()

    dist.simulate(body, 2)


class Death(Exception):
    pass


def train(state: elastic.State, number: int, deaths: list[int], steps: int) -> list[int]:
    """Every step adds its number to the weight, on whatever ranks there are."""
    sizes = []
    ddp = DistributedDataParallel(state.model)
    while state.step < steps:
        if deaths and state.step >= deaths[0]:
            deaths.pop(0)
            raise Death
        ddp(dt.full((2, 1), float(state.step + 1))).sum().backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.step += 1
        sizes.append(dist.get_world_size())
        if deaths and deaths[0] == -state.step:
            deaths.pop(0)
            raise Death
        state.commit()
    return sizes


def life(number: int, deaths: list[int], steps: int):
    """Of one rank, and of those that take its place."""
    start = 0.0  # as if it were loaded from a checkpoint, which newcomers need not do
    while True:
        dt.manual_seed(number)
        model = nn.Linear(1, 1, bias=False)
        with dt.no_grad():
            model.weight.fill_(start)
        optimizer = dt.optim.SGD(model.parameters(), 1.0)
        state = elastic.State(model=model, optimizer=optimizer, step=0)
        try:
            sizes = elastic.run(train)(state, number, deaths, steps)
        except Death:
            start_anew(number)
            start = 99.0
            continue
        except CommError as error:
            assert "none of them is left; they have ended" in str(error)
            return None
        return model.weight.item(), sizes, state.commits


@pytest.mark.simulated
@pytest.mark.parametrize("seed", range(16 * SCHEDULES))
def test_no_committed_step_is_lost_whoever_ends_where(seed):
    draw = random.Random(seed)
    ranks, steps = draw.choice([2, 3, 4]), 7
    first = draw.randrange(ranks)  # never ends
    deaths: dict[int, list[int]] = {r: [] for r in range(ranks)}
    for rank in set(range(ranks)) - {first}:
        at = sorted(draw.sample(range(5), draw.randrange(0, 3)))
        deaths[rank] = [draw.choice([a, -a]) for a in at]  # before a step, or in its commit

    def body():
        me = context.current().rank
        return life(me, deaths[me], steps)

    ended = dist.simulate(body, ranks, seed=seed).results
    assert ended[first] is not None
    for weight, sizes, commits in filter(None, ended):
        assert weight == -2.0 * sum(range(1, steps + 1)) and commits == steps
        assert sizes[-1] == ended[first][1][-1]


@pytest.mark.simulated
def test_where_the_launcher_would_end_the_job_the_failure_is_raised(monkeypatch):
    monkeypatch.setenv("DISTTRAIN_MIN_RANKS", "3")

    def body():
        me = context.current().rank
        model = nn.Linear(1, 1, bias=False)
        optimizer = dt.optim.SGD(model.parameters(), 1.0)
        state = elastic.State(model=model, optimizer=optimizer, step=0)
        try:
            elastic.run(train)(state, me, [2] if me == 1 else [], 5)
        except PeerFailed as error:
            return error.rank
        except Death:
            start_anew(me)
        return None

    assert dist.simulate(body, 3, seed=2).results == [1, None, 1]


@pytest.mark.simulated
def test_a_newcomer_that_comes_to_another_function_is_told_so():
    """And the others go on without it."""

    def body():
        me = context.current().rank
        state = elastic.State(step=0)

        @elastic.run
        def first(state):
            while state.step < 2:
                state.step += 1
                state.commit()

        @elastic.run
        def second(state):
            while state.step < 6:
                if me == 1 and state.step == 4:
                    raise Death
                state.step += 1
                state.commit()
            return state.step

        try:
            first(state)
            return second(state)
        except Death:
            start_anew(me)
        with pytest.raises(CommError, match=r"rank 1 calls .*first\(\), and rank 0 is in another"):
            first(elastic.State(step=0))
        start_anew(me)  # it ends
        return None

    ended = dist.simulate(body, 3, seed=1).results
    assert ended == [6, None, 6]


@pytest.mark.simulated
def test_all_ranks_hear_of_a_request_to_end_after_the_same_step():
    def body():
        me = context.current().rank
        dist.init_process_group()
        for step in range(9):
            if (me, step) == (1, 4):
                context.current().slots["comm.termination"] = asked
            if elastic.termination_requested():
                return step
        return None

    asked = termination._Request(os.getpid(), came=True)
    assert dist.simulate(body, 3, seed=1).results == [4, 4, 4]


def test_a_process_that_is_asked_to_end_goes_on_and_knows():
    assert not elastic.termination_requested()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert elastic.termination_requested()
        state = elastic.State(step=1)
        state.commit()
        assert state.ending
        pid = os.fork()
        if pid == 0:  # but its children end
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(3)
        assert os.waitpid(pid, 0)[1] == signal.SIGTERM
        assert termination.for_helpers() == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        context.current().slots.pop("comm.termination")
    signal.signal(signal.SIGTERM, handler := lambda *_: None)
    try:
        assert not elastic.termination_requested()  # the program's own handler stays
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_errors_are_recorded_for_schedulers(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    @elastic.record
    def main(code):
        if isinstance(code, int):
            raise SystemExit(code)
        raise ValueError(code)

    assert main(0) is None and not path.exists()
    with pytest.raises(SystemExit):
        main(3)
    assert not path.exists()
    with pytest.raises(ValueError, match="broken"):
        main("broken")
    told = json.loads(path.read_text())["message"]
    assert told["message"] == "ValueError: broken" and told["extraInfo"]["timestamp"].isdigit()
    assert "in main" in told["extraInfo"]["py_callstack"]
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "deep"))  # a directory
    with pytest.raises(ValueError, match="hidden"):
        main("hidden")
