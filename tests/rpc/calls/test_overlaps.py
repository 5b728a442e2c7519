"""Tensors of one message that share memory share it on the other side."""

import random

import pytest

import disttrain as dt
from disttrain.rpc.calls.packing import Packer, arrays_of

VIEWS = (
    lambda b: b,
    lambda b: b[1],
    lambda b: b[:, 1],
    lambda b: b[:, 2:],
    lambda b: b.t(),
    lambda b: b.view(-1),
    lambda b: b[::2],
    lambda b: b.detach(),
    lambda b: b[0:2],
    lambda b: b[1:3],
    lambda b: b[3:],
    lambda b: b[1, 2],
    lambda b: b.data,
    lambda b: dt.nn.Parameter(b) if b.is_floating_point() else b,
    lambda b: b.clone(),
)


def copied(obj):
    payload, tensors = Packer().pack(obj)
    return Packer().unpack(payload, [dt.from_numpy(a.copy()) for a in arrays_of(tensors)])


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.bool, dt.complex128])
def test_a_write_is_seen_by_the_same_tensors_as_at_the_sender(dtype):
    for seed in range(40):
        draw = random.Random(seed)
        base = dt.arange(12).reshape(3, 4).to(dtype)
        sent = [draw.choice(VIEWS)(base) for _ in range(draw.randint(2, 5))]
        got = copied(sent)
        for n in range(len(sent)):
            with dt.no_grad():
                sent[n].fill_(n % 2), got[n].fill_(n % 2)
            assert [t.tolist() for t in got] == [t.tolist() for t in sent], seed
        assert [t.requires_grad for t in got] == [t.requires_grad for t in sent]


def test_autograd_notices_a_write_through_another_tensor():
    weight = dt.ones(3)
    got = copied([weight, weight[:2]])
    x = dt.ones(3, requires_grad=True)
    y = x * got[0]
    got[1].add_(1)
    with pytest.raises(RuntimeError, match=r"in-place|inplace|modified"):
        y.sum().backward()


def test_parts_of_one_tensor_that_do_not_meet_are_sent_as_they_are():
    big = dt.arange(10_000.0).reshape(100, 100)
    payload, tensors = Packer().pack([*big.chunk(4), *big.chunk(4, dim=1)][:4])
    assert sum(a.nbytes for a in arrays_of(tensors)) == 40_000 and payload[:1] == b"\x80"
    far = dt.zeros(100_000)
    _, tensors = Packer().pack([far[::50_000], far[:1]])
    assert sum(a.nbytes for a in arrays_of(tensors)) < 100
