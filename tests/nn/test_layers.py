"""Layers beyond the table of modules: values by formula, errors, lazy forms, training."""

import math

import numpy as np
import pytest

import disttrain as dt
from disttrain import core, nn, optim
from disttrain.core.types import dtypes
from disttrain.errors import ConfigError, DTypeError, ModuleError, ShapeError

F = nn.functional


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


# --- values by formula -------------------------------------------------------------------------
def test_linear_and_conv_by_hand():
    net = nn.Linear(2, 1)
    net.load_state_dict({"weight": tensor([[2.0, 3.0]]), "bias": tensor([1.0])})
    assert net(tensor([[1.0, 10.0]], np.float32)).tolist() == [[33.0]]
    x, w = randn(1, 2, 5, 4), randn(3, 2, 2, 3, seed=1)
    got = F.conv2d(x, w, stride=(2, 1)).numpy()
    want = np.zeros((1, 3, 2, 2))
    for i in range(2):
        for j in range(2):
            part = x.numpy()[:, :, 2 * i : 2 * i + 2, j : j + 3]
            want[:, :, i, j] = np.einsum("nchw,ochw->no", part, w.numpy())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_transposed_convolution_is_the_adjoint():
    w = randn(4, 2, 3, 3)
    x, y = randn(2, 2, 7, 7, seed=1), randn(2, 4, 4, 4, seed=2)
    forward = (F.conv2d(x, w, stride=2, padding=1) * y).sum().item()
    back = (F.conv_transpose2d(y, w, stride=2, padding=1) * x).sum().item()
    assert forward == pytest.approx(back, rel=1e-4)


def test_unfold_and_fold_are_adjoint():
    x = randn(2, 3, 5, 6)
    settings = {"kernel_size": (2, 3), "padding": 1, "stride": 2}
    cols = F.unfold(x, **settings)
    y = randn(*cols.shape, seed=1)
    want = (cols * y).sum().item()
    assert (F.fold(y, (5, 6), **settings) * x).sum().item() == pytest.approx(want, rel=1e-4)


def test_norms_standardise():
    x = randn(8, 6, 5) * 3 + 2
    for out, dims in (
        (nn.LayerNorm(5)(x), 2),
        (nn.BatchNorm1d(6)(x), (0, 2)),
        (nn.InstanceNorm1d(6)(x), 2),
    ):
        values = out.detach().numpy()
        np.testing.assert_allclose(values.mean(dims), 0, atol=1e-5)
        np.testing.assert_allclose(values.var(dims), 1, rtol=1e-3)


def test_batch_norm_tracks_and_then_uses_statistics():
    norm = nn.BatchNorm1d(2, momentum=0.5)
    x = tensor([[0.0, 2.0], [2.0, 6.0]], np.float32)
    norm(x)
    assert norm.running_mean.tolist() == [0.5, 2.0]
    assert norm.running_var.tolist() == [0.5 + 0.5 * 2, 0.5 + 0.5 * 8]
    assert norm.num_batches_tracked.item() == 1
    norm.eval()
    want = (x.numpy() - [0.5, 2.0]) / np.sqrt(np.array([1.5, 4.5]) + 1e-5)
    np.testing.assert_allclose(norm(x).detach().numpy(), want, rtol=1e-5)
    assert norm.num_batches_tracked.item() == 1
    average = nn.BatchNorm1d(2, momentum=None)
    average(x)
    average(x + 2)
    np.testing.assert_allclose(average.running_mean.numpy(), [2.0, 5.0])


def test_losses_by_formula():
    x, t = tensor([[1.0, 2.0], [0.0, -1.0]]), tensor([[0.0, 2.0], [1.0, 1.0]])
    assert F.mse_loss(x, t).item() == pytest.approx((1 + 0 + 1 + 4) / 4)
    assert F.l1_loss(x, t, reduction="sum").item() == pytest.approx(4.0)
    assert F.huber_loss(x, t).item() == pytest.approx((0.5 + 0 + 0.5 + 1.5) / 4)
    classes = tensor([1, 0], np.int64)
    p = np.exp(x.numpy()) / np.exp(x.numpy()).sum(1, keepdims=True)
    want = -np.log([p[0, 1], p[1, 0]])
    assert F.cross_entropy(x, classes).item() == pytest.approx(want.mean())
    assert F.nll_loss(F.log_softmax(x, 1), classes).item() == pytest.approx(want.mean())
    weight = tensor([0.2, 0.8])
    weighted = (want * [0.8, 0.2]).sum()
    assert F.cross_entropy(x, classes, weight).item() == pytest.approx(weighted)
    soft = tensor([[0.0, 1.0], [1.0, 0.0]])
    assert F.cross_entropy(x, soft).item() == pytest.approx(want.mean())


def test_embedding_divides_gradients_by_how_often_a_row_is_asked_for():
    table = nn.Embedding.from_pretrained(tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), freeze=False,
                                         scale_grad_by_freq=True)  # fmt: skip
    out = table(tensor([[0, 2], [2, 2]], np.int64))
    assert out.tolist() == [[[1, 2], [5, 6]], [[5, 6], [5, 6]]]
    (out * tensor([[[1.0], [2.0]], [[3.0], [4.0]]])).sum().backward()
    np.testing.assert_allclose(table.weight.grad.numpy(), [[1, 1], [0, 0], [3, 3]], rtol=1e-6)


def test_embedding_shortens_the_rows_that_are_asked_for():
    table = nn.Embedding.from_pretrained(tensor([[3.0, 4.0], [6.0, 8.0], [0.3, 0.4]]), max_norm=5.0)
    out = table(tensor([1, 2, 1], np.int64))
    np.testing.assert_allclose(out.numpy(), [[3, 4], [0.3, 0.4], [3, 4]], rtol=1e-6)
    np.testing.assert_allclose(table.weight.numpy(), [[3, 4], [3, 4], [0.3, 0.4]], rtol=1e-6)
    assert repr(table) == "Embedding(3, 2, max_norm=5.0)"


def test_losses_with_a_margin_have_a_gradient_at_it():
    a, b = tensor([2.0, 1.0]).requires_grad_(), tensor([1.0, 1.0])
    F.margin_ranking_loss(a, b, tensor([1.0, 1.0]), margin=1.0, reduction="sum").backward()
    assert a.grad.tolist() == [-1, -1]
    c = tensor([0.5]).requires_grad_()
    F.hinge_embedding_loss(c, tensor([-1.0]), margin=0.5).backward()
    assert c.grad.tolist() == [-1]


def test_padding_by_reflection_looks_at_what_is_cropped():
    x = tensor([[[0.0, 1.0, 2.0]]])
    assert F.pad(x, (2, -1), mode="reflect").tolist() == [[[2, 1, 0, 1]]]
    assert F.pad(x, (1, -1), mode="circular").tolist() == [[[1, 0, 1]]]


@pytest.mark.peer
def test_cross_entropy_against_pytorch_with_weights_and_smoothing():
    import torch

    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(5, 4)), rng.uniform(0.5, 2, 4)
    t = np.array([0, 3, -100, 1, 1])
    for reduction in ("mean", "sum", "none"):
        got = F.cross_entropy(tensor(x), tensor(t, np.int64), tensor(w), reduction=reduction,
                              label_smoothing=0.1)  # fmt: skip
        want = torch.nn.functional.cross_entropy(
            torch.tensor(x), torch.tensor(t), torch.tensor(w), reduction=reduction,
            label_smoothing=0.1,
        )  # fmt: skip
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-10)


def test_extreme_values_stay_finite():
    x = tensor([-1000.0, 0.0, 1000.0]).requires_grad_()
    for fn in (F.softplus, F.logsigmoid, F.elu, F.selu, F.celu, F.mish, F.silu, F.gelu,
               F.hardswish, F.softsign, F.sigmoid):  # fmt: skip
        x.grad = None
        out = fn(x)
        out.sum().backward()
        assert np.isfinite(out.detach().numpy()).all(), fn.__name__
        assert np.isfinite(x.grad.numpy()).all(), fn.__name__
    p = tensor([0.0, 1.0]).requires_grad_()
    loss = F.binary_cross_entropy(p, tensor([1.0, 0.0]), reduction="none")
    assert loss.tolist() == [100.0, 100.0]
    loss.sum().backward()
    assert np.isfinite(p.grad.numpy()).all()
    zero = tensor([[0.0, 0.0]]).requires_grad_()
    F.normalize(zero).sum().backward()
    F.cosine_similarity(zero, zero.detach() + 1).sum().backward()
    assert np.isfinite(zero.grad.numpy()).all()
    t = tensor([0.0, 1.0])
    logits = tensor([1e4, -1e4]).requires_grad_()
    F.binary_cross_entropy_with_logits(logits, t).backward()
    assert logits.grad.tolist() == [0.5, -0.5]


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    x = core.wrap(np.ones((200, 100), np.float32))
    drop = nn.Dropout(0.25)
    y = drop(x).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert y.mean() == pytest.approx(1.0, abs=0.03)
    assert drop.eval()(x) is x
    assert F.dropout(x, 1.0).numpy().sum() == 0
    rows = nn.Dropout2d(0.5)(core.wrap(np.ones((50, 20, 3, 3), np.float32))).numpy()
    per_channel = rows.reshape(1000, 9)
    assert ((per_channel == per_channel[:, :1]).all(1)).all()
    selu = nn.AlphaDropout(0.2)(randn(300, 300)).numpy()
    assert selu.mean() == pytest.approx(0.0, abs=0.03) and selu.std() == pytest.approx(1, abs=0.03)


def test_inplace_activation_writes_to_its_input():
    x = tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(x) is x and x.tolist() == [0.0, 2.0]
    leaf = tensor([-1.0, 2.0]).requires_grad_()
    h = leaf * 2
    F.relu_(h)
    h.sum().backward()
    assert leaf.grad.tolist() == [0.0, 2.0]


def test_one_hot_and_pixel_shuffle():
    assert F.one_hot(tensor([2, 0], np.int64)).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert F.one_hot(tensor([[1]], np.int64), 3).shape == (1, 1, 3)
    x = randn(2, 12, 3, 2)
    np.testing.assert_array_equal(F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2).numpy(), x.numpy())
    for bad in (lambda: F.one_hot(tensor([3], np.int64), 2), lambda: F.one_hot(tensor([1.0])),
                lambda: F.pixel_shuffle(x, 5)):  # fmt: skip
        with pytest.raises((ShapeError, DTypeError)):
            bad()


def test_padded_sequences():
    rows = [tensor([1.0, 2.0, 3.0]), tensor([4.0])]
    padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    assert padded.tolist() == [[1, 2, 3], [4, -1, -1]]
    left = nn.utils.rnn.pad_sequence(rows, padding_side="left")
    assert left.shape == (3, 2) and left.tolist()[2] == [3, 4]
    back = nn.utils.rnn.unpad_sequence(padded, tensor([3, 1], np.int64), batch_first=True)
    assert [t.tolist() for t in back] == [[1, 2, 3], [4]]
    with pytest.raises(ShapeError, match="sequence 1"):
        nn.utils.rnn.pad_sequence([randn(2, 3), randn(2, 4)])


# --- attention ---------------------------------------------------------------------------------
def test_attention_masks_agree_with_each_other():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = randn(2, 4, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    as_bool = core.wrap(np.triu(np.ones((4, 4), bool), 1))
    one, weights = attention(x, x, x, attn_mask=causal)
    two, none = attention(x, x, x, attn_mask=as_bool, need_weights=False)
    three, _ = attention(x, x, x, is_causal=True, need_weights=False)
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(one.detach().numpy(), three.detach().numpy(), atol=1e-6)
    assert none is None and weights.shape == (2, 4, 4)
    assert np.triu(weights.detach().numpy(), 1).max() == 0
    padding = core.wrap(np.array([[False] * 4, [False, False, True, True]]))
    _, weights = attention(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (2, 2, 4, 4) and weights.detach().numpy()[1, :, :, 2:].max() == 0
    with pytest.raises(ShapeError, match="attn_mask"):
        attention(x, x, x, attn_mask=randn(3, 3))
    with pytest.raises(ShapeError, match="query of shape"):
        attention(randn(2, 4, 6), x, x)


def test_scaled_dot_product_attention_with_shared_heads():
    q, k, v = randn(2, 4, 3, 5), randn(2, 2, 6, 5, seed=1), randn(2, 2, 6, 7, seed=2)
    got = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    k4, v4 = (np.repeat(t.numpy(), 2, axis=1) for t in (k, v))
    scores = q.numpy() @ k4.swapaxes(-1, -2) / math.sqrt(5)
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(got.numpy(), p @ v4, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match="not both"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=randn(3, 3), is_causal=True)
    with pytest.raises(ShapeError):
        F.scaled_dot_product_attention(q, randn(2, 4, 3, 4), q)


def test_recurrent_state_carries_on():
    net = nn.LSTM(3, 4, num_layers=2)
    x = randn(6, 2, 3)
    whole, (h, c) = net(x)
    first, state = net(x[:2])
    second, (h2, c2) = net(x[2:], state)
    np.testing.assert_allclose(whole[2:].detach().numpy(), second.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(h.detach().numpy(), h2.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(c.detach().numpy(), c2.detach().numpy(), atol=1e-6)
    assert first.shape == (2, 2, 4)
    cell = nn.LSTMCell(3, 4)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(cell, name, getattr(nn.LSTM(3, 4), name + "_l0"))
    with pytest.raises(ShapeError, match="initial state of shape"):
        net(x, (randn(1, 2, 4), randn(1, 2, 4)))
    with pytest.raises(TypeError, match=r"\(h0, c0\)"):
        net(x, randn(2, 2, 4))
    with pytest.raises(ShapeError, match="input_size=3"):
        net(randn(6, 2, 5))


# --- lazy --------------------------------------------------------------------------------------
def test_lazy_modules_learn_their_sizes():
    net = nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)
    )
    assert isinstance(net[4].weight, nn.UninitializedParameter)
    with pytest.raises(ModuleError, match="run one batch"):
        net[4].weight.shape
    kept = net[4].weight
    out = net.double()(randn(2, 3, 6, 6).double())
    assert out.shape == (2, 5) and net[4].weight is kept
    assert type(net[0]) is nn.Conv2d and type(net[1]) is nn.BatchNorm2d
    assert type(net[4]) is nn.Linear and type(kept) is nn.Parameter
    assert kept.shape == (5, 64) and kept.dtype is dtypes.float64
    assert net[0].in_channels == 3 and net[1].num_features == 4 and net[4].in_features == 64
    out.sum().backward()
    assert kept.grad is not None
    assert np.abs(kept.detach().numpy()).max() <= 1 / 8


LAZY = [getattr(nn, n) for n in nn.__all__ if n.startswith("Lazy") and "Norm" not in n]
LAZY_NORMS = [getattr(nn, n) for n in nn.__all__ if n.startswith("Lazy") and "Norm" in n]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAZY, ids=lambda k: k.__name__)
def test_lazy_layers_with_and_without_bias(kind, bias):
    dims = int(kind.__name__[-2]) if "Conv" in kind.__name__ else 0
    args = (4, 3) if dims else (4,)
    net, twin = kind(*args, bias=bias), kind(*args, bias=bias)
    assert list(net.state_dict()) == ["weight", "bias"][: 1 + bias]
    x = randn(2, 3, *[6] * dims)
    out = net(x)
    assert type(net) is kind.cls_to_become and (net.bias is not None) == bias
    twin.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(twin(x).detach().numpy(), out.detach().numpy())


@pytest.mark.parametrize("kind", LAZY_NORMS, ids=lambda k: k.__name__)
def test_lazy_norms(kind):
    net = kind(affine=True, track_running_stats=True)
    x = randn(2, 3, *[4] * int(kind.__name__[-2]))
    assert net(x).shape == x.shape and net.num_features == 3
    assert type(net) is kind.cls_to_become and net.running_mean.shape == (3,)


def test_lazy_modules_of_ones_own():
    class Own(nn.modules.lazy.LazyMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.UninitializedParameter()
            self.times = 0

        def initialize_parameters(self, x):
            self.times += 1
            self.scale.materialize(x.shape[-1])
            nn.init.ones_(self.scale)

        def forward(self, x):
            return x * self.scale

    net = Own()
    with pytest.raises(RuntimeError, match="share memory on an uninitialized"):
        net.share_memory()
    with pytest.raises(ValueError, match="uninitialized parameter"):
        optim.Adagrad(net.parameters())
    opt = optim.SGD(net.parameters(), lr=0.5)
    x = randn(2, 3)
    net(x).sum().backward()
    net(x)
    opt.step()
    assert type(net) is Own and net.times == 1 and net.scale.shape == (3,)
    with pytest.raises(RuntimeError, match="shape of an uninitialized parameter"):
        net.load_state_dict(Own().state_dict())
    np.testing.assert_allclose(net.scale.detach().numpy(), 1 - 0.5 * x.numpy().sum(0), rtol=1e-6)


@pytest.mark.parametrize("kind", [nn.SiLU, nn.Hardswish, nn.Mish, nn.ReLU, nn.ELU, nn.Hardtanh])
def test_activations_in_place_can_be_trained(kind):
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    grads = []
    for inplace in (False, True):
        first.zero_grad()
        last(kind(inplace=inplace)(first(randn(5, 3)))).sum().backward()
        grads.append(first.weight.grad.numpy().copy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


def test_lazy_modules_take_their_sizes_from_a_state_dict():
    done = nn.Linear(3, 2)
    lazy = nn.LazyLinear(2)
    lazy.load_state_dict(done.state_dict())
    x = randn(4, 3)
    np.testing.assert_array_equal(lazy(x).detach().numpy(), done(x).detach().numpy())
    assert type(lazy) is nn.Linear and lazy.in_features == 3


# --- errors ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (lambda: nn.Linear(3, 4), lambda: randn(2, 5),
         ["Linear(in_features=3, out_features=4, bias=True)", "[2, 5]", "in_features=3"]),
        (lambda: nn.Conv2d(3, 4, 3), lambda: randn(2, 4, 5, 5),
         ["Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))", "[2, 4, 5, 5]", "(N, 3, H, W)"]),
        (lambda: nn.Conv2d(3, 4, 3), lambda: randn(2, 3, 2, 5), ["at least as large"]),
        (lambda: nn.Conv1d(3, 4, 3), lambda: randn(2, 3, 5, 5), ["Conv1d(3, 4", "(N, 3, L)"]),
        (lambda: nn.BatchNorm2d(3), lambda: randn(2, 4, 5, 5),
         ["BatchNorm2d(3, eps", "[2, 4, 5, 5]", "num_features=3"]),
        (lambda: nn.BatchNorm1d(3), lambda: randn(1, 3), ["more than 1 value per channel"]),
        (lambda: nn.LayerNorm(3), lambda: randn(2, 4), ["LayerNorm((3,)", "[2, 4]", "[3]"]),
        (lambda: nn.GroupNorm(2, 4), lambda: randn(2, 6, 3), ["GroupNorm(2, 4", "(N, 4, ...)"]),
        (lambda: nn.Embedding(3, 4), lambda: tensor([1, 3], np.int64),
         ["Embedding(3, 4)", "[0, 3)"]),
        (lambda: nn.MaxPool2d(3), lambda: randn(1, 1, 2, 2), ["max_pool2d", "[1, 1, 2, 2]"]),
        (lambda: nn.Unflatten(1, (2, 2)), lambda: randn(2, 6), ["Unflatten(dim=1", "[2, 6]"]),
        (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: randn(1, 2, 3),
         ["mode='bilinear'", "[1, 2, 3]"]),
        (lambda: nn.ReflectionPad2d(3), lambda: randn(1, 1, 3, 3), ["smaller than the size"]),
    ],
)  # fmt: skip
def test_wrong_input_is_explained(make, given, words):
    with pytest.raises(ShapeError) as caught:
        make()(given())
    for word in words:
        assert word in str(caught.value)


def test_wrong_types_and_settings_are_explained():
    with pytest.raises(DTypeError, match=r"Embedding\(3, 4\).*integers"):
        nn.Embedding(3, 4)(tensor([1.0]))
    x, classes = randn(2, 3), tensor([0, 3], np.int64)
    with pytest.raises(ShapeError, match=r"cross_entropy: target 3 .*classes"):
        F.cross_entropy(x, classes)
    with pytest.raises(ShapeError, match=r"needed \[2\]"):
        F.cross_entropy(x, tensor([[0, 1]], np.int64))
    with pytest.raises(DTypeError, match=r"target\.long\(\)"):
        F.nll_loss(x, tensor([0.0, 1.0]))
    with pytest.raises(ConfigError, match="reduction='average'"):
        F.mse_loss(x, x, reduction="average")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        F.binary_cross_entropy(x * 10, x)
    with pytest.warns(UserWarning, match="Implicit dimension"):
        F.softmax(x)
    with pytest.warns(UserWarning, match="incorrect results"):
        F.mse_loss(x, randn(2, 1))
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.raises(ConfigError, match="evaluation needs running_mean"):
        F.batch_norm(x, None, None)


# --- a whole network ---------------------------------------------------------------------------
def test_a_small_network_learns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 1, 6, 6)).astype(np.float32)
    labels = (x[:, 0, :3].mean((1, 2)) > x[:, 0, 3:].mean((1, 2))).astype(np.int64)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, 2),
    )  # fmt: skip
    criterion = nn.CrossEntropyLoss()
    losses = []
    for _ in range(60):
        net.zero_grad()
        loss = criterion(net(core.wrap(x)), core.wrap(labels))
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        with core.no_grad():
            for p in net.parameters():
                p -= 0.3 * p.grad
        losses.append(loss.item())
    assert losses[-1] < 0.2 < losses[0]
    net.eval()
    accuracy = (net(core.wrap(x)).argmax(1).numpy() == labels).mean()
    assert accuracy > 0.9


def test_instance_norm_without_parameters_takes_other_numbers_of_channels():
    x = core.wrap(np.random.default_rng(0).normal(size=(2, 3, 4, 4)))
    with pytest.warns(UserWarning, match="does not match num_features"):
        assert nn.InstanceNorm2d(2)(x).tolist() == nn.InstanceNorm2d(3)(x).tolist()
    for settings in ({"affine": True}, {"track_running_stats": True}):
        with pytest.raises(RuntimeError, match="num_features=2"):
            nn.InstanceNorm2d(2, **settings)(x)


@pytest.mark.parametrize(
    "name, more",
    [
        ("relu", ()), ("leaky_relu", (0.2,)), ("rrelu", (0.1, 0.5)), ("hardtanh", (-0.5, 0.5)),
        ("elu", (0.5,)), ("selu", ()), ("celu", (2.0,)), ("threshold", (0.1, 7.0)),
    ],
)  # fmt: skip
def test_activations_written_over_their_input(name, more):
    x = dt.tensor([-2.0, -0.1, 0.0, 0.3, 2.0])
    want = getattr(F, name)(x, *more)
    over = x * 1
    assert getattr(F, f"{name}_")(over, *more) is over
    assert over.tolist() == want.tolist() != x.tolist()


def test_rrelu_draws_a_slope_for_each_element():
    x = dt.linspace(-3.0, 3.0, 601).requires_grad_()
    y = F.rrelu(x, 0.2, 0.4, training=True)
    y.sum().backward()
    below, slopes = x.detach() <= 0, x.grad
    assert (slopes[~below] == 1).all() and y.detach().equal(x.detach() * slopes)
    assert 0.2 <= slopes[below].min() < 0.22 and 0.38 < slopes[below].max() < 0.4
    assert nn.RReLU(0.2, 0.4).eval()(x).equal(F.leaky_relu(x, (0.2 + 0.4) / 2))
    with pytest.raises(ConfigError, match="Lower bound"):
        F.rrelu(x, 0.4, 0.2)


def test_feature_alpha_dropout_keeps_or_saturates_whole_channels():
    x = dt.randn(50, 40, 6)
    y = nn.FeatureAlphaDropout(0.3)(x)
    same = (y == y[..., :1]).all(-1)
    assert 0.25 < same.float().mean().item() < 0.35
    kept = ~same
    factor = (y[kept] - y[kept][:, :1]) / (x[kept] - x[kept][:, :1]).masked_fill(
        x[kept] == x[kept][:, :1], 1.0
    )
    assert factor[:, 1:].std().item() < 1e-2
    assert abs(y.mean().item()) < 0.1 and abs(y.std().item() - 1) < 0.1
    assert nn.FeatureAlphaDropout(0.3).eval()(x) is x
    with pytest.raises(ShapeError, match="at least 2"):
        F.feature_alpha_dropout(dt.ones(3), training=True)
