"""Results under autocast on a device have the types of PyTorch's lists, also of functions that
are composed here."""

import pytest

import disttrain as dt
import disttrain.nn.functional as F
from disttrain import amp, nn
from disttrain.tree import leaves

LOW, FULL = dt.bfloat16, dt.float32


def there(*shape, dtype=FULL):
    return dt.rand(*shape, dtype=FULL).to("cuda", dtype)


def matrices(dtype):
    return there(3, 3, dtype=dtype), there(3, 3, dtype=dtype)


def batches(dtype):
    return there(2, 3, 3, dtype=dtype), there(2, 3, 3, dtype=dtype)


LOWER = {
    "matmul": lambda: dt.matmul(*matrices(FULL)),
    "bmm": lambda: dt.bmm(*batches(FULL)),
    "mv": lambda: dt.mv(there(3, 3), there(3)),
    "addmm": lambda: dt.addmm(there(3), *matrices(FULL), beta=0.5),
    "addmv": lambda: dt.addmv(there(3), there(3, 3), there(3)),
    "addr": lambda: dt.addr(there(3, 3), there(3), there(3)),
    "baddbmm": lambda: dt.baddbmm(there(2, 3, 3), *batches(FULL)),
    "addbmm": lambda: dt.addbmm(there(3, 3), *batches(FULL)),
    "multi_dot": lambda: dt.linalg.multi_dot(matrices(FULL)),
    "einsum": lambda: dt.einsum("ij,jk->ik", *matrices(FULL)),
    "conv1d": lambda: F.conv1d(there(1, 3, 5), there(2, 3, 2)),
    "conv_transpose2d": lambda: F.conv_transpose2d(there(1, 3, 5, 5), there(3, 2, 2, 2)),
    "linear": lambda: F.linear(there(2, 3), there(3, 3), there(3)),
    "prelu": lambda: F.prelu(there(2, 3), there(1)),
    "LSTMCell": lambda: nn.LSTMCell(3, 3).cuda()(there(2, 3))[0],
    "GRUCell": lambda: nn.GRUCell(3, 3).cuda()(there(2, 3), there(2, 3)),
    "RNNCell": lambda: nn.RNNCell(3, 3).cuda()(there(2, 3), there(2, 3)),
    "LSTM": lambda: nn.LSTM(3, 3).cuda()(there(4, 2, 3))[1][1],
    "GRU": lambda: nn.GRU(3, 3).cuda()(there(4, 2, 3), there(1, 2, 3))[0],
    "RNN": lambda: nn.RNN(3, 3).cuda()(there(4, 2, 3))[1],
    "attention": lambda: F.scaled_dot_product_attention(*[there(2, 3, 4)] * 3),
}


def pair(*shape):
    return there(*shape, dtype=LOW), there(*shape, dtype=LOW)


def one(fn):
    return lambda: fn(there(2, 3, dtype=LOW))


def two(fn):
    return lambda: fn(*pair(2, 3))


def signs():
    return dt.tensor([1.0, -1.0], device="cuda", dtype=LOW)


WIDER = {
    **{n: one(getattr(dt, n)) for n in ("acos", "asin", "exp", "expm1", "log", "log10", "log2")},
    **{n: one(getattr(dt, n)) for n in ("log1p", "reciprocal", "rsqrt", "sinh", "cosh", "tan")},
    **{n: one(getattr(dt, n)) for n in ("sum", "prod", "erfinv", "norm")},
    **{n: one(getattr(F, n)) for n in ("softplus", "normalize")},
    **{n: two(getattr(F, n)) for n in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    **{n: two(getattr(F, n)) for n in ("kl_div", "poisson_nll_loss", "soft_margin_loss")},
    **{n: two(getattr(F, n)) for n in ("cosine_similarity", "binary_cross_entropy_with_logits")},
    "pow": lambda: there(2, dtype=LOW) ** 2.5,
    "rpow": lambda: 2.0 ** there(2, dtype=LOW),
    "rdiv": lambda: 1.0 / there(2, dtype=LOW),
    "cumsum": lambda: there(2, dtype=LOW).cumsum(0),
    "softmax": lambda: F.softmax(there(2, 3, dtype=LOW), -1),
    "softmin": lambda: F.softmin(there(2, 3, dtype=LOW), -1),
    "log_softmax": lambda: F.log_softmax(there(2, 3, dtype=LOW), -1),
    "logsumexp": lambda: dt.logsumexp(there(2, 3, dtype=LOW), -1),
    "layer_norm": lambda: F.layer_norm(there(2, 3, dtype=LOW), (3,)),
    "group_norm": lambda: F.group_norm(there(2, 4, 3, dtype=LOW), 2),
    "dist": lambda: dt.dist(*pair(2, 3)),
    "renorm": lambda: dt.renorm(there(2, 3, dtype=LOW), 2, 0, 0.5),
    "vector_norm": lambda: dt.linalg.vector_norm(there(2, 3, dtype=LOW)),
    "nll_loss": lambda: F.nll_loss(there(2, 3, dtype=LOW), dt.tensor([0, 1], device="cuda")),
    "cross_entropy": lambda: F.cross_entropy(
        there(2, 3, dtype=LOW), dt.tensor([0, 1], device="cuda")
    ),
    "cosine_embedding_loss": lambda: F.cosine_embedding_loss(*pair(2, 3), signs()),
    "hinge_embedding_loss": lambda: F.hinge_embedding_loss(there(2, dtype=LOW), signs()),
    "margin_ranking_loss": lambda: F.margin_ranking_loss(*pair(2), signs()),
    "triplet_margin_loss": lambda: F.triplet_margin_loss(*pair(2, 3), there(2, 3, dtype=LOW)),
    # those that take the widest of their arguments' types
    "dot": lambda: dt.dot(there(3), there(3)),
    "bilinear": lambda: F.bilinear(there(2, 3), there(2, 3), there(4, 3, 3)),
    "addcmul": lambda: dt.addcmul(there(3, dtype=LOW), there(3), there(3, dtype=LOW)),
    "addcdiv": lambda: dt.addcdiv(there(3), there(3, dtype=LOW), there(3, dtype=LOW)),
    "atan2": lambda: dt.atan2(there(3), there(3, dtype=LOW)),
}


@pytest.mark.parametrize("name", LOWER)
def test_lower(double, name):
    with amp.autocast("cuda", dtype=LOW):
        assert LOWER[name]().dtype is LOW


@pytest.mark.parametrize("name", WIDER)
def test_full(double, name):
    with amp.autocast("cuda", dtype=LOW):
        assert WIDER[name]().dtype is FULL


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize(
    ("kind", "lower"),
    [
        (nn.LSTM, True), (nn.GRU, False), (nn.RNN, True),
        (nn.LSTMCell, False), (nn.GRUCell, False), (nn.RNNCell, True),
    ],
)  # fmt: skip
def test_recurrent_layers_on_the_cpu(kind, lower, given):
    """Of PyTorch's list the LSTM is one operation; the others are products and what follows."""
    x, states = dt.rand(2, 3), dt.rand(2, 3)
    if kind in (nn.LSTM, nn.GRU, nn.RNN):
        x, states = x[None], states[None]
    states = (states, states) if kind in (nn.LSTM, nn.LSTMCell) else states
    layer = kind(3, 3)
    with dt.autocast("cpu", dtype=LOW):
        made = layer(x, states) if given else layer(x)
    parts = leaves(made)
    assert {part.dtype for part in parts} == {LOW if lower else FULL}
    parts[0].float().sum().backward()
    assert all(p.grad.dtype is FULL for p in layer.parameters())


def test_an_lstm_of_packed_sequences_on_the_cpu_keeps_its_states():
    data = nn.utils.rnn.pack_padded_sequence(dt.rand(4, 2, 3), dt.tensor([4, 2]))
    with dt.autocast("cpu", dtype=LOW):
        out, (h, c) = nn.LSTM(3, 3)(data)
    assert {t.dtype for t in (out.data, h, c)} == {FULL}


def on_cpu(fn, *dtypes):
    """The type of what ``fn`` makes of 3 x 3 matrices of these types on the CPU under autocast."""
    given = [dt.rand(3, 3).to(dtype) for dtype in dtypes]
    with dt.autocast("cpu", dtype=LOW):
        return fn(*given).dtype


@pytest.mark.parametrize(
    "fn",
    [
        dt.matmul, dt.mm, dt.inner, F.linear,
        lambda a, b: dt.bmm(a[None], b[None]), lambda a, b: a @ b[0],
        lambda a, b: dt.addmm(a, a, b), lambda a, b: dt.einsum("ij,jk->ik", a, b),
        lambda a, b: dt.baddbmm(a[None], a[None], b[None]), lambda a, b: F.prelu(a, b[0, :1]),
        lambda a, b: F.conv1d(a[None], b[None]),
        lambda a, b: F.conv_transpose1d(a[None], b[:, None]),
        lambda a, b: F.scaled_dot_product_attention(a[None], b[None], b[None]),
        lambda a, b: nn.MultiheadAttention(3, 1)(a, b, b)[0],
    ],
)  # fmt: skip
@pytest.mark.parametrize("types", [(FULL, FULL), (LOW, FULL), (FULL, LOW)])
def test_products_on_the_cpu_are_lower(fn, types):
    assert on_cpu(fn, *types) is LOW


@pytest.mark.parametrize(
    "fn",
    [
        F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.kl_div, F.cosine_embedding_loss,
        F.binary_cross_entropy, F.binary_cross_entropy_with_logits,
        lambda a, b: F.cross_entropy(a, b.argmax(1)), lambda a, b: F.nll_loss(a, b.argmax(1)),
        lambda a, b: (a * b).prod(),
    ],
)  # fmt: skip
def test_losses_on_the_cpu_are_wider(fn):
    if fn is F.cosine_embedding_loss:
        fn = lambda a, b: F.cosine_embedding_loss(a, b, dt.ones(3))
    assert on_cpu(fn, LOW, LOW) is FULL


@pytest.mark.parametrize(
    "fn",
    [
        dt.exp, dt.log, dt.sum, dt.cumsum, dt.rsqrt, F.softmax, F.log_softmax, F.softplus, dt.norm,
        lambda a, *d: F.layer_norm(a, (3,)), lambda a, *d: a * a, lambda a, *d: a.pow(2),
        lambda a, *d: dt.dot(a[0], a[1]), lambda a, *d: dt.mv(a, a[0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [FULL, LOW])
def test_the_rest_on_the_cpu_is_as_it_comes(fn, kind):
    more = (0,) if fn in (dt.cumsum, F.softmax, F.log_softmax) else ()
    assert on_cpu(lambda a: fn(a, *more), kind) is kind


def test_a_model_on_the_cpu_has_gradients_of_its_parameters_types():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    with dt.autocast("cpu", dtype=LOW):
        out = model(dt.rand(5, 3).to(LOW))
    out.float().sum().backward()
    assert out.dtype is LOW and all(p.grad.dtype is FULL for p in model.parameters())
