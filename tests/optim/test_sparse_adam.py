"""Updates by gradients with few rows."""

import copy

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn, optim
from disttrain.core import wrap
from disttrain.errors import ConfigError

PLACES = [[[0, 2, 0], [1, 1, 1]], [[3], [0]], [[1, 3], [2, 0]]]


def gradient(k):
    places = np.array(PLACES[k])
    values = np.random.default_rng(k).standard_normal(places.shape[1])
    return dt.sparse_coo_tensor(places, values, (4, 3))


def start():
    return wrap(np.random.default_rng(9).standard_normal((4, 3))).requires_grad_()


@pytest.mark.parametrize("maximize", [False, True])
def test_only_named_places_move_and_remember(maximize):
    p = start()
    opt = optim.SparseAdam([p], lr=0.1, betas=(0.8, 0.9), maximize=maximize)
    want, m, v = p.array.copy(), np.zeros((4, 3)), np.zeros((4, 3))
    for t in range(1, 4):
        p.grad = gradient(t - 1)
        at = tuple(p.grad.coalesce().indices().array)
        g = -p.grad.coalesce().values().array if maximize else p.grad.coalesce().values().array
        m[at] = 0.8 * m[at] + 0.2 * g
        v[at] = 0.9 * v[at] + 0.1 * g * g
        size = 0.1 * np.sqrt(1 - 0.9**t) / (1 - 0.8**t)
        want[at] -= size * m[at] / (np.sqrt(v[at]) + 1e-8)
        opt.step()
    np.testing.assert_allclose(p.array, want, rtol=1e-12)
    np.testing.assert_allclose(opt.state[p]["exp_avg"].array, m, rtol=1e-12)
    assert opt.state[p]["step"] == 3
    p.grad = dt.sparse_coo_tensor(np.zeros((2, 0)), np.zeros(0), (4, 3))
    opt.step()
    np.testing.assert_allclose(p.array, want, rtol=1e-12)


def test_its_state_goes_through_a_state_dict():
    p, q = start(), start()
    first, second = optim.SparseAdam([p]), optim.SparseAdam([q])
    p.grad = gradient(0)
    first.step()
    with dt.no_grad():
        q.copy_(p)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for x, opt in ((p, first), (q, second)):
        x.grad = gradient(1)
        opt.step()
    np.testing.assert_array_equal(p.array, q.array)


@pytest.mark.parametrize(
    "kind, args",
    [
        (optim.SGD, {"lr": 0.1}),
        (optim.SGD, {"lr": 0.1, "momentum": 0.9, "maximize": True}),
        (optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
        (optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    ],
)
def test_sgd_and_adagrad_do_what_they_do_with_the_dense_gradient(kind, args):
    p, q = start(), start()
    sparse, dense = kind([p], **args), kind([q], **args)
    for k in range(3):
        p.grad, q.grad = gradient(k), gradient(k).to_dense()
        sparse.step()
        dense.step()
    np.testing.assert_allclose(p.array, q.array, rtol=1e-12)


def test_refusals():
    p = start()
    p.grad = wrap(np.ones((4, 3)))
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        optim.SparseAdam([p]).step()
    p.grad = gradient(0)
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients"):
        optim.Adam([p]).step()
    with pytest.raises(RuntimeError, match="not compatible with sparse gradients"):
        optim.Adagrad([p], weight_decay=0.1).step()
    with pytest.raises(ConfigError, match="requires dense parameter tensors"):
        optim.SparseAdam([gradient(0)])
    with pytest.raises(ConfigError, match="does not support complex"):
        optim.SparseAdam([wrap(np.ones(2, "c8"))])
    with pytest.raises(ConfigError, match="Invalid learning rate: 0"):
        optim.SparseAdam([p], lr=0.0)


def test_an_embedding_is_trained_by_the_rows_it_was_asked_for():
    dt.manual_seed(0)
    net = nn.Embedding(5, 3, padding_idx=0, sparse=True)
    before = net.weight.detach().numpy().copy()
    opt = optim.SparseAdam(net.parameters(), lr=0.1)
    net(dt.tensor([4])).detach()  # asked for, but nothing comes back to it
    net(dt.tensor([[1, 3], [0, 3]])).sum().backward()
    grad = net.weight.grad
    assert grad.is_sparse and not grad.is_coalesced() and grad._indices().tolist() == [[1, 3, 3]]
    assert grad.to_dense().sum(1).tolist() == [0, 3, 0, 6, 0] and not grad.is_coalesced()
    assert grad.coalesce().indices().tolist() == [[1, 3]]
    np.testing.assert_array_equal(grad.coalesce().values().numpy(), [[1] * 3, [2] * 3])
    (net(dt.tensor([2])) * 0).sum().backward()  # accumulates
    assert net.weight.grad._indices().tolist() == [[2, 1, 3, 3]]
    opt.step()
    moved = (net.weight.detach().numpy() != before).any(1)
    assert moved.tolist() == [False, True, False, True, False]
    opt.zero_grad()
    (net(dt.tensor([1])).sum() + net.weight.sum()).backward()
    assert not net.weight.grad.is_sparse and (net.weight.grad.numpy() == 1).sum() == 12


@pytest.mark.peer
@pytest.mark.parametrize(
    "args", [{}, {"lr": 0.1, "betas": (0.5, 0.7)}, {"maximize": True}], ids=str
)
def test_steps_are_those_of_pytorch(args):
    import torch

    p = start()
    q = torch.from_numpy(p.detach().numpy().copy()).requires_grad_()
    mine, theirs = optim.SparseAdam([p], **args), torch.optim.SparseAdam([q], **args)
    for k in range(3):
        p.grad = gradient(k)
        q.grad = torch.sparse_coo_tensor(
            p.grad._indices().numpy(), p.grad._values().numpy(), (4, 3), check_invariants=True
        )
        mine.step()
        theirs.step()
    np.testing.assert_allclose(p.array, q.detach().numpy(), rtol=1e-12)
