"""Parametrizations that come with the library: orthogonal, weight norm, spectral norm."""

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn.utils import parametrizations


def same(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (2, 4, 3)])
def test_orthogonal_weights_stay_orthogonal(shape, name, trivial):
    dt.manual_seed(0)
    m = nn.Module()
    m.weight = nn.Parameter(dt.randn(*shape, dtype=dt.float64))
    parametrizations.orthogonal(m, "weight", name, use_trivialization=trivial)
    if trivial or name == "householder":
        q = m.weight.detach().clone()
        m.weight = q
        same(m.weight, q, 1e-10)
    opt = dt.optim.SGD(m.parameters(), lr=0.3)
    start = m.weight.detach().clone()
    target = dt.randn(*shape, dtype=dt.float64)
    for _ in range(3):
        opt.zero_grad()
        ((m.weight - target) ** 2).sum().backward()
        opt.step()
    w = m.weight.detach()
    assert (w - start).abs().max().item() > 1e-3
    w = w.transpose(-2, -1) if w.shape[-2] < w.shape[-1] else w
    gram = w.transpose(-2, -1) @ w
    same(gram, dt.eye(gram.shape[-1], dtype=dt.float64).expand(gram.shape), 1e-10)


def test_complex_weights_become_unitary():
    m = nn.Module()
    m.weight = nn.Parameter(dt.randn(3, 3, dtype=dt.complex128))
    w = parametrizations.orthogonal(m).weight.detach().numpy()
    np.testing.assert_allclose(w.conj().T @ w, np.eye(3), atol=1e-10)
    with pytest.raises(ValueError, match="does not support complex"):
        parametrizations.orthogonal(m, orthogonal_map="householder")


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_keeps_the_weight_and_parts_length_from_direction(dim):
    m = nn.Linear(3, 2)
    start = m.weight.detach().clone()
    parametrizations.weight_norm(m, dim=dim)
    same(m.weight, start)
    g = m.parametrizations.weight.original0
    assert tuple(g.shape) == {0: (2, 1), 1: (1, 3), None: ()}[dim]
    with dt.no_grad():
        g.mul_(2)
    same(m.weight, 2 * start)


def test_weight_norm_loads_what_the_older_form_saved():
    with pytest.warns(FutureWarning, match="in favor of"):
        older = nn.utils.weight_norm(nn.Linear(3, 2))
    newer = parametrizations.weight_norm(nn.Linear(3, 2))
    newer.load_state_dict(older.state_dict())
    same(newer.weight, older.weight)


@pytest.mark.parametrize("older", [False, True])
def test_spectral_norm_makes_the_largest_singular_value_one(older):
    dt.manual_seed(0)
    make = nn.utils.spectral_norm if older else parametrizations.spectral_norm
    m = make(nn.Linear(5, 4), n_power_iterations=30)
    m(dt.ones(1, 5)).sum().backward()
    value = np.linalg.svd(m.weight.detach().numpy(), compute_uv=False)[0]
    assert abs(value - 1) < 1e-3
    m.eval()
    kept = m.weight if older else m.parametrizations.weight[0]._u.clone()
    m(dt.ones(1, 5))
    same(m.weight if older else m.parametrizations.weight[0]._u, kept)
    if older:
        nn.utils.remove_spectral_norm(m)
        assert sorted(dict(m.named_parameters())) == ["bias", "weight"]


def test_spectral_norm_of_transposed_convolutions_has_other_rows():
    m = parametrizations.spectral_norm(nn.ConvTranspose2d(3, 5, 2))
    assert m.parametrizations.weight[0]._u.shape == (5,)
    with pytest.raises(IndexError, match="out of range"):
        parametrizations.spectral_norm(nn.Linear(2, 2), dim=3)
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        parametrizations.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
