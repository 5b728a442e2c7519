"""Loss modules: the functions with their settings."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn

F = nn.functional
A, B, C = (dt.linspace(low, 2, 12).reshape(4, 3).sin() for low in (-2, -1, 0.5))
P, Q = A.sigmoid(), B.sigmoid()
CLASSES, SIGNS = dt.tensor([0, 2, 1, 2]), dt.tensor([1.0, -1.0, 1.0, -1.0])
CASES = {
    nn.MSELoss: (F.mse_loss, (A, B)), nn.L1Loss: (F.l1_loss, (A, B)),
    nn.SmoothL1Loss: (F.smooth_l1_loss, (A, B)), nn.HuberLoss: (F.huber_loss, (A, B)),
    nn.CrossEntropyLoss: (F.cross_entropy, (A, CLASSES)),
    nn.NLLLoss: (F.nll_loss, (A.log_softmax(1), CLASSES)),
    nn.BCELoss: (F.binary_cross_entropy, (P, Q)),
    nn.BCEWithLogitsLoss: (F.binary_cross_entropy_with_logits, (A, Q)),
    nn.PoissonNLLLoss: (F.poisson_nll_loss, (A, Q)),
    nn.GaussianNLLLoss: (F.gaussian_nll_loss, (A, B, P)),
    nn.SoftMarginLoss: (F.soft_margin_loss, (A[:, 0], SIGNS)),
    nn.HingeEmbeddingLoss: (F.hinge_embedding_loss, (A[:, 0], SIGNS)),
    nn.MarginRankingLoss: (F.margin_ranking_loss, (A[:, 0], B[:, 0], SIGNS)),
    nn.CosineEmbeddingLoss: (F.cosine_embedding_loss, (A, B, SIGNS)),
    nn.TripletMarginLoss: (F.triplet_margin_loss, (A, B, C)),
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kind", CASES, ids=lambda k: k.__name__)
def test_a_module_is_its_function(kind, reduction):
    fn, given = CASES[kind]
    found = kind(reduction=reduction)(*given)
    assert found.tolist() == fn(*given, reduction=reduction).tolist()
    assert (found.ndim == 0) == (reduction != "none")


def test_divergence_has_reductions_of_its_own():
    logs = A.log_softmax(1)
    whole = nn.KLDivLoss(reduction="sum")(logs, Q)
    assert nn.KLDivLoss(reduction="batchmean")(logs, Q).item() == pytest.approx(whole.item() / 4)
    assert nn.KLDivLoss(reduction="sum", log_target=True)(logs, logs).item() == pytest.approx(0)


def test_weights_are_buffers():
    module = nn.CrossEntropyLoss(weight=dt.tensor([1.0, 2.0, 3.0]), ignore_index=1)
    assert "weight" in dict(module.named_buffers())
    wanted = F.cross_entropy(A, CLASSES, weight=module.weight, ignore_index=1)
    assert module(A, CLASSES).item() == wanted.item()


def test_distances_as_modules():
    assert nn.CosineSimilarity(dim=1)(A, B).tolist() == F.cosine_similarity(A, B).tolist()
    assert nn.PairwiseDistance(p=1.0)(A, B).tolist() == F.pairwise_distance(A, B, 1.0).tolist()
