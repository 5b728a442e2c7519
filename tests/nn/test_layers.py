"""Layers beyond the table of modules: values by formula, errors, lazy forms, training."""

import numpy as np
import pytest

from disttrain import core, nn
from disttrain.errors import ConfigError, DTypeError, ShapeError

F = nn.functional


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


def randn(*shape, seed=0):
    return core.wrap(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


# --- values by formula -------------------------------------------------------------------------


def test_padding_by_reflection_looks_at_what_is_cropped():
    x = tensor([[[0.0, 1.0, 2.0]]])
    assert F.pad(x, (2, -1), mode="reflect").tolist() == [[[2, 1, 0, 1]]]
    assert F.pad(x, (1, -1), mode="circular").tolist() == [[[1, 0, 1]]]


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


# --- lazy --------------------------------------------------------------------------------------


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
        (lambda: nn.ReflectionPad2d(3), lambda: randn(1, 1, 3, 3), ["less than the corresp"]),
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


def test_sequences_are_repeated_and_joined():
    a, b = nn.Linear(2, 2), nn.ReLU()
    n = nn.Sequential(a, b)
    assert list(2 * n) == list(n * 2) == [a, b, a, b]
    n *= 2
    n += nn.Sequential(b)
    assert [*n] == [a, b, a, b, b]
    for times in (0, 1.5):
        with pytest.raises((ConfigError, TypeError)):
            n * times


def test_a_dict_of_parameters_is_a_dict():
    one, two = nn.Parameter(randn(2)), nn.Parameter(randn(3))
    d = nn.ParameterDict({"b": one, "a": two})
    assert list(reversed(d)) == list(d)[::-1]
    assert d.setdefault("c") is None
    assert d.popitem() == ("c", None)
    other = nn.ParameterDict({"b": two})
    assert (d | other)["b"] is two
    assert d["b"] is one
    d |= other
    assert d["b"] is two
    copied = d.copy()
    d.clear()
    assert not len(d)
    assert len(copied) == 2
    assert dict(d.fromkeys("xy", one).items()) == {"x": one, "y": one}


def test_a_group_of_one_value_is_refused():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        nn.GroupNorm(4, 4)(randn(1, 4, 1))
