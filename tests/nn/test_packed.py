"""Packed sequences, and recurrent layers over them."""

import copy

import numpy as np
import pytest

import disttrain as dt
from disttrain import nn
from disttrain.nn.utils import rnn as utils

LENGTHS = [3, 5, 1, 5, 2]


def sequences(features=(), dtype="f4"):
    rng = np.random.default_rng(0)
    return [dt.tensor(rng.standard_normal((n, *features)).astype(dtype)) for n in LENGTHS]


def test_rows_stand_step_by_step():
    a, b, c = dt.tensor([1, 2, 3]), dt.tensor([4, 5]), dt.tensor([6])
    packed = utils.pack_sequence([b, c, a], enforce_sorted=False)
    assert packed.data.tolist() == [1, 4, 6, 2, 5, 3] and packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.sorted_indices.tolist() == [2, 0, 1]
    assert packed.unsorted_indices.tolist() == [1, 2, 0]
    plain = utils.pack_sequence([a, b, c])
    assert plain.data.tolist() == packed.data.tolist() and plain.sorted_indices is None


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("features", [(), (3,), (2, 4)])
def test_packing_and_padding_undo_each_other(batch_first, features):
    given = sequences(features)
    padded = utils.pad_sequence(given, batch_first)
    packed = utils.pack_padded_sequence(padded, LENGTHS, batch_first, enforce_sorted=False)
    assert packed.data.shape[0] == sum(LENGTHS)
    again, lengths = utils.pad_packed_sequence(packed, batch_first)
    assert lengths.tolist() == LENGTHS
    np.testing.assert_array_equal(again.numpy(), padded.numpy())
    longer, _ = utils.pad_packed_sequence(packed, batch_first, padding_value=7.0, total_length=8)
    assert longer.shape[1 if batch_first else 0] == 8
    last = longer[:, -1] if batch_first else longer[-1]
    assert (last.numpy() == 7.0).all()
    for a, b in zip(given, utils.unpack_sequence(packed), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_gradients_go_back_to_what_is_no_padding():
    padded = utils.pad_sequence(sequences((2,))).requires_grad_()
    packed = utils.pack_padded_sequence(padded, dt.tensor(LENGTHS), enforce_sorted=False)
    (packed.data * 2).sum().backward()
    for i, n in enumerate(LENGTHS):
        assert (padded.grad.numpy()[:n, i] == 2).all() and (padded.grad.numpy()[n:, i] == 0).all()


def test_types_and_copies():
    packed = utils.pack_sequence(sequences((2,)), enforce_sorted=False)
    assert packed.double().data.dtype is dt.float64 and packed.float() is packed
    assert packed.long().batch_sizes is packed.batch_sizes and packed.cpu() is packed
    twin = copy.deepcopy(packed)
    assert isinstance(twin, utils.PackedSequence) and twin.data is not packed.data
    data, sizes, *_ = packed
    assert utils.PackedSequence((data, sizes)).batch_sizes is sizes


def test_mistakes_are_named():
    x = dt.ones(3, 3)
    with pytest.raises(RuntimeError, match=r"sorted in decreasing order .* `enforce_sorted=False`"):
        utils.pack_padded_sequence(x, [1, 3, 2])
    with pytest.raises(RuntimeError, match="empty tensors"):
        utils.pack_padded_sequence(dt.ones(0, 0), [])
    with pytest.raises(RuntimeError, match="greater than 0"):
        utils.pack_padded_sequence(x, [3, 2, 0])
    with pytest.raises(RuntimeError, match="to be equal to batch_size"):
        utils.pack_padded_sequence(x, [3, 2])
    with pytest.raises(RuntimeError, match="padded to 3"):
        utils.pack_padded_sequence(x, [4, 2, 1])
    with pytest.raises(ValueError, match="Expected total_length to be at least the length"):
        utils.pad_packed_sequence(utils.pack_padded_sequence(x, [3, 2, 1]), total_length=2)
    with pytest.raises(RuntimeError, match="Expected iterable"):
        utils.pad_sequence(5)
    with pytest.raises(RuntimeError, match="packed data of shape"):
        nn.GRU(4, 2)(utils.pack_sequence(sequences((3,)), enforce_sorted=False))
    with pytest.raises(ValueError, match="only supported for LSTM"):
        nn.GRU(4, 2, proj_size=1)


def layers():
    for name in ("RNN", "GRU", "LSTM"):
        yield name, {}
        yield name, {"num_layers": 2, "bidirectional": True}
    yield "LSTM", {"num_layers": 2, "bidirectional": True, "proj_size": 2, "batch_first": True}


@pytest.mark.parametrize("name, args", list(layers()), ids=str)
@pytest.mark.parametrize("given", [False, True])
def test_each_packed_sequence_gets_what_it_gets_alone(name, args, given):
    dt.manual_seed(0)
    net = getattr(nn, name)(3, 4, **args).double()
    alone = [s.clone().requires_grad_() for s in sequences((3,), "f8")]
    together = [s.detach().clone().requires_grad_() for s in alone]
    count = net.num_layers * net._directions
    start = [dt.randn(count, len(alone), w, dtype=dt.float64) for w in net._widths]

    def state(parts):
        return None if not given else tuple(parts) if name == "LSTM" else parts[0]

    def flat(end):
        return list(end) if isinstance(end, tuple) else [end]

    outs, ends = [], []
    for i, s in enumerate(alone):
        out, end = net(s, state([t[:, i] for t in start]))
        outs.append(out)
        ends.append(flat(end))
    packed = utils.pack_sequence(together, enforce_sorted=False)
    out, end = net(packed, state(start))
    for a, b in zip(outs, utils.unpack_sequence(out), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-12)
    for k, t in enumerate(flat(end)):
        want = np.stack([e[k].detach().numpy() for e in ends], 1)
        np.testing.assert_allclose(t.detach().numpy(), want, atol=1e-12)
    sum((o * o).sum() for o in outs).backward()
    (out.data * out.data).sum().backward()
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-12)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name, args", list(layers()), ids=str)
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_are_those_of_pytorch(name, args, packed):
    import torch

    net = getattr(nn, name)(3, 4, **args)
    other = getattr(torch.nn, name)(3, 4, **args)
    other.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in net.state_dict().items()})
    given = sequences((3,))
    theirs = [torch.from_numpy(s.numpy()) for s in given]
    if packed:
        a, end_a = net(utils.pack_sequence(given, enforce_sorted=False))
        b, end_b = other(torch.nn.utils.rnn.pack_sequence(theirs, enforce_sorted=False))
        a, b = a.data, b.data
    else:
        first = args.get("batch_first", False)
        a, end_a = net(utils.pad_sequence(given, first))
        b, end_b = other(torch.nn.utils.rnn.pad_sequence(theirs, first))
    ends = zip(end_a, end_b) if isinstance(end_a, tuple) else [(end_a, end_b)]
    for mine, their in [(a, b), *ends]:
        np.testing.assert_allclose(mine.detach(), their.detach().numpy(), rtol=1e-5, atol=1e-6)
