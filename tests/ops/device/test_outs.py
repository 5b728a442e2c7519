"""Results on the strict device double that are written to given tensors, and functions that the
host does not have to wait for: the CPU's numbers, without a copy."""

from __future__ import annotations

import pytest

import disttrain as dt
import disttrain.func
import disttrain.nn.functional as F


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("given", [(0,), (3, 2), (7,)])
def test_out_of_another_shape_is_resized_where_it_lies(double, shape, given):
    out = dt.empty(given, device="cuda")
    x = dt.full(shape, 2.0, device="cuda")
    if out.numel() and tuple(out.shape) != shape:
        with pytest.warns(UserWarning, match="resized"):
            assert dt.neg(x, out=out) is out
    else:
        assert dt.neg(x, out=out) is out
    assert out.is_cuda and out.cpu().equal(dt.neg(x.cpu()))


def test_out_that_is_resized_keeps_its_storage(double):
    for device in ("cpu", "cuda"):
        base = dt.zeros(6, device=device)
        part = base[1:2]
        with pytest.warns(UserWarning, match="resized"):
            dt.add(dt.ones(4, device=device), 1, out=part)
        assert base.tolist() == [0, 2, 2, 2, 2, 0]


def test_factories_make_their_numbers_where_out_lies(double):
    out = dt.empty(0, dtype=dt.int64, device="cuda")
    assert dt.arange(4, out=out).is_cuda and out.tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="same device"):
        dt.add(dt.ones(3), 1, out=dt.empty(3, device="cuda"))


def _bags(x, mode):
    numbers, starts = dt.tensor([1, 2, 0, 2]), dt.tensor([0, 1, 1])
    numbers, starts = (t.to(x.device, copy=True) for t in (numbers, starts))
    return lambda: F.embedding_bag(numbers, x, starts, mode=mode, padding_idx=2)


def _repeats(x):
    times = dt.tensor([2, 0, 1], device=x.device)
    return lambda: dt.repeat_interleave(x, times, 0, output_size=3)


def _scatter(x):
    index = dt.tensor([[0, 2], [1, 1]], device=x.device)
    return lambda: x.scatter(0, index, 2.5, reduce="add")


CALLS = {
    "isclose": lambda x: lambda: dt.isclose(x, x[0]),
    "bag sum": lambda x: _bags(x, "sum"),
    "bag mean": lambda x: _bags(x, "mean"),
    "bag max": lambda x: _bags(x, "max"),
    "repeated": lambda x: lambda: x.repeat_interleave(2, 1),
    "repeated so often": _repeats,
    "scatter": _scatter,
    "diagonal": lambda x: lambda: x.clone().fill_diagonal_(3),
    "svd": lambda x: lambda: dt.linalg.svd(x)[1],
}


@pytest.mark.parametrize("name", CALLS)
def test_host_does_not_wait(double, name):
    x = dt.tensor([[1.0, -2.0], [3.0, 0.5], [0.25, 1.0]])
    want, call = CALLS[name](x)(), CALLS[name](x.to("cuda"))
    with double.quiet():
        got = call()
    assert got.is_cuda and dt.allclose(got.cpu().double(), want.double(), atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (0, 2), (2, 3, 2)])
def test_all_singular_vectors(double, shape):
    a = dt.arange(dt.Size(shape).numel(), dtype=dt.float64).reshape(shape)
    u, s, vh = (t.cpu() for t in dt.linalg.svd(a.to("cuda")))
    k, (m, n) = s.shape[-1], shape[-2:]
    assert u.shape[-2:] == (m, m) and vh.shape[-2:] == (n, n)
    assert dt.allclose((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, atol=1e-12)
    assert dt.allclose(u.mT @ u, dt.eye(m, dtype=dt.float64), atol=1e-12)


def test_half_quotients_are_rounded_before_they_are_truncated(double):
    a, b = (dt.linspace(*ends, 501).to(dt.bfloat16) for ends in ((-9, 9), (2, -3)))
    want = dt.div(a, b, rounding_mode="trunc")
    assert dt.div(a.to("cuda"), b.to("cuda"), rounding_mode="trunc").cpu().equal(want)


def test_logsumexp_of_complex_numbers_has_an_angle(double):
    x = dt.tensor([[1 + 2j, 3 - 100j], [2 - 5j, 7 + 1j]])
    want = dt.exp(x.to(dt.complex128)).sum(1).log()
    for device in ("cpu", "cuda"):
        got = dt.logsumexp(x.to(device), 1).cpu()
        assert dt.allclose(got.to(dt.complex128), want, atol=1e-5)


def test_closeness_of_two_numbers_is_a_tensor():
    assert dt.isclose(dt.tensor(1.0), dt.tensor(1.0)).numpy() == True  # noqa: E712


def test_type_as_goes_where_the_other_lies(double):
    other = dt.ones(2, dtype=dt.float64, device="cuda:1")
    assert dt.ones(3).type_as(other).device == other.device


def test_tensors_are_made_anew_on_the_default_device(double):
    here, there = dt.ones(2), dt.ones(2, device="cuda:0")
    with dt.device("cuda:1"):
        made = [make(t) for make in (dt.tensor, dt.as_tensor) for t in (here, there)]
    assert [str(t.device) for t in made] == ["cuda:1"] * 4
    assert dt.as_tensor(here) is here and dt.as_tensor(there) is there


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_indices_below_zero_are_taken_along_from_the_end(double, device):
    x, index = dt.arange(6.0, device=device).reshape(2, 3), dt.tensor([[-1, 0], [1, -2]])
    index = index.to(device)
    want = [[2.0, 0.0], [4.0, 4.0]]
    assert dt.take_along_dim(x, index, 1).tolist() == want
    of_rows = dt.func.vmap(lambda a, i: dt.take_along_dim(a, i, 0))
    assert of_rows(x, index).tolist() == want


def test_filling_what_is_recorded_sends_nothing(double):
    x = dt.ones(3, device="cuda", requires_grad=True)
    with double.quiet():
        y = x * 2
        y[0].fill_(3)
        y[1].zero_()
    assert y.tolist() == [3, 0, 2]
