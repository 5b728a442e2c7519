"""What sparse tensors have is what dense ones have, derivatives too; the rest is refused."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.autograd import gradcheck, gradgradcheck

PLACES = [[0, 1, 1, 0, 2], [2, 0, 2, 2, 1]]  # one of them twice


def numbers(*shape, seed=0):
    dt.manual_seed(seed)
    return dt.randn(*shape, dtype=dt.float64)


def sparse(values, layout=dt.sparse_coo):
    x = dt.sparse_coo_tensor(PLACES, values, (3, 3, *values.shape[1:]))
    return x if layout == "sparse_coo" else x.to_sparse(layout=layout)


def dense(x):
    return x.to_dense() if x.layout != "strided" else x


FORMS = {
    "mm": lambda x, d: x @ d,
    "mv": lambda x, d: dt.mv(x, d[:, 0]),
    "dense_first": lambda x, d: d.t() @ x,
    "two_sparse": lambda x, d: x @ x.t(),
    "addmm": lambda x, d: dt.addmm(d, x, d, beta=2, alpha=3),
    "linear": lambda x, d: dt.nn.functional.linear(x, d.t(), d[0]),
    "times_dense": lambda x, d: x * d[:, :3],
    "times_rows": lambda x, d: x * d[:, :1],
    "times_columns": lambda x, d: d[0, :3] * x,
    "times_itself": lambda x, d: x * x.sin(),
    "times_a_number": lambda x, d: -(x * 3.0) / 2 + x * dt.tensor(2.0, dtype=dt.float64),
    "dense_and_sparse": lambda x, d: d[:, :3] + x - 2 * x,
    "sums": lambda x, d: dt.add(x, x * 2, alpha=3) - x.square(),
    "sum": lambda x, d: x.sum() * x,
    "squares": lambda x, d: x**2 + x.pow(3) + x.abs().tanh(),
    "norm": lambda x, d: x.square().sum().sqrt(),
}
OF_COORDINATES = {
    "sum_of_columns": lambda x, d: x.sum(0),
    "kept": lambda x, d: x.sum(1, keepdim=True),
    "index_select": lambda x, d: x.index_select(1, dt.tensor([2, 0, 2])),
    "cat": lambda x, d: dt.cat([x, x * 2], 1),
    "stack": lambda x, d: dt.stack([x, x * 2]),
    "bmm": lambda x, d: dt.bmm(dt.stack([x, x * 2]), dt.stack([d, d])),
    "row": lambda x, d: x[1],
    "element": lambda x, d: x[0, 2],
    "slices": lambda x, d: x[:2, 1:],
    "unsqueeze": lambda x, d: x.unsqueeze(1).squeeze(1),
    "permuted": lambda x, d: x.unsqueeze(0).permute(2, 0, 1),
}
CASES = [
    *((layout, name, f) for layout in (dt.sparse_coo, dt.sparse_csr, dt.sparse_csc)
      for name, f in FORMS.items()),
    *((dt.sparse_coo, name, f) for name, f in OF_COORDINATES.items()),
]  # fmt: skip


@pytest.mark.parametrize("layout, name, form", CASES, ids=[f"{c[0]!s}-{c[1]}" for c in CASES])
def test_as_the_dense_tensor(layout, name, form):
    values, d = numbers(5), numbers(3, 4, seed=1)
    values.requires_grad_()
    d.requires_grad_()
    got = form(sparse(values, layout), d)
    want = form(sparse(values).to_dense(), d)
    assert got.shape == want.shape and got.dtype is want.dtype
    assert (dense(got) - want).abs().max().item() < 1e-12
    assert gradcheck(lambda v, d: dense(form(sparse(v, layout), d)), (values, d))
    assert gradgradcheck(lambda v, d: dense(form(sparse(v, layout), d)), (values, d))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.exp(), lambda x: x > 0, lambda x: x.mean(), lambda x: dt.softmax(x, 1),
        lambda x: 2 / x, lambda x: x.cumsum(0), lambda x: x.fill_(1.0), lambda x: x.equal(x),
        lambda x: dt.ones_like(x), lambda x: x.nonzero(), lambda x: x.inverse(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("layout", [dt.sparse_coo, dt.sparse_csr])
def test_what_would_be_dense_is_refused(call, layout):
    with pytest.raises(NotImplementedError):
        call(sparse(numbers(5), layout))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: x + 1, "Use add"),
        (lambda x: x + dt.ones(3, 3), "Use add"),
        (lambda x: x - dt.ones(3, 3), "Use add"),
        (lambda x: x / dt.ones(3, 3), "Sparse division requires a scalar"),
        (lambda x: x.reshape(9), "reshape is not implemented"),
        (lambda x: x.expand(2, 3, 3), "expand is unsupported"),
        (lambda x: x @ dt.ones(2, 2, dtype=dt.float64), "inner sizes"),
        (lambda x: x @ dt.ones(3, 3), "same dtype"),
        (lambda x: x + dt.eye(2).to_sparse(), "same size"),
        (lambda x: x * dt.ones(2, 2), "broadcast"),
        (lambda x: dt.cat([x, dt.ones(3, 3)]), "Concatenating sparse tensors"),
        (lambda x: x**0, "power of 0"),
        (lambda x: x.numpy(), "to_dense"),
        (lambda x: x.tolist(), "doesn't have storage"),
        (lambda x: x.item(), "cannot be converted to Scalar"),
    ],
)
def test_errors_say_what_to_do(call, text):
    with pytest.raises((RuntimeError, TypeError), match=text):
        call(sparse(numbers(5)))


def test_a_capture_has_values_as_inputs_and_places_as_constants():
    x, d = sparse(numbers(5)).coalesce(), numbers(3, 4)
    step = dt.compile(lambda x, d: (x @ d).sum())
    for k in range(4):
        assert step(x * k, d).item() == (x * k @ d).sum().item()
    assert len(step.graphs) == 1 and "sparse_product" in str(step.graphs[0])
    other = dt.sparse_coo_tensor([[0], [0]], numbers(1), (3, 3))
    assert step(other, d).item() == (other @ d).sum().item()


def test_a_captured_module_sees_another_matrix():
    class Convolution(dt.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = dt.nn.Linear(4, 2).double()
            self.register_buffer("adj", sparse(numbers(5)).coalesce())

        def forward(self, x):
            return self.adj @ self.linear(x)

    net, d = Convolution(), numbers(3, 4)
    fast = dt.compile(net)
    for k in range(5):
        if k == 3:
            net.adj = dt.sparse_coo_tensor([[0], [0]], numbers(1), (3, 3))
        if k == 4:
            net.adj.mul_(2)
        assert fast(d * k).tolist() == net(d * k).tolist()


def test_under_transforms():
    d, v = numbers(3, 4), numbers(2, 5)
    batched = dt.func.vmap(lambda v: sparse(v) @ d)(v)
    assert (batched[1] - sparse(v[1]) @ d).abs().max().item() < 1e-12
    _, tangent = dt.func.jvp(lambda v: sparse(v) @ d, (v[0],), (v[1],))
    assert (tangent - sparse(v[1]) @ d).abs().max().item() < 1e-12
    both = dt.func.vmap(lambda v, d: dt.sparse.sampled_addmm(
        sparse(v).to_sparse_csr(), d, d.t()).values())(v, dt.stack([d, d * 2]))  # fmt: skip
    one = dt.sparse.sampled_addmm(sparse(v[1]).to_sparse_csr(), d * 2, d.t() * 2).values()
    assert (both[1] - one).abs().max().item() < 1e-12
