"""Functions and modules as programs: what they compute, how they are called, and what is refused
with its line."""

from __future__ import annotations

import collections
import threading

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.errors import CaptureError, ConfigError, DimError
from support.cases.exported import CASES, drawn, made, reread, same

F = dt.nn.functional
Pair = collections.namedtuple("Pair", "u v")


def odd_views(x):
    y = x.clone()
    rows = y.view(-1)
    y[0] = 1.0
    rows[1:3] = 7
    y.t()[1] += 2
    a, b = y.split([1, x.shape[0] - 1])
    b.mul_(3)
    z = dt.zeros(x.shape[0], 3)
    z += 1
    return y, rows, z, x[x.shape[0] // 2 :], a, y.detach()


def masked(x):
    keep = dt.tril(dt.ones(x.shape[0], x.shape[0])) == 0
    return (x @ x.T).masked_fill(keep, float("-inf")).softmax(-1)


FUNCTIONS = {
    "views": (odd_views, [(4, 3), (3, 3), (9, 3)]),
    "mask": (masked, [(4, 3), (1, 3), (7, 3)]),
    "sizes": (lambda x: dt.linspace(0, 1, x.shape[0]) + dt.full((x.shape[0],), x.shape[0] * 1.5)
              + dt.arange(x.shape[0]) + x.shape[0], [(4, 3), (2, 3)]),
    "sorted": (lambda x: x.sort(0, descending=True), [(4, 3), (5, 3)]),
    "resized": (lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
                [(4, 3), (5, 3)]),
    "pooled": (lambda x: F.adaptive_avg_pool1d(x.T[None], 2), [(5, 3), (7, 3)]),
    "mapped": (lambda x: dt.func.vmap(lambda y: y.sum() * y)(x), [(4, 3), (6, 3)]),
    "gradient": (dt.func.grad(lambda y: (y ** 3).sum()), [(4, 3), (2, 3)]),
    "constant": (lambda x: (dt.ones(3), x, [x, None, 3]), [(4, 3), (2, 3)]),
    "identity": (lambda x: dt.eye(x.shape[0]) + x @ x.T, [(4, 3), (1, 3), (6, 3)]),
    "repeated": (lambda x: (dt.repeat_interleave(x, 2, 0), x.repeat_interleave(x.shape[0])),
                 [(4, 3), (1, 3), (6, 3)]),
    "bags": (lambda x: F.embedding_bag((x > 0).long(), dt.arange(4.0).view(2, 2)),
             [(4, 3), (1, 3), (6, 3)]),
    "places": (lambda x: x.index_put((dt.tensor([0, 1]), dt.tensor([2, 0])), dt.ones(2)),
               [(4, 3), (2, 3), (6, 3)]),
    "diagonals": (lambda x: (dt.diag(x @ x.T), (x @ x.T).trace()), [(4, 3), (1, 3), (6, 3)]),
    "windows": (lambda x: x.unfold(0, 2, 1) * 2, [(4, 3), (3, 3), (7, 3)]),
    "spectrum": (lambda x: dt.fft.fft(x, dim=1).abs(), [(4, 3), (2, 3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_any_size(name):
    fn, shapes = FUNCTIONS[name]
    program = dt.export(fn, (drawn(0, *shapes[0]),), dynamic=[{0: "n"}])
    again = reread(program)
    compiled = again.compile()
    for i, shape in enumerate(shapes):
        x = drawn(i, *shape)
        before = x.clone()
        want = fn(x)
        for run in (program, again, compiled):
            assert same(want, run(x))
        assert same(before, x)


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    make, args, _ = CASES[name]
    fn, program = make(), made(name)
    again = reread(program)
    assert str(again) == str(program) and again.examples == program.examples
    for sizes in ((2, 3), (1, 1), (5, 2)):
        want = fn(*args(*sizes))
        assert same(want, program(*args(*sizes))) and same(want, again(*args(*sizes)))
        assert same(want, again.compile()(*args(*sizes)))


def test_a_sequence_like_of_torch():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.BatchNorm1d(4))
    program = dt.export(model, dt.ones(2, 3), dynamic={"input": {0: "batch"}})
    assert model.training and model[1].training
    assert [str(v) for v in (*program.inputs, *program.outputs)] == [
        "input: float32[batch, 3]", "output: float32[batch, 4]"]  # fmt: skip
    assert {n.primitive for n in program.nodes} >= {"linear"} and program.nodes[0].module == "0"
    assert program.parameters == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert program.buffers == ("2.running_var", "2.running_mean")
    assert program.state["0.weight"] is model[0].weight
    assert program.nodes[0].line.startswith("tests/export/test_exporting.py:") or (
        program.nodes[0].line.startswith("test_exporting.py:"))  # fmt: skip
    found = program.run({"input": np.ones((5, 3), np.float32)})
    assert list(found) == ["output"] and found["output"].shape == (5, 4)


def test_training_writes_its_buffers():
    norm = nn.BatchNorm1d(3)
    program = reread(dt.export(norm, (drawn(0, 4, 3),), train=True, dynamic=[{0: "b"}]))
    assert norm.running_mean.tolist() == [0, 0, 0] and int(norm.num_batches_tracked) == 0
    assert {old for old, _ in program.writes} == {
        "running_mean", "running_var", "num_batches_tracked"}  # fmt: skip
    for i in range(3):
        x = drawn(i, 5, 3)
        assert same(norm(x).detach(), program(x).detach())
    program.run({"input": drawn(4, 5, 3).array})
    norm(drawn(4, 5, 3))
    for name, t in norm.named_buffers():
        assert same(t, program.state[name])


def test_what_is_written_and_never_read():
    """(A buffer whose next value alone is computed.)"""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", dt.zeros(3))

        def forward(self, x):
            self.last.copy_(x.sum(0))
            return x * 2

    program = reread(dt.export(Last(), (drawn(0, 4, 3),), dynamic=[{0: "b"}]))
    x = drawn(1, 5, 3)
    assert same(program(x), x * 2) and same(program.state["last"], x.sum(0))
    norm = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
    again = reread(dt.export(norm, (x,), train=True))
    assert same(again(x), norm(x).detach()) or np.allclose(again(x).array, norm(x).array, atol=1e-6)


def test_places_that_a_tensor_says():
    """(A cache of keys and values, written to at the position of a step.)"""

    def step(cache, new, at):
        cache[:, at] = new
        return cache.sum(1)

    args = drawn(0, 2, 6, 4), drawn(1, 2, 4), dt.tensor(3)
    program = reread(dt.export(step, args, dynamic=[{0: "b"}, {0: "b"}, None]))
    for at in (0, 5, -1, -6):
        one, other, new = drawn(2, 3, 6, 4), drawn(2, 3, 6, 4), drawn(3, 3, 4)
        assert same(step(one, new, dt.tensor(at)), program(other, new, dt.tensor(at)))
        assert same(one, other)
    with pytest.raises(DimError, match="index 6 is out of range"):
        program(drawn(2, 3, 6, 4), drawn(3, 3, 4), dt.tensor(6))


class Counter(nn.Module):
    """Puts others in the place of its buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n", dt.zeros(3))

    def forward(self, x):
        old = self.n
        self.n = self.n + 1
        self.last = x * 2
        return x.sum() * self.n, old


@pytest.mark.parametrize("dynamic", [None, [{0: "b"}]])
def test_buffers_that_are_replaced(dynamic):
    module = Counter()
    program = reread(dt.export(module, (drawn(0, 4, 3),), dynamic=dynamic))
    assert module.n.tolist() == [0, 0, 0] and not hasattr(module, "last")
    assert [old for old, _ in program.writes] == ["n"]
    for i in range(3):
        x = drawn(i, 4, 3)
        assert same(module(x), program(x))


def test_tensors_that_are_replaced():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = dt.ones(3)

        def forward(self, x):
            self.n = self.n + 1
            return x * self.n

    with pytest.raises(CaptureError, match="make it a buffer"):
        dt.export(Plain(), drawn(0, 4, 3))
    module = nn.utils.spectral_norm(nn.Linear(3, 4)).eval()
    program = reread(dt.export(module, drawn(0, 4, 3), dynamic=[{0: "b"}]))
    x = drawn(1, 5, 3)
    assert np.allclose(module(x).detach().array, program(x).detach().array, atol=1e-6)


def test_bounds_larger_than_any_memory_are_none():
    """(Indices are compared with the largest number of their type.)"""
    program = reread(dt.export(
        lambda x, i: x[i % x.shape[0]], (drawn(0, 4, 3), dt.tensor([0, 1, 5])),
        dynamic=[{0: "b"}, {0: "n"}],
    ))  # fmt: skip
    assert {d.max for d in program.dims.values()} == {None}


def test_gradients_go_through():
    lstm = nn.LSTM(2, 3)
    program = reread(dt.export(lstm, (drawn(0, 4, 1, 2),)))
    x = drawn(1, 4, 1, 2)
    lstm(x)[0].sum().backward()
    program(x)[0].sum().backward()
    for name, p in lstm.named_parameters():
        assert np.allclose(p.grad.array, program.state[name].grad.array, atol=1e-6)


def test_arguments():
    def fn(x, /, y=None, *rest, k=2, d=None):
        return x * k + (y if y is not None else 0) + sum(rest) + (d["a"].u if d else 0)

    named = {"k": 3, "d": {"a": Pair(dt.ones(2), 1)}}
    one = dt.export(fn, (dt.ones(2), dt.ones(2), dt.ones(2)), named)
    assert [v.name for v in one.inputs] == ["x", "y", "rest_0", "d_a_u"]
    given = dt.ones(2), dt.ones(2), dt.ones(2)
    assert one(*given, k=3, d={"a": Pair(dt.ones(2), 1)}).tolist() == [6, 6]
    with pytest.raises(ValueError, match="k: 4 given; the program was made with 3"):
        one(*given, k=4, d={"a": Pair(dt.ones(2), 1)})
    two = dt.export(fn, (dt.ones(2),), {"y": dt.ones(2)})
    assert two(dt.ones(2), dt.ones(2)).tolist() == two(dt.ones(2), y=dt.ones(2)).tolist() == [3, 3]
    assert dt.export(lambda: dt.ones(3))().tolist() == [1, 1, 1]


class Reader(nn.Module):
    def forward(self, x):
        return x * x.sum().item()


REFUSED = {
    "item": (Reader(), "is read at .*test_exporting.py:.* in forward"),
    "if": (lambda x: x if x.sum().item() > 0 else -x, "is read at .*test_exporting.py"),
    "index": (lambda x: x[x > 0], "is read at"),
    "numpy": (lambda x: dt.tensor(x.numpy()), "is read at"),
    "result": (lambda x: {"a": object()}, "its result\\['a'\\] is a object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    fn, told = REFUSED[name]
    with pytest.raises(CaptureError, match=told):
        dt.export(fn, (dt.ones(3),))


def test_wrong_calls_of_export():
    for wrong, told in (((3,), "int given"), ((lambda x: x, 3), "args=int"), (
            (lambda x: x, (), 3), "kwargs=int")):  # fmt: skip
        with pytest.raises(ConfigError, match=f"export: .*{told}"):
            dt.export(*wrong)
    with pytest.raises(ConfigError, match="given by position and by name"):
        dt.export(lambda x: x, (dt.ones(1),), {"x": dt.ones(1)})
    with pytest.raises(CaptureError, match="the argument 'x' is a object"):
        dt.export(lambda x: x, (object(),))
    with pytest.raises(CaptureError, match="examples on the host"):
        dt.export(lambda x: x, (dt.ones(2, device="meta"),))


def test_inputs_and_state_stay_as_they_were():
    weight, x = dt.ones(3), dt.zeros(3)

    def fn(x):
        weight.mul_(2)
        return x.add_(weight)

    program = reread(dt.export(fn, (x,)))
    assert weight.tolist() == [1, 1, 1] and x.tolist() == [0, 0, 0]
    assert program(x).tolist() == x.tolist() == [2, 2, 2]
    assert dt.initial_seed() == dt.initial_seed()
    state = dt.get_rng_state()
    dt.export(lambda x: x + dt.rand(3), (x,))
    assert dt.equal(state, dt.get_rng_state())


def test_random_numbers_are_those_of_the_process():
    program = reread(dt.export(lambda x: x + dt.rand(3), (dt.zeros(3),)))
    dt.manual_seed(3)
    first = program(dt.zeros(3))
    dt.manual_seed(3)
    assert same(first, dt.rand(3)) and not same(first, program(dt.zeros(3)))


def test_threads_and_second_calls():
    program = made("mixed")
    _, args, _ = CASES["mixed"]
    want = {n: program(*args(n, 2)) for n in (1, 2, 3)}
    wrong: list = []

    def work(n):
        for _ in range(10):
            if not same(want[n], program(*args(n, 2))):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
