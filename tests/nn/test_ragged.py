"""Packed sequences in programs that are given the lengths."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn, tree
from disttrain.errors import ShapeError
from disttrain.nn import ragged
from disttrain.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from support.onnx_runs import written

WHICH = ({0: "b", 1: "t"}, {0: "b"})
KINDS = [
    ("LSTM", {"bidirectional": True, "num_layers": 2}),
    ("LSTM", {"proj_size": 2}),
    ("GRU", {"bidirectional": True}),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
]


class Net(nn.Module):
    """A layer over packed sequences from states that are not zero."""

    def __init__(self, kind, value=0.0, **how):
        super().__init__()
        self.net, self.value = getattr(nn, kind)(3, 4, batch_first=True, **how), value

    def forward(self, x, lengths):
        count = self.net.num_layers * (2 if self.net.bidirectional else 1)
        widths = [self.net.proj_size or 4, 4][: 1 + (self.net.mode == "LSTM")]
        start = tuple(dt.full((count, x.shape[0], n), 0.3) for n in widths)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, state = self.net(packed, start if len(start) > 1 else start[0])
        padded = pad_packed_sequence(
            out, batch_first=True, padding_value=self.value, total_length=x.shape[1] + 1
        )
        return padded, state


def given():
    return [(dt.randn(len(n), t, 3), dt.tensor(n))
            for t, n in ((5, [5, 2, 3]), (7, [1, 6]), (4, [4]))]  # fmt: skip


@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_programs_do_what_the_layer_does(kind, how):
    model = Net(kind, -1.0, **how)
    program = dt.export(model, given()[0], dynamic=WHICH)
    for args in given():
        want, found = tree.leaves(model(*args)), tree.leaves(program(*args))
        assert len(want) == len(found)
        for a, b in zip(want, found):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize(("kind", "how"), [KINDS[0], KINDS[2]])
def test_they_are_written_as_onnx(kind, how):
    made = written(Net(kind, **how), *given(), dynamic=WHICH)
    assert kind in {node.op_type for node in made.model_proto.graph.node}


def test_lengths_of_another_count_are_refused():
    with pytest.raises(ShapeError, match=r"Expected `len\(lengths\)` to be equal"):
        ragged.packed(dt.randn(3, 4, 3), dt.tensor([4, 2]), True)
