"""Initial values: distributions and layouts."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn
from disttrain.errors import ConfigError, ShapeError

init = nn.init


def empty(*shape):
    return nn.Parameter(core.wrap(np.zeros(shape, np.float32)))


def values(t):
    return t.detach().numpy().astype(np.float64)


def test_constants_and_layouts():
    assert values(init.ones_(empty(2, 2))).tolist() == [[1, 1], [1, 1]]
    assert values(init.constant_(empty(2), 0.5)).tolist() == [0.5, 0.5]
    assert values(init.zeros_(init.ones_(empty(2)))).tolist() == [0, 0]
    assert values(init.eye_(empty(2, 3))).tolist() == [[1, 0, 0], [0, 1, 0]]
    w = values(init.dirac_(empty(4, 2, 3), groups=2))
    assert w.sum() == 4 and w[0, 0, 1] == w[1, 1, 1] == w[2, 0, 1] == w[3, 1, 1] == 1
    for bad in (lambda: init.eye_(empty(2)), lambda: init.dirac_(empty(2, 2))):
        with pytest.raises(ShapeError):
            bad()


@pytest.mark.parametrize(
    ("fill", "std", "bound"),
    [
        (lambda t: init.uniform_(t, -2, 2), 2 / math.sqrt(3), 2),
        (lambda t: init.normal_(t, 0, 0.3), 0.3, None),
        (lambda t: init.xavier_uniform_(t, 2.0), 2 * math.sqrt(2 / 500), 2 * math.sqrt(6 / 500)),
        (lambda t: init.xavier_normal_(t), math.sqrt(2 / 500), None),
        (lambda t: init.kaiming_uniform_(t, a=math.sqrt(5)), 600**-0.5, 200**-0.5),
        (lambda t: init.kaiming_uniform_(t, nonlinearity="relu"), 0.1, math.sqrt(3) * 0.1),
        (lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
         math.sqrt(2 / 300), None),
    ],
)  # fmt: skip
def test_spread(fill, std, bound):
    t = empty(300, 200)
    assert fill(t) is t and t.requires_grad and t.is_leaf
    x = values(t)
    assert abs(x.mean()) < std * 0.03
    assert x.std() == pytest.approx(std, rel=0.03)
    if bound is not None:
        assert np.abs(x).max() <= bound * (1 + 1e-6) and np.abs(x).max() > bound * 0.99


def test_truncated_normal_stays_inside():
    x = values(init.trunc_normal_(empty(200, 100), std=1.0, a=-1.0, b=2.0))
    assert x.min() >= -1 and x.max() <= 2
    assert x.mean() == pytest.approx(0.2296, abs=0.03)  # of the truncated distribution
    with pytest.raises(ConfigError):
        init.trunc_normal_(empty(2), a=1.0, b=0.0)
    with pytest.raises(ConfigError, match="next to nothing"):
        init.trunc_normal_(empty(2), std=0.001, a=5.0, b=6.0)


def test_orthogonal_and_sparse():
    wide = values(init.orthogonal_(empty(3, 4, 2), gain=2.0)).reshape(3, 8)
    np.testing.assert_allclose(wide @ wide.T, 4 * np.eye(3), atol=1e-5)
    tall = values(init.orthogonal_(empty(8, 3)))
    np.testing.assert_allclose(tall.T @ tall, np.eye(3), atol=1e-5)
    thin = values(init.sparse_(empty(10, 4), sparsity=0.3))
    assert ((thin == 0).sum(0) == 3).all()


def test_gain():
    assert init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    for call in (
        lambda: init.calculate_gain("cube"),
        lambda: init.kaiming_normal_(empty(2, 2), mode="x"),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ShapeError, match="at least 2 dimensions"):
        init.xavier_uniform_(empty(3))


def test_meta_tensors_are_left_alone():
    with core.device("meta"):
        net = nn.Sequential(nn.Linear(3, 4), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(3), nn.PReLU(),
                            nn.Embedding(5, 2, padding_idx=1), nn.LSTM(3, 4), nn.LayerNorm(3),
                            nn.MultiheadAttention(4, 2))  # fmt: skip
    assert all(t.is_meta for t in [*net.parameters(), *net.buffers()])
    for fill in (init.orthogonal_, init.eye_, init.xavier_normal_, init.trunc_normal_):
        assert fill(net[0].weight) is net[0].weight


@pytest.mark.parametrize(
    ("make", "bounds"),
    [
        (lambda: nn.Linear(400, 300), {"weight": 1 / 20, "bias": 1 / 20}),
        (lambda: nn.Conv2d(16, 300, 5), {"weight": 1 / 20, "bias": 1 / 20}),
        (lambda: nn.ConvTranspose2d(100, 16, 5), {"weight": 1 / 20, "bias": 1 / 20}),
        (lambda: nn.LSTM(300, 400), {"weight_ih_l0": 1 / 20, "bias_hh_l0": 1 / 20}),
        (lambda: nn.GRUCell(300, 400), {"weight_hh": 1 / 20}),
    ],
    ids=["Linear", "Conv2d", "ConvTranspose2d", "LSTM", "GRUCell"],
)
def test_layers_start_uniform_within_their_bound(make, bounds):
    parameters = dict(make().named_parameters())
    for name, bound in bounds.items():
        x = values(parameters[name])
        assert np.abs(x).max() <= bound * (1 + 1e-6)
        if x.size >= 300:
            assert x.std() == pytest.approx(bound / math.sqrt(3), rel=0.2)


def test_other_starts():
    table = nn.Embedding(300, 100, padding_idx=-1)
    assert table.padding_idx == 299 and values(table.weight)[299].tolist() == [0.0] * 100
    assert values(table.weight)[:299].std() == pytest.approx(1.0, rel=0.03)
    norm = nn.BatchNorm2d(3)
    assert values(norm.weight).tolist() == [1] * 3 and values(norm.running_var).tolist() == [1] * 3
    assert values(norm.bias).tolist() == [0] * 3 and norm.num_batches_tracked.item() == 0
    attention = nn.MultiheadAttention(64, 4)
    bound = math.sqrt(6 / (64 + 192))
    assert np.abs(values(attention.in_proj_weight)).max() <= bound * (1 + 1e-6)
    assert values(attention.in_proj_bias).tolist() == [0] * 192


@pytest.mark.parametrize(
    "name, args",
    [
        ("uniform", (2.0, 3.0)), ("normal", (9.0, 0.1)), ("constant", (4.0,)), ("eye", ()),
        ("xavier_uniform", ()), ("xavier_normal", (2.0,)), ("kaiming_uniform", ()),
        ("kaiming_normal", ()), ("orthogonal", ()), ("sparse", (0.5,)),
    ],
)  # fmt: skip
def test_older_names_say_which_is_newer(name, args):
    results = []
    dt.manual_seed(3)
    with pytest.warns(FutureWarning, match=rf"nn.init.{name}` is now deprecated in favor of"):
        results.append(values(getattr(init, name)(empty(4, 4), *args)))
    dt.manual_seed(3)
    results.append(values(getattr(init, name + "_")(empty(4, 4), *args)))
    assert results[0].tolist() == results[1].tolist() and results[0].any()
    assert getattr(init, name).__name__ == name
