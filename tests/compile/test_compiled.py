"""``dt.compile``: the numbers of eager steps, captured anew exactly when Python's part changed."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compile import capture
from disttrain.errors import CaptureError

F = nn.functional


def network():
    return nn.Sequential(
        nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 8),
        nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3),
    )  # fmt: skip


def train(kind: str, compiled: bool, accumulate: bool = False):
    """Six steps on fresh data with dropout, clipping and a schedule: all numbers, and why."""
    dt.manual_seed(0)
    model = network()
    optimizer = getattr(dt.optim, kind)(model.parameters(), lr=0.01)
    schedule = dt.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x, y):
        if not accumulate:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach(), norm

    run = dt.compile(step) if compiled else step
    numbers = []
    for _ in range(6):
        numbers += run(dt.randn(16, 6), dt.randint(0, 3, (16,)))
        schedule.step()
    numbers += [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    return [t.detach().numpy() for t in numbers], run


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "RMSprop", "Adagrad"])
def test_steps_are_bitwise_those_of_eager(kind, accumulate):
    expected, _ = train(kind, False, accumulate)
    found, run = train(kind, True, accumulate)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(run.reasons) == 2, "a schedule needs no new capture"


def test_tensors_made_inside_start_afresh():
    def fn(x):
        total = dt.zeros(3)
        total.add_(x)
        return total

    _, graph = capture(fn)(dt.ones(3))
    first, second = graph.run(dt.ones(3))[0], graph.run(dt.ones(3))[0]
    assert first.tolist() == second.tolist() == [1.0, 1.0, 1.0] and "constant" in str(graph)


def test_gradients_of_two_leaves_are_two_tensors():
    p, q = (dt.ones(3, requires_grad=True) for _ in range(2))

    def fn():
        p.grad = q.grad = None
        (p + q).sum().backward()
        p.grad.mul_(2)

    _, graph = capture(fn)()
    p.grad = q.grad = None
    graph.run()
    assert p.grad.tolist() == [2.0] * 3 and q.grad.tolist() == [1.0] * 3


def test_a_written_input_is_written_and_given_back():
    _, graph = capture(lambda x: x.add_(1))(dt.zeros(2))
    x = dt.zeros(2)
    assert graph.run(x)[0] is x and x.tolist() == [1.0, 1.0] and x._version == 1


def test_a_step_that_reads_a_number_runs_once_per_call():
    w = dt.ones(1, requires_grad=True)
    optimizer = dt.optim.SGD([w], lr=0.25)

    def step():
        optimizer.zero_grad()
        loss = w.sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    run = dt.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [run() for _ in range(3)] == [1.0, 0.75, 0.5]


def test_python_state_that_the_function_changes_is_not_frozen():
    calls = 0

    def fn(x):
        nonlocal calls
        calls += 1
        return x * calls

    run = dt.compile(fn)
    with pytest.warns(UserWarning, match="changes calls, which a replay would not"):
        assert [run(dt.ones(1)).item() for _ in range(3)] == [1.0, 2.0, 3.0]


def test_without_end_of_new_captures_it_runs_eagerly():
    run = dt.compile(lambda x, n: x * n)
    with pytest.warns(UserWarning, match="captured 32 times") as seen:
        assert [run(dt.ones(1), -n).item() for n in range(40)] == [-n for n in range(40)]
    assert len(seen) == 1 and len(run.graphs) == 32


class Trainer:
    def __init__(self):
        self.model, self.scale = nn.Linear(3, 1), 2.0
        self.optimizer = dt.optim.AdamW(self.model.parameters())

    def step(self, x):
        loss = (self.model(x) * self.scale).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def test_attributes_and_replaced_state_are_noticed():
    trainer, x = Trainer(), dt.randn(4, 3)
    run = dt.compile(trainer.step)
    for _ in range(3):
        run(x)
    assert len(run.reasons) == 1
    trainer.scale = 3.0
    run(x)
    assert "scale: 2.0 became 3.0" in run.explain()
    trainer.optimizer.load_state_dict(trainer.optimizer.state_dict())
    run(x)
    assert "was replaced" in run.explain()
    assert trainer.optimizer.state_dict()["state"][0]["step"].item() == 5


def test_a_module_replays_without_gradients_and_learns_with_them():
    plain = nn.Sequential(nn.Linear(3, 40), nn.Dropout(0.5))
    model = dt.compile(plain)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert isinstance(model, nn.Sequential) and str(model) == str(plain)
    assert model[0].weight is plain[0].weight and model._orig_mod is plain
    x = dt.randn(2, 3)
    model(x).sum().backward()
    assert model[0].weight.grad is not None
    with dt.no_grad():
        drawn = [model(x) for _ in range(3)]
        model.eval()
        still = [model(x) for _ in range(3)]
        assert not dt.equal(drawn[1], drawn[2]) and dt.equal(still[0], still[2])
        twin, read = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        assert dt.equal(twin(x), still[0]) and dt.equal(read(x), still[0])
        twin[0].weight.zero_()
        assert not dt.equal(twin(x), model(x))
        model[0] = nn.Linear(3, 40)
        assert not dt.equal(model(x), still[0])


def test_values_that_leave_for_python_are_refused():
    for leave in (
        lambda t: float(t),
        lambda t: t.numpy(),
        lambda t: t.detach().tolist(),
        lambda t: copy.deepcopy(t),
        lambda t: t.__array__(),
        lambda t: dt.tensor([t, 1.0]),
        lambda t: dt.tensor(t),
    ):
        with pytest.raises(CaptureError, match="is read at"):
            capture(lambda x, leave=leave: leave(x.sum()))(dt.ones(3))


def test_hooks_on_gradients_are_refused():
    p = dt.ones(2, requires_grad=True)
    p.register_post_accumulate_grad_hook(lambda leaf: None)
    with pytest.raises(CaptureError, match="hooks on its gradient"):
        capture(lambda: (p * 2).sum().backward())()


def test_a_capture_keeps_no_values_of_its_run():
    w = dt.randn(3, 3).requires_grad_()

    @dt.compile
    def step(x):
        w.grad = None
        loss = ((x @ w).tanh() @ w).exp().sum()
        loss.backward()
        return loss

    gc.collect()
    gc.disable()  # nothing may wait for it
    try:
        step(dt.ones(123, 3))
        first = weakref.ref(w.grad)
        step(dt.ones(123, 3))
        step(dt.ones(123, 3))
        tensors = [t for t in gc.get_objects() if isinstance(t, dt.Tensor)]
        left = [t for t in tensors if t.array.shape[:1] == (123,) and any(t.array.strides)]
        assert first() is None and not left and len(step.graphs) == 2
    finally:
        gc.enable()
