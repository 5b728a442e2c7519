"""Sparse tensors and gradients on devices: what the host gives, with values that stay there."""

import pytest

import disttrain as dt
from disttrain import nn


def same(a, b):
    assert a.is_cuda and a.dtype is b.dtype and tuple(a.shape) == tuple(b.shape)
    assert a.tolist() == b.tolist()


def trained(name, device, **options):
    dt.manual_seed(0)
    table = nn.Embedding(6, 3, sparse=True, padding_idx=2)
    with dt.no_grad():
        table.weight.copy_(dt.arange(18.0).reshape(6, 3) / 7)
    table.to(device)
    update = getattr(dt.optim, name)(table.parameters(), lr=0.1, **options)
    for step in range(3):
        update.zero_grad()
        rows = dt.tensor([[step, 4, 4], [2, 5, step]]).to(device)
        (table(rows) ** 2).sum().backward()
        assert table.weight.grad.is_sparse and table.weight.grad.device == table.weight.device
        nn.utils.clip_grad_norm_(table.parameters(), 20.0)
        update.step()
    return table.weight


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {}), ("SGD", {"momentum": 0.5}), ("SGD", {"maximize": True}), ("Adagrad", {}),
     ("SparseAdam", {})],
)  # fmt: skip
def test_optimizers(double, name, options):
    here, there = trained(name, "cpu", **options), trained(name, "cuda", **options)
    assert there.is_cuda and there.grad.is_sparse
    assert dt.allclose(there.cpu(), here, atol=1e-6)
    a, b = there.grad.coalesce(), here.grad.coalesce()
    same(a.indices(), b.indices())
    assert dt.allclose(a.values().cpu(), b.values(), atol=1e-5) and a.values().is_cuda


def test_tensors(double):
    made = []
    for device in ("cuda", "cpu"):
        places = dt.tensor([[1, 0, 1], [2, 0, 2]], device=device)
        values = dt.tensor([3.0, 4.0, 5.0], device=device)
        x = dt.sparse_coo_tensor(places, values, (2, 3))
        many = dt.sparse_coo_tensor([[0, 2, 0]], dt.ones(3, 2, device=device), (3, 2))
        back = x.to_dense().to_sparse()
        listed = dt.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), device=device)
        none = dt.sparse_coo_tensor(size=(2, 2), device=device)
        x.mul_(2.0)
        one = x.coalesce()
        made.append([
            one.indices(), one.values(), x.to_dense(), x @ dt.ones(3, 2, device=device),
            many.coalesce().values(), many.to_dense(), back.indices(), back.values(),
            many.to_dense().to_sparse(1).values(), listed.to_dense(), none.to_dense(),
            x._indices(), x._values(),
        ])  # fmt: skip
        assert x.device.type == device and not dt.sparse_coo_tensor([[0]], [1.0])._node
    for a, b in zip(*made, strict=True):
        same(a, b)


def test_a_gradient_with_other_rows_is_dense(double):
    weight = dt.ones(4, 2, device="cuda", requires_grad=True)
    rows = dt.tensor([1, 3], device="cuda")
    out = nn.functional.embedding(rows, weight, sparse=True).sum() + weight[0].sum()
    out.backward()
    assert not weight.grad.is_sparse
    assert weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
