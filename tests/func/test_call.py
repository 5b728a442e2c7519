"""grad, vjp, jvp, vmap and functional_call: their arguments, results and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import errors, func, ops
from disttrain.core import wrap
from disttrain.core.grad_mode import no_grad

A = np.arange(12.0).reshape(3, 4)


def close(got, want):
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9, atol=1e-12)


def test_grad_of_trees_and_argnums_and_aux():
    def loss(p, x, scale=1.0):
        value = ((p["w"] * x).sum() + p["b"] * 3) * scale
        return value, {"seen": p["b"] * 2}

    p = {"w": wrap(A[0]), "b": wrap(np.array(5.0))}
    (gp, gx), aux = func.grad(loss, argnums=(0, 1), has_aux=True)(p, wrap(A[1]), scale=2.0)
    close(gp["w"], 2 * A[1])
    close(gp["b"], 6.0)
    close(gx, 2 * A[0])
    close(aux["seen"], 10.0)
    assert not aux["seen"].requires_grad
    value, grads = func.value_and_grad(lambda x: (x * x).sum())(wrap(A))
    close(value, (A * A).sum())
    close(grads, 2 * A)


def test_an_unused_input_has_a_zero_gradient():
    close(func.grad(lambda x: wrap(np.array(1.0)))(wrap(A)), np.zeros_like(A))
    got = func.grad(lambda x, y: (x * 2).sum(), argnums=(0, 1))(wrap(A), wrap(A))
    close(got[1], np.zeros_like(A))


def test_grad_works_under_no_grad_and_leaves_the_mode_alone():
    x = wrap(A.copy()).requires_grad_()
    with no_grad():
        got = func.grad(lambda x: (x * x).sum())(x)
    close(got, 2 * A)
    assert not got.requires_grad and x.grad is None


def test_vjp_and_jvp_of_trees():
    out, pull = func.vjp(lambda d: {"s": d["a"] + d["b"], "p": d["a"] * d["b"]},
                         {"a": wrap(A), "b": wrap(A + 1)})  # fmt: skip
    (g,) = pull({"s": wrap(np.ones_like(A)), "p": wrap(np.ones_like(A))})
    close(out["p"], A * (A + 1))
    close(g["a"], A + 2)
    again = pull({"s": wrap(np.ones_like(A)), "p": wrap(np.zeros_like(A))})
    close(again[0]["b"], np.ones_like(A))
    out, moved = func.jvp(lambda x, y: (x * y, x), (wrap(A), wrap(A)), (wrap(A), wrap(A * 0)))
    close(moved[0], A * A)
    close(moved[1], A)


def test_jacobians_of_two_arguments_and_of_trees():
    x, y = wrap(A[0]), wrap(A[1])
    for jac in (func.jacrev, func.jacfwd):
        jx, jy = jac(lambda x, y: x * y + x.sum(), argnums=(0, 1))(x, y)
        close(jx, np.diag(A[1]) + 1)
        close(jy, np.diag(A[0]))
        both = jac(lambda x: {"d": x * 2, "s": x.sum()})(x)
        close(both["d"], 2 * np.eye(4))
        close(both["s"], np.ones(4))


def test_vmap_dims():
    x, y = wrap(A), wrap(A.T.copy())
    close(func.vmap(lambda a, b: a * b, in_dims=(0, 1))(x, y), A * A)
    close(func.vmap(lambda a: a * 2, in_dims=1, out_dims=-1)(x), 2 * A)
    close(func.vmap(lambda a: a * 2, in_dims=-1)(x), 2 * A.T)
    got = func.vmap(lambda p, c: p["u"] + c, in_dims=({"u": 0, "v": None}, None))(
        {"u": x, "v": y}, wrap(np.array(1.0))
    )
    close(got, A + 1)
    one, two = func.vmap(lambda a: (a, {"s": a.sum()}), out_dims=(1, {"s": 0}))(x)
    close(one, A.T)
    close(two["s"], A.sum(1))
    constant = func.vmap(lambda a: wrap(np.array(3.0)))(x)
    close(constant, np.full(3, 3.0))


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_chunks_are_the_whole(chunk):
    close(func.vmap(lambda a: a.cumsum(0), chunk_size=chunk)(wrap(A)), A.cumsum(1))
    close(func.vmap(lambda a: a * 2, out_dims=1, chunk_size=chunk)(wrap(A)), 2 * A.T)


def test_vmap_refusals():
    x = wrap(A)
    with pytest.raises(errors.ConfigError, match="one entry for each"):
        func.vmap(lambda a, b: a, in_dims=(0,))(x, x)
    with pytest.raises(errors.ShapeError, match="have the same size in the mapped"):
        func.vmap(lambda a, b: a, in_dims=(0, 1))(x, x)
    with pytest.raises(errors.ConfigError, match="at least one"):
        func.vmap(lambda a: a, in_dims=(None,))(x)
    with pytest.raises(errors.ShapeError, match="no dimension 2"):
        func.vmap(lambda a: a, in_dims=2)(x)
    with pytest.raises(errors.ConfigError, match="depends on the batch"):
        func.vmap(lambda a: a, out_dims=None)(x)
    with pytest.raises(errors.ConfigError, match="structure"):
        func.vmap(lambda a: (a, a), out_dims=(0, 0, 0))(x)
    with pytest.raises(errors.CaptureError, match="such as"):
        func.vmap(lambda a: a if a.sum() > 0 else -a)(x)
    with pytest.raises(errors.AutogradError, match="scalar"):
        func.grad(lambda a: a * 2)(x)


def test_a_value_kept_from_a_finished_transform_is_refused():
    kept = []
    func.vmap(lambda a: kept.append(a * 2) or a)(wrap(A))
    with pytest.raises(errors.CaptureError, match="after the transform returned"):
        kept[0] + 1


def test_randomness():
    def noisy(a):
        return a * 0 + ops.rand(4, dtype=dt.float64)

    x = wrap(A)
    with pytest.raises(errors.CaptureError, match="randomness"):
        func.vmap(noisy)(x)
    same = func.vmap(noisy, randomness="same")(x).numpy()
    assert (same == same[0]).all()
    different = func.vmap(noisy, randomness="different")(x).numpy()
    assert len(np.unique(different)) == 12
    ones = wrap(np.ones((3, 64)))
    kept = func.vmap(lambda a: ops.dropout(a, 0.5, True), randomness="same")(ones).numpy()
    assert (kept == kept[0]).all() and 0 < (kept == 0).sum() < kept.size
    kept = func.vmap(lambda a: ops.dropout(a, 0.5, True), randomness="different")(ones).numpy()
    assert (kept != kept[0]).any()


def test_in_place_operations_on_values_of_a_transform():
    def steps(a):
        h = a * 2
        h.add_(1).mul_(a)
        h += a
        return h

    want = (A * 2 + 1) * A + A
    close(func.vmap(steps)(wrap(A)), want)
    close(func.grad(lambda x: func.vmap(steps)(x).sum())(wrap(A)), 4 * A + 2)
    close(func.jvp(steps, (wrap(A),), (wrap(A),))[1], (4 * A + 2) * A)

    def through_a_view(a):
        h = a * 2
        h.reshape(2, 2).add_(1)
        return h

    close(func.vmap(through_a_view)(wrap(A)), A * 2 + 1)
    outside = wrap(np.zeros(4))
    with pytest.raises(errors.CaptureError, match="from outside"):
        func.vmap(lambda a: outside.add_(a))(wrap(A))


class Tied(dt.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = dt.nn.Linear(1, 1, bias=False)
        self.same = self.inner.weight
        self.register_buffer("shift", wrap(np.ones(1, "f4")))

    def forward(self, x):
        self.shift = self.shift + 1
        return self.inner(x) * self.same[0] + self.shift


def number(x):
    return wrap(np.full((1, 1), x, "f4"))


def test_functional_call_ties_what_the_module_ties():
    net, x = Tied(), wrap(np.ones((1, 1), "f4"))
    own = net.inner.weight.item()
    assert func.functional_call(net, {"inner.weight": number(3.0)}, x).item() == 9.0 + 2.0
    assert net.shift.item() == 2.0  # not named, so what the call assigns stays
    out = func.functional_call(net, {"same": number(3.0)}, x, tie_weights=False)
    assert math.isclose(out.item(), 3.0 * own + 3.0, rel_tol=1e-6)
    assert net.inner.weight is net.same
    with pytest.raises(
        errors.ConfigError, match=r"multiple values for keys \['inner.weight', 'same"
    ):
        func.functional_call(net, {"inner.weight": number(1.0), "same": number(2.0)}, x)


def test_functional_call_gives_back_what_was_assigned():
    net, given = Tied(), {"shift": wrap(np.zeros(1, "f4"))}
    func.functional_call(net, given, wrap(np.ones((1, 1), "f4")))
    assert given["shift"].item() == 1.0 and net.shift.item() == 1.0


def test_functional_call_lets_names_come_and_go():
    class Open(dt.nn.Module):
        def forward(self, x, *, y=0.0):
            return x + self.extra + y

    net, x = Open(), wrap(np.ones(()))
    assert func.functional_call(net, {"extra": x}, kwargs={"x": x, "y": 3.0}).item() == 5.0
    assert not hasattr(net, "extra")
    none = dt.nn.Linear(1, 1)
    out = func.functional_call(none, {"weight": number(2.0), "bias": None}, number(4.0))
    assert out.item() == 8.0 and none.bias is not None


def test_functional_call_checks_names_when_strict():
    net, x = Tied(), wrap(np.ones((1, 1), "f4"))
    everything = {"inner.weight": number(1.0), "shift": wrap(np.zeros(1, "f4"))}
    func.functional_call(net, everything, x, strict=True)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): 'same'\."):
        func.functional_call(net, everything, x, strict=True, tie_weights=False)
    with pytest.raises(RuntimeError, match=r"Unexpected key\(s\): 'no'\.\s+Missing key\(s\): 'sh"):
        func.functional_call(net, {"inner.weight": number(1.0), "no": x}, x, strict=True)


def test_functional_call_of_several_dicts():
    net, x = Tied(), wrap(np.ones((1, 1), "f4"))
    dicts = ({"inner.weight": number(2.0)}, {"shift": wrap(np.zeros(1, "f4"))})
    assert func.functional_call(net, dicts, x).item() == 5.0
    with pytest.raises(errors.ConfigError, match="appeared in multiple dictionaries"):
        func.functional_call(net, (dicts[0], dicts[0]), x)
    with pytest.raises(errors.ConfigError, match="to be a dict, or a list/tuple of dicts"):
        func.functional_call(net, 3, x)


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"inner.weight": 3}, TypeError, "is not an instance of torch.Tensor"),
        ({"training": number(1.0)}, TypeError, "attribute `training`: True is not an instance"),
        ({"nowhere.weight": number(1.0)}, AttributeError, "Tied has no attribute `nowhere`"),
    ],
)
def test_functional_call_leaves_the_module_alone_when_it_fails(given, error, text):
    net = Tied()
    before = dict(net.named_parameters())
    values = {"shift": wrap(np.zeros(1, "f4")), **given}
    with pytest.raises(error, match=text):
        func.functional_call(net, values, number(1.0))
    assert dict(net.named_parameters()) == before and net.shift.item() == 1.0 and net.training


def test_functional_call_under_its_older_name():
    net = dt.nn.Linear(1, 1, bias=False)
    with pytest.warns(FutureWarning, match=r"Please use `torch\.func\.functional_call`"):
        out = dt.nn.utils.stateless.functional_call(net, {"weight": number(2.0)}, number(3.0))
    assert out.item() == 6.0


def test_functional_call_and_per_sample_gradients():
    net = dt.nn.Sequential(dt.nn.Linear(4, 3), dt.nn.Tanh(), dt.nn.Linear(3, 1)).double()
    params = {k: v.detach() for k, v in net.named_parameters()}
    x = wrap(np.random.default_rng(0).normal(size=(5, 4)))

    def loss(p, row):
        return (func.functional_call(net, p, (row,)) ** 2).sum()

    per = func.vmap(func.grad(loss), in_dims=(None, 0))(params, x)
    for i in range(5):
        net.zero_grad()
        (net(x[i]) ** 2).sum().backward()
        for k, v in net.named_parameters():
            np.testing.assert_allclose(per[k][i].numpy(), v.grad.numpy(), rtol=1e-9, atol=1e-12)
    before = {k: id(v) for k, v in net.named_parameters()}
    zeros = {k: v * 0 for k, v in params.items()}
    close(func.functional_call(net, zeros, (x,)), np.zeros((5, 1)))
    assert before == {k: id(v) for k, v in net.named_parameters()}


@pytest.mark.parametrize(
    "fn", [ops.exp, lambda z: z * z / (z + 2), lambda z: z.abs(), lambda z: z.conj() * z]
)
def test_jvp_of_complex_functions(fn):
    rng = np.random.default_rng(5)
    z, t = (rng.normal(size=3) + 1j * rng.normal(size=3) for _ in range(2))
    got = func.jvp(fn, (wrap(z),), (wrap(t),))[1].numpy()
    want = (fn(wrap(z + 1e-6 * t)).numpy() - fn(wrap(z - 1e-6 * t)).numpy()) / 2e-6
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_writing_by_index_inside_a_transform():
    def steps(a):
        h = a * 2
        h[0] = a[1]
        h[1:3] = a[:2] * a[1]
        return h

    rows = [steps(wrap(r)).numpy() for r in A]
    close(func.vmap(steps)(wrap(A)), rows)
    x = A[1]
    want = [x[1], 1 + x[0] + 2 * x[1], 0, 2]
    close(func.grad(lambda a: steps(a).sum())(wrap(x)), want)


def test_vmap_in_chunks_draws_the_same_numbers_in_all():
    x = dt.zeros(6, 3)
    same = func.vmap(lambda r: r + dt.randn(3), chunk_size=2, randomness="same")(x)
    assert all((row == same[0]).all() for row in same)
    other = func.vmap(lambda r: r + dt.randn(3), chunk_size=2, randomness="different")(x)
    assert len({tuple(row.tolist()) for row in other}) == 6
    dt.manual_seed(3)
    whole = func.vmap(lambda r: r + dt.randn(3), randomness="same")(x)
    dt.manual_seed(3)
    assert (func.vmap(lambda r: r + dt.randn(3), chunk_size=4, randomness="same")(x) == whole).all()


def test_derivatives_of_derivatives_have_both_shapes():
    x = dt.tensor([1.0, 2.0, 3.0])
    assert func.jacfwd(func.grad(lambda v: (v**3).sum()))(x).tolist() == [
        [6, 0, 0], [0, 12, 0], [0, 0, 18]
    ]  # fmt: skip
    assert func.jacfwd(func.grad(lambda v: v**3))(x[1]).shape == ()
    assert func.hessian(lambda v: v.sum() ** 3)(dt.ones(2, 2)).shape == (2, 2, 2, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.new_zeros(2), lambda x: x.new_ones(2) - 1, lambda x: x.new_full((2,), 0.0),
        lambda x: x.new_tensor([0.0, 0.0]), lambda x: x.new_empty(2).zero_(), dt.zeros_like,
    ],
)  # fmt: skip
def test_tensors_made_beside_values_of_vmap_can_be_written_to(make):
    def run(x):
        out = make(x)
        out[0] = x[0]
        return out.add_(x)

    x = dt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert dt.func.vmap(run)(x).tolist() == [[2.0, 2.0], [6.0, 4.0]]


def test_vjp_without_grad_can_be_pulled_back_with_it():
    x = dt.tensor([1.0, 2.0], requires_grad=True)
    with dt.no_grad():
        out, pull = dt.func.vjp(lambda t: t.sin(), x)
        assert not out.requires_grad and not pull(dt.ones(2))[0].requires_grad
    (g,) = pull(dt.ones(2))
    g.sum().backward()
    assert dt.allclose(x.grad, -x.detach().sin())

    def inner(t):
        with dt.no_grad():
            _, pull = dt.func.vjp(lambda s: s.sin(), t)
        return pull(dt.ones(2))[0].sum()

    assert dt.allclose(dt.func.grad(inner)(x.detach()), -x.detach().sin())


@pytest.mark.parametrize("chunk", [None, 2])
def test_writes_to_arguments_of_vmap_reach_them(chunk):
    def write(x):
        x[0] = 5.0
        return x.mul_(2).sum()

    x = dt.ones(3, 2)
    assert dt.func.vmap(write, chunk_size=chunk)(x).tolist() == [12.0] * 3
    assert x.tolist() == [[10.0, 2.0]] * 3
    y = dt.ones(2, 3)
    dt.func.vmap(dt.Tensor.add_, in_dims=(1, 0))(y, dt.tensor([1.0, 2.0, 3.0]))
    assert y.tolist() == [[2.0, 3.0, 4.0]] * 2
    z = dt.ones(4, 3, 2)
    dt.func.vmap(dt.func.vmap(lambda t: t.add_(1)))(z)
    assert (z == 2).all()


def test_gradients_go_through_writes_to_arguments_of_vmap():
    x = dt.ones(3, 2, requires_grad=True)
    y = x * 1
    dt.func.vmap(lambda t: t.mul_(2))(y)
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0]] * 3
    with pytest.raises(errors.AutogradError, match="leaf"):
        dt.func.vmap(lambda t: t.mul_(2))(x)


def test_vmap_refuses_what_it_cannot_mean():
    p = dt.full((3, 2), 0.5)
    for draw in (dt.bernoulli, lambda t: dt.multinomial(t, 1)):
        with pytest.raises(errors.CaptureError, match="same randomness with a batched"):
            dt.func.vmap(draw, randomness="same")(p)
    with pytest.raises(errors.CaptureError, match="`data` under vmap"):
        dt.func.vmap(lambda t: t.data * 2)(p)


def test_a_batched_tensor_has_the_method_take():
    x, places = wrap(A), dt.tensor([0, 2])
    np.testing.assert_array_equal(func.vmap(lambda row: row.take(places))(x).numpy(), A[:, [0, 2]])
