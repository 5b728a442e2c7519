"""Embeddings: gradients by frequency, rows shortened."""

import numpy as np

from disttrain import core, nn


def tensor(values, kind=np.float64):
    return core.wrap(np.array(values, kind))


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
