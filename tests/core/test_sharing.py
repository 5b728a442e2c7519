"""Memory that several processes see: what moves there, what follows, how it is pickled."""

from __future__ import annotations

import copy
import gc
import mmap
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import ml_dtypes
import numpy as np
import pytest

import disttrain as dt
from disttrain.core import sharing
from disttrain.errors import AutogradError, DisttrainError
from support.dtrun import until
from support.shm import names


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def sent(value):
    """``value`` as another process would receive it."""
    return pickle.loads(bytes(ForkingPickler.dumps(value)))


# --- moving -------------------------------------------------------------------------------------


def test_views_and_other_tensors_over_the_memory_move_along():
    base = dt.arange(12.0).reshape(3, 4)
    row, column, turned = base[1], base[:, 2], base.t()
    inner, plain, data = row[1:3], base.detach(), row.data
    param = dt.nn.Parameter(base)
    everybody = [base, row, column, turned, inner, plain, data, param]
    assert not any(t.is_shared() for t in everybody)
    assert inner.share_memory_() is inner
    assert all(t.is_shared() for t in everybody)
    base[1, 1] = 100.0
    assert row[1] == inner[0] == turned[1, 1] == plain[1, 1] == data[1] == param[1, 1] == 100.0
    assert [t.stride() for t in (column, turned)] == [(4,), (1, 4)]
    assert inner.as_strided((2,), (1,)).is_shared() and inner.storage_offset() == 5
    column.fill_(7.0)
    assert base[:, 2].tolist() == [7.0] * 3 and param.is_leaf and param.requires_grad


def test_strangers_in_the_same_array_stay():
    """Tensors over parts of one numpy array know nothing of each other's memory."""
    array = np.arange(100.0, dtype=np.float32)
    one, other = dt.from_numpy(array[:10]), dt.from_numpy(array[10:])
    one.share_memory_()
    assert one.is_shared() and not other.is_shared()
    one[0] = 5.0
    assert array[0] == 0.0 and one.tolist()[1:] == list(range(1, 10))


def test_what_is_shared_stays_where_it_is():
    t = dt.ones(3).share_memory_()
    at = t.data_ptr()
    view = t[1:]
    assert view.is_shared() and t.share_memory_().data_ptr() == at
    assert dt.ones(0).share_memory_().shape == (0,)
    assert not dt.ones(2, device="meta").share_memory_().is_shared()


@pytest.mark.parametrize(
    "kind", [dt.float32, dt.float64, dt.bfloat16, dt.int64, dt.bool, dt.complex64, dt.uint8]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_every_type_and_shape(kind, shape):
    t = dt.ones(shape, dtype=kind)
    again = sent(t)
    assert again.dtype is kind and again.shape == shape and again.is_shared()
    t.fill_(0)
    assert not again.any()


def test_autograd_goes_on_after_the_move():
    w = dt.ones(3, requires_grad=True)
    y = (w * w).sum()
    w.share_memory_()
    y.backward()
    assert w.grad.tolist() == [2.0] * 3 and w.is_leaf
    (w * 3).sum().backward()
    assert w.grad.tolist() == [5.0] * 3


def test_a_module_moves_into_one_block():
    model = dt.nn.Sequential(dt.nn.Linear(3, 4), dt.nn.BatchNorm1d(4), dt.nn.Linear(4, 2))
    model[2].weight = model[2].weight
    x = dt.randn(5, 3)
    model.eval()
    gc.collect()  # what other tests have left
    before, open_before = model(x), fds()
    assert model.share_memory() is model
    assert fds() == open_before + 1
    assert all(t.is_shared() for t in [*model.parameters(), *model.buffers()])
    assert dt.equal(model(x), before)
    for p in model.parameters():  # each has a storage of its own
        assert p.storage_offset() == 0 and p.untyped_storage().nbytes() == p.nbytes
    del model, before, p
    gc.collect()
    assert fds() == open_before


def test_only_what_others_look_at_moves_together():
    """Neither what is alone, nor what numpy alone looks at, draws others along."""
    alone, base = dt.ones(5), dt.arange(6.0)
    row, seen = base[2:4], alone.numpy()
    together = [dt.zeros(4)]
    together += [together[0][1:3], together[0].detach()]
    sharing.share([alone, row, *together])
    assert all(t.is_shared() for t in (alone, base, row, *together))
    base[2], together[0][1], alone[0] = 9.0, 8.0, 7.0
    assert row[0] == 9.0 and together[1][0] == together[2][1] == 8.0 and seen[0] == 1.0
    assert base.tolist() == [0.0, 1.0, 9.0, 3.0, 4.0, 5.0] and alone.tolist() == [7.0, *[1.0] * 4]


# --- pickling -----------------------------------------------------------------------------------


def test_an_ordinary_pickle_is_a_copy():
    t = dt.ones(2, requires_grad=True)
    t.note = "mine"
    for again in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        again.data.fill_(3.0)
        assert again.requires_grad and again.note == "mine"
    assert not t.is_shared() and t.tolist() == [1.0, 1.0]
    copy.copy(t.detach().t()).fill_(4.0)
    assert t.tolist() == [4.0, 4.0] and copy.copy(t).note == "mine" and copy.copy(t).is_leaf
    bits = np.array([1.5], ml_dtypes.bfloat16)
    assert pickle.loads(pickle.dumps(dt.from_numpy(bits))).dtype is dt.bfloat16


def test_what_is_one_stays_one_in_a_pickle():
    t = dt.ones(4)
    pair = pickle.loads(pickle.dumps([t, t.detach(), t]))
    assert pair[0] is pair[2]
    pair[0].fill_(2.0)
    assert pair[1].tolist() == [2.0] * 4


def test_views_in_one_message_stay_views():
    base = dt.zeros(3, 4)
    again, row, part = sent([base, base[1], base[:, 2:].t()])
    base[1, 2] = 5.0
    assert again[1, 2] == row[2] == part[0, 1] == 5.0
    assert row.data_ptr() - again.data_ptr() == 16 and part.stride() == (1, 4)
    assert again.storage() == row.storage() and part.storage_offset() == 2


def test_a_block_comes_once():
    """Two messages with one memory give one mapping, and no descriptor stays open."""
    t = dt.zeros(4)
    first, second = sent(t), sent(t)
    assert first.data_ptr() == second.data_ptr() == t.data_ptr()
    before = fds()
    for _ in range(50):
        sent(t)
        sent(dt.ones(3))
    gc.collect()
    until(lambda: fds() <= before, "the lender to close what it has sent")


def test_no_aliases_are_looked_for_where_there_can_be_none(monkeypatch):
    """Looking for them means to look at every object of the program."""
    monkeypatch.setattr(gc, "get_objects", lambda: pytest.fail("looked for aliases"))
    for t in (dt.full((5,), 2.0), dt.ones(4) * 2, dt.zeros(3).add_(1), dt.nn.Linear(2, 3).weight):
        assert sent(t).is_shared()
    dt.nn.Sequential(dt.nn.Linear(2, 3), dt.nn.BatchNorm1d(3)).share_memory()


def test_classes_and_attributes_travel():
    p = dt.nn.Parameter(dt.ones(2), requires_grad=False)
    p.note = "mine"
    again = sent(p)
    assert type(again) is dt.nn.Parameter and not again.requires_grad and again.note == "mine"
    assert sent(dt.ones(2, requires_grad=True)).requires_grad
    assert sent(dt.ones(2, 3, device="meta")).is_meta
    assert sent(dt.ones(0, 3)).shape == (0, 3)


def test_no_graph_goes_to_another_process():
    w = dt.ones(2, requires_grad=True)
    with pytest.raises(AutogradError, match=r"(?s)made by Mul.*send t\.detach\(\)"):
        ForkingPickler.dumps(w * 2)
    assert sent((w * 2).detach()).tolist() == [2.0, 2.0]


def test_what_is_sent_once_is_received_once():
    message = bytes(ForkingPickler.dumps(dt.ones(2)))
    pickle.loads(message)
    with pytest.raises(DisttrainError, match="its sender does not have it any more"):
        pickle.loads(message)


def test_a_sender_that_is_gone_is_told_of():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, ForkingPickler.dumps(dt.ones(2)))
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(DisttrainError, match="must live until the tensor is received"):
        pickle.loads(os.read(reader, 10_000))
    os.close(reader), os.close(writer)


def test_a_forked_child_lends_for_itself():
    """A child has copies of its parent's tickets, and neither serves nor holds them."""
    message = bytes(ForkingPickler.dumps(dt.ones(2)))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        again = sent(dt.full((2,), 3.0))
        os.write(writer, b"ok" if again.tolist() == [3.0, 3.0] else b"no")
        os._exit(0)
    assert os.read(reader, 2) == b"ok" and os.waitpid(pid, 0)[1] == 0
    assert pickle.loads(message).tolist() == [1.0, 1.0]
    os.close(reader), os.close(writer)


def test_the_pickler_learns_of_tensors_whichever_is_imported_first():
    for order in ("disttrain, multiprocessing.reduction", "multiprocessing.reduction, disttrain"):
        program = (
            f"import {order}\nimport disttrain as dt, pickle\n"
            "from multiprocessing.reduction import ForkingPickler\n"
            "t = dt.zeros(2)\npickle.loads(ForkingPickler.dumps(t)).fill_(1.0)\nprint(t.sum())"
        )
        with os.popen(f"{sys.executable} -c '{program}'") as pipe:
            assert pipe.read() == "tensor(2.)\n"


# --- processes ----------------------------------------------------------------------------------


def write(model, t, queue, connection):
    """In another process: write to what was given, send something back."""
    with dt.no_grad():
        for p in model.parameters():
            p.fill_(2.0)
    t[0] = 7.0
    queue.put({"weight": model.weight, "made here": dt.arange(3.0)})
    connection.send([t, t[1:]])
    connection.recv()


def both_sides_see_what_either_writes(method):
    named = names()
    ctx = multiprocessing.get_context(method)
    model, t = dt.nn.Linear(3, 2).share_memory(), dt.zeros(4).share_memory_()
    queue, (here, there) = ctx.SimpleQueue(), ctx.Pipe()
    process = ctx.Process(target=write, args=(model, t, queue, there))
    process.start()
    got, (again, part) = queue.get(), here.recv()
    assert model.weight.eq(2.0).all() and t.tolist() == [7.0, 0.0, 0.0, 0.0]
    got["weight"].data.fill_(3.0)
    part.fill_(9.0)
    assert model.weight.eq(3.0).all() and t.tolist() == [7.0, 9.0, 9.0, 9.0] == again.tolist()
    assert got["made here"].tolist() == [0.0, 1.0, 2.0] and got["weight"].requires_grad
    here.send(None)
    process.join()
    assert process.exitcode == 0
    assert names() == named


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_both_sides_see_what_either_writes(method):
    """In a process of its own: multiprocessing starts helpers and leaves them running."""
    root = os.path.dirname(os.path.dirname(dt.__file__))
    env = {**os.environ, "PYTHONPATH": f"{root}:{root}/tests"}
    subprocess.run([sys.executable, __file__, method], env=env, check=True, timeout=50)


if __name__ == "__main__":
    both_sides_see_what_either_writes(sys.argv[1])


# --- deep copies ---------------------------------------------------------------------------------
def _family(copied=False):
    """Tensors that share memory in every way, a parameter and modules among them; ``copied``: as
    deep copies do, of which parameters lie in memory of their own."""
    base = dt.arange(12.0)
    layer, tied = dt.nn.Linear(3, 4, bias=False), dt.nn.Linear(3, 4, bias=False)
    layer.weight.data = base.view(4, 3).clone() if copied else base.view(4, 3)
    leaf = base.detach().requires_grad_()
    leaf.grad = dt.ones(12)
    tied.weight = layer.weight
    optimizer = dt.optim.SGD(layer.parameters(), lr=0.1, momentum=0.5)
    return [base, base[2:5], base.view(3, 4).t(), base.detach(), base.data, layer.weight, layer,
            tied, optimizer, base[:0], leaf, leaf.grad]  # fmt: skip


def _values(things):
    return [x.detach().tolist() if isinstance(x, dt.Tensor) else None for x in things]


def _write(things, order):
    for i in order:
        if isinstance(things[i], dt.Tensor):
            with dt.no_grad():
                things[i].mul_(2).add_(i)


@pytest.mark.parametrize("seed", range(12))
def test_deep_copies_share_what_their_originals_share(seed):
    order = random.Random(seed).sample(range(12), 12)
    family, other = _family(), _family(copied=True)
    before = _values(family)
    copied = dict(zip(order, copy.deepcopy([family[i] for i in order]), strict=True))
    assert copied[6].weight is copied[5] is copied[7].weight
    assert copied[8].param_groups[0]["params"][0] is copied[5]
    assert copied[10].grad is copied[11]
    _write(copied, order)
    _write(other, order)
    assert _values(copied[i] for i in range(12)) == _values(other)
    assert _values(family) == before


def test_a_deep_copy_of_shared_memory_is_a_copy_of_its_own():
    x = dt.arange(6.0).share_memory_()
    y, z = copy.deepcopy((x, x[1:]))
    y.zero_()
    assert z.tolist() == [0.0] * 5 and x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    mapped = dt.from_numpy(np.frombuffer(mmap.mmap(-1, 1 << 20), np.float32)[:4])
    y, z = copy.deepcopy((mapped, mapped.detach()))  # not of the whole mapping
    y.fill_(1)
    assert z.tolist() == [1.0] * 4 and mapped.tolist() == [0.0] * 4
    assert len(y.untyped_storage()) == 16


def test_a_deep_copy_keeps_strides_and_write_counts_apart_from_its_original():
    x = dt.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=dt.channels_last)
    y = copy.deepcopy(x)
    assert y.stride() == x.stride() == (24, 1, 8, 2)
    y.add_(1)
    assert (x._version, y._version) == (0, 1)
