"""``elastic.run``: what it calls again, when it gives up, and what it asks for first."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import context
from disttrain import distributed as dist
from disttrain.distributed import elastic
from disttrain.distributed.elastic import running
from disttrain.distributed.elastic.state import Regroup
from disttrain.errors import GroupRevoked, PeerFailed
from support.simulated import on_ranks

pytestmark = pytest.mark.simulated


@pytest.fixture
def shrinks(monkeypatch):
    """How often a group of those that are left was made."""
    seen = []
    monkeypatch.setattr(running, "shrink", lambda: seen.append(1))
    return seen


def raising(*errors):
    """A function that raises these one after the other, and then gives what it was given."""
    left = list(errors)

    @elastic.run
    def train(state, value, more=0):
        """Trains."""
        if left:
            state.step += 10
            raise left.pop(0)
        return value + more, state.step

    return train


def called(train, **commit):
    def body():
        state = elastic.State(step=3)
        return train(state, 1, more=2)

    return on_ranks(body, 1)[0]


def test_a_result_is_given_with_the_state_as_it_is():
    train = raising()
    assert called(train) == (3, 3) and train.__name__ == "train" and train.__doc__ == "Trains."


@pytest.mark.parametrize("error", [Regroup(), PeerFailed(1, "gone"), GroupRevoked("revoked")],
                         ids=lambda e: type(e).__name__)  # fmt: skip
def test_after_a_loss_it_is_called_again_from_the_last_commit(error, shrinks):
    assert called(raising(error)) == (3, 3) and shrinks == [1]  # the ten steps are lost
    assert called(raising(error, error)) == (3, 3) and shrinks == [1] * 3


def test_its_own_error_ends_the_rank(shrinks):
    with pytest.raises(Exception, match="mine"):
        called(raising(ZeroDivisionError("mine")))
    assert not shrinks


def test_where_the_launcher_would_end_the_job_the_error_is_raised(shrinks, monkeypatch):
    monkeypatch.setenv(running.settings.MIN_RANKS.name, "1")
    with pytest.raises(Exception, match="gone"):
        called(raising(PeerFailed(1, "gone")))
    assert called(raising(Regroup())) == (3, 3)  # nobody is lost
    monkeypatch.setenv(running.settings.MIN_RANKS.name, "0")
    assert called(raising(PeerFailed(1, "gone"))) == (3, 3)


def test_the_default_group_is_made_where_there_is_none():
    @elastic.run
    def train(state):
        return dist.get_world_size(), dist.get_rank()

    def body():
        return train(elastic.State(step=dt.ones(1)))

    assert dist.simulate(body, 2).results == [(2, 0), (2, 1)]


def test_a_state_comes_first():
    train = raising()
    with pytest.raises(TypeError, match=r"train\(\) was called with int first; an elastic.State"):
        train(3)


def test_without_a_launcher_nobody_is_a_newcomer():
    assert not running.is_newcomer() and context.current().rank == 0
