"""When a stage's gradients are averaged over replicas: with the last micro-batch's backward."""

from __future__ import annotations

from contextlib import contextmanager

from disttrain import nn
from disttrain.distributed.pipelining.sync import GradSync


class Replica(nn.Module):
    """What ``GradSync`` asks of replicas: it writes down what it is told."""

    def __init__(self, *inside: nn.Module) -> None:
        super().__init__()
        self.inside, self.told = nn.ModuleList(inside), []

    def prepare_backward(self) -> None:
        self.told.append("prepare")

    @contextmanager
    def no_sync(self):
        self.told.append("off")
        yield
        self.told.append("on")


class Sharded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.told, self.last = [], None

    def reduce_gradients(self) -> None:
        self.told.append("reduce")

    def set_is_last_backward(self, on: bool) -> None:
        self.last = on

    def set_requires_gradient_sync(self, on: bool) -> None:
        self.told.append(on)

    def set_reshard_after_backward(self, on: bool) -> None:
        self.told.append(on)


def test_only_the_outermost_of_nested_replicas_is_told():
    inner = Replica()
    outer, sharded = Replica(inner), Sharded()
    sync = GradSync(nn.Sequential(outer, sharded))
    assert sync.replicas == [outer] and sync.sharded == [sharded]


def test_every_forward_is_without_communication():
    replica = Replica()
    with GradSync(replica).forward():
        assert replica.told == ["off"]
    assert replica.told == ["off", "on"]


def test_the_last_backward_alone_communicates():
    replica, sharded = Replica(), Sharded()
    sync = GradSync(nn.Sequential(replica, sharded))
    with sync.backward(last=False):
        assert replica.told == ["off"] and sharded.told == [False, False] and not sharded.last
    with sync.backward(last=True):
        assert replica.told == ["off", "on", "prepare"]
        assert sharded.told[2:] == [True, True] and sharded.last
    assert "reduce" not in sharded.told  # its own backward does it


def test_a_backward_in_parts_reduces_after_the_last_part():
    sharded = Sharded()
    sync = GradSync(nn.Sequential(sharded))
    with sync.backward(last=True, parts=True):
        assert sharded.told == [False, False]
    assert sharded.told == [False, False, "reduce", True, True] and sharded.last


def test_a_step_looks_again_for_what_was_put_in_since():
    model = nn.Sequential(nn.Linear(1, 1))
    sync = GradSync(model)
    assert sync.replicas == []
    model.append(Replica())
    sync.begin()
    assert len(sync.replicas) == 1


def test_a_plain_function_has_nothing_to_put_off():
    sync = GradSync(lambda x: x)
    with sync.forward(), sync.backward(last=True, parts=True):
        assert sync.replicas == sync.sharded == []
