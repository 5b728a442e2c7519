"""Losses by their formulas, at their margins, and with extreme values."""

import numpy as np
import pytest

from disttrain import core, nn

F = nn.functional


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


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


def test_losses_with_a_margin_have_a_gradient_at_it():
    a, b = tensor([2.0, 1.0]).requires_grad_(), tensor([1.0, 1.0])
    F.margin_ranking_loss(a, b, tensor([1.0, 1.0]), margin=1.0, reduction="sum").backward()
    assert a.grad.tolist() == [-1, -1]
    c = tensor([0.5]).requires_grad_()
    F.hinge_embedding_loss(c, tensor([-1.0]), margin=0.5).backward()
    assert c.grad.tolist() == [-1]


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
