"""The spellings of layers' functions at torch's top level are those of ``nn.functional``."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.compat.torch.top import functional

F = dt.nn.functional
NAMES = functional.names()


def wave(*shape):
    return (dt.arange(float(dt.Size(shape).numel())) * 0.37).sin().reshape(*shape)


A, B, ONES = wave(4, 3), wave(4, 3).flip(0), dt.ones(4)


@pytest.mark.parametrize(
    "name, args, rest, named",
    [
        ("kl_div", (A, B.abs()), (), {}),
        ("hinge_embedding_loss", (A[:, 0], ONES), (0.5,), {"margin": 0.5}),
        ("margin_ranking_loss", (A[:, 0], B[:, 0], ONES), (0.1,), {"margin": 0.1}),
        ("cosine_embedding_loss", (A, B, ONES), (0.2,), {"margin": 0.2}),
        ("triplet_margin_loss", (A, B, A.abs()), (1.0, 2.0, 1e-6, True), {"swap": True}),
        ("poisson_nll_loss", (A + 1, B.abs()), (False, True, 1e-3),
         {"log_input": False, "full": True, "eps": 1e-3}),
        ("binary_cross_entropy_with_logits", (A, B.abs()), (A.abs(), None), {"weight": A.abs()}),
    ],
)  # fmt: skip
def test_losses_by_position_and_number(name, args, rest, named):
    for number, word in enumerate(("none", "mean", "sum")):
        want = getattr(F, name)(*args, reduction=word, **named)
        assert dt.equal(NAMES[name](*args, *rest, number) if rest else
                        NAMES[name](*args, number), want)  # fmt: skip
        assert dt.equal(NAMES[name](*args, reduction=number, **named), want)
    assert NAMES[name](*args, *rest).ndim > 0  # as PyTorch's, which reduces where told


def test_alignments_say_what_follows_the_reduction():
    x, targets = wave(2, 1, 3).log_softmax(2), dt.tensor([[1, 1]])
    assert NAMES["ctc_loss"](x, targets, [2], [2], 0, 2, True).item() == 0


def test_places_and_numbers_for_words():
    x = wave(1, 2, 6)
    for found, want in (
        (NAMES["adaptive_max_pool1d"](x, 2), F.adaptive_max_pool1d(x, 2, True)),
        (NAMES["max_pool1d_with_indices"](x, 2), F.max_pool1d(x, 2, return_indices=True)),
    ):
        assert all(dt.equal(a, b) for a, b in zip(found, want, strict=True))
    image, grid = wave(1, 1, 3, 3), wave(1, 2, 2, 2)
    want = F.grid_sample(image, grid, "nearest", "reflection", True)
    assert dt.equal(NAMES["grid_sampler"](image, grid, 1, 2, True), want)
    assert dt.equal(NAMES["constant_pad_nd"](x, (1, 0), 2.0), F.pad(x, (1, 0), value=2.0))


def test_dropouts_in_place():
    dt.manual_seed(0)
    x = dt.ones(4, 8)
    assert NAMES["dropout_"](x, 0.5, True) is x and 0 < int((x == 0).sum()) < 32
    assert dt.equal(NAMES["feature_dropout"](A, 0.5, False), A)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_networks_and_cells_from_their_weights(kind):
    dt.manual_seed(0)
    net = getattr(dt.nn, kind)(3, 4, num_layers=2, bidirectional=True)
    name = {"RNN": "rnn_tanh"}.get(kind, kind.lower())
    x = wave(5, 2, 3)
    states = (wave(4, 2, 4), wave(4, 2, 4).cos())[: 2 if kind == "LSTM" else 1]
    given = states if kind == "LSTM" else states[0]
    outputs, last = net(x, given)
    last = last if isinstance(last, tuple) else (last,)
    found = NAMES[name](x, given, list(net.parameters()), True, 2, 0.0, False, True, False)
    assert all(dt.equal(a, b) for a, b in zip(found, (outputs, *last), strict=True))
    packed = dt.nn.utils.rnn.pack_padded_sequence(x, [5, 3])
    want = net(packed, given)[0].data
    args = (packed.data, packed.batch_sizes, given, list(net.parameters()), True, 2, 0.0, False)
    assert dt.equal(NAMES[name](*args, True)[0], want)
    cell = getattr(dt.nn, f"{kind}Cell")(3, 4)
    state = tuple(s[0] for s in states) if kind == "LSTM" else states[0][0]
    one = NAMES[f"{name}_cell"](x[0], state, *cell.parameters())
    want = cell(x[0], state)
    pairs = zip(one, want, strict=True) if kind == "LSTM" else [(one, want)]
    assert all(dt.equal(a, b) for a, b in pairs)
