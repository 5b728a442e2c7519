"""Parametrizations: tensors of a module computed from others."""

import copy
import pickle

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn.utils import orthogonal as orth
from disttrain.nn.utils import parametrizations, parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-2, -1)

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    seen = 0

    def forward(self, x):
        self.seen += 1
        return 2 * x


class Product(nn.Module):
    def forward(self, a, b):
        return a * b

    def right_inverse(self, x):
        return x.clone(), dt.ones_like(x)


def same(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=0, atol=tolerance)


def test_a_weight_is_computed_from_its_original():
    m = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    assert parametrize.is_parametrized(m, "weight") and not parametrize.is_parametrized(m, "bias")
    assert [n for n, _ in m.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert isinstance(m, nn.Linear) and type(m).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(m) is nn.Linear
    same(m.weight, m.weight.T)
    m(dt.ones(2, 3)).sum().backward()
    assert m.parametrizations.weight.original.grad is not None


def test_assignment_goes_through_the_inverse():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    held = m.parametrizations.weight.original
    m.weight = dt.tensor([[1.0, 2.0], [2.0, 3.0]])
    assert m.parametrizations.weight.original is held
    assert held.tolist() == [[1.0, 2.0], [0.0, 3.0]]
    parametrize.register_parametrization(m, "bias", Scaled())
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        m.bias = dt.zeros(2)


def test_parametrizations_stack_and_come_off_again():
    m = nn.Linear(3, 3)
    before = m.weight
    parametrize.register_parametrization(m, "weight", Symmetric())
    parametrize.register_parametrization(m, "weight", Scaled())
    value = m.weight
    same(value, 2 * Symmetric()(before))
    parametrize.remove_parametrizations(m, "weight")
    same(m.weight, value)
    assert type(m) is nn.Linear and m.weight is before and not hasattr(m, "parametrizations")
    parametrize.register_parametrization(m, "weight", Scaled())
    parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    same(m.weight, value)


def test_several_originals():
    m = nn.Linear(2, 2)
    start = m.weight.clone()
    parametrize.register_parametrization(m, "weight", Product())
    assert set(dict(m.parametrizations.named_parameters())) == {
        "weight.original0", "weight.original1"
    }  # fmt: skip
    same(m.weight, start)
    m.weight = 3 * start
    same(m.parametrizations.weight.original0, 3 * start)
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(m, "weight")
    assert isinstance(m.weight, nn.Parameter)


def test_buffers_too():
    m = nn.BatchNorm1d(2)
    parametrize.register_parametrization(m, "running_var", Scaled())
    assert m.running_var.tolist() == [2.0, 2.0]
    parametrize.remove_parametrizations(m, "running_var")
    assert m._buffers["running_var"].tolist() == [2.0, 2.0]


def test_within_cached_a_tensor_is_computed_once():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    counter = m.parametrizations.weight[0]
    before = counter.seen
    with parametrize.cached():
        assert m.weight is m.weight
    assert counter.seen == before + 1
    assert m.weight is not m.weight


def test_copies_have_tensors_and_properties_of_their_own():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    twin = copy.deepcopy(m)
    same(twin.weight, m.weight)
    parametrize.remove_parametrizations(twin, "weight")
    assert type(twin) is nn.Linear and parametrize.is_parametrized(m, "weight")
    same(twin.weight, m.weight)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(m)


def test_the_state_dict_has_the_originals():
    first, second = (
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled()) for _ in range(2)
    )
    second.load_state_dict(first.state_dict())
    same(first.weight, second.weight)


def test_transfer():
    source = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    target = parametrize.transfer_parametrizations_and_params(source, nn.Linear(2, 2))
    assert target.parametrizations.weight.original is source.parametrizations.weight.original
    same(target.weight, source.weight)


class Wrong(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def forward(self, x):
        return self.out(x)


@pytest.mark.parametrize("on_top", [False, True])
@pytest.mark.parametrize(
    "out, text",
    [
        (lambda x: 3, "must return a tensor. Got int"),
        (lambda x: x[:1], "may not change the shape"),
        (lambda x: x.double(), "may not change the dtype"),
    ],
)
def test_type_and_shape_stay_unless_told(out, text, on_top):
    m = nn.Linear(2, 2)
    if on_top:
        parametrize.register_parametrization(m, "weight", Scaled())
    with pytest.raises(ValueError, match=text):
        parametrize.register_parametrization(m, "weight", Wrong(out))
    assert parametrize.is_parametrized(m) == on_top


def test_mistakes_are_named():
    m = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="does not have a parameter, a buffer"):
        parametrize.register_parametrization(m, "nothing", Scaled())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(m, "weight")


# --- orthogonal ----------------------------------------------------------------------------------
def test_the_exponential_of_matrices():
    a = np.array([[0.0, -1.0], [1.0, 0.0]])
    for size in (0.1, 1.0, 30.0):
        want = [[np.cos(size), -np.sin(size)], [np.sin(size), np.cos(size)]]
        np.testing.assert_allclose(orth.matrix_exp(dt.tensor(a * size)).numpy(), want, atol=1e-12)
    rng = np.random.default_rng(0)
    x = dt.tensor(rng.standard_normal((2, 3, 3))).requires_grad_()
    assert dt.autograd.gradcheck(orth.matrix_exp, (x,))


def test_reflections_and_their_product_belong_together():
    q = dt.tensor(np.random.default_rng(0).standard_normal((2, 5, 3)))
    A, tau = orth.reflections(q)
    back = orth.householder_product(A, tau) @ A[..., :3, :].triu()
    same(back, q, 1e-12)


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


# --- weight and spectral normalisation -----------------------------------------------------------
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


def test_older_weight_norm():
    m = nn.Linear(3, 2)
    start = m.weight.detach().clone()
    with pytest.warns(FutureWarning):
        nn.utils.weight_norm(m)
    assert sorted(dict(m.named_parameters())) == ["bias", "weight_g", "weight_v"]
    with dt.no_grad():
        m.weight_g.mul_(2)
    same(m(dt.ones(3)), (2 * start).sum(1) + m.bias)
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="two weight_norm hooks"):
        nn.utils.weight_norm(m)
    nn.utils.remove_weight_norm(m)
    same(m.weight, 2 * start)
    assert isinstance(m.weight, nn.Parameter) and "weight_g" not in dict(m.named_parameters())
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        nn.utils.remove_weight_norm(m)


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


@pytest.mark.peer
@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_orthogonal_maps_are_those_of_pytorch(shape, name):
    import torch

    start = np.random.default_rng(0).standard_normal(shape)
    results = []
    for T in (dt, torch):
        m = T.nn.Module()
        m.weight = T.nn.Parameter(T.tensor(start))
        T.nn.utils.parametrizations.orthogonal(m, "weight", name, use_trivialization=False)
        (m.weight * T.tensor(start)).sum().backward()
        original = m.parametrizations.weight.original
        results.append([t.detach().numpy() for t in (m.weight, original.grad)])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
