"""Files of PyTorch are read as it reads them, and ours in its format are read by it."""

from __future__ import annotations

import collections
import io
import random

import pytest

KINDS = """float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool
complex64 complex128 float8_e4m3fn float8_e5m2""".split()
SEEDS = 150


def drawn(T, seed):
    """A value that both can have, of the library ``T``: the same for a seed."""
    rng = random.Random(seed)
    kept = []

    def tensor():
        if kept and rng.random() < 0.3:
            return part(rng.choice(kept))
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        count = 1
        for n in shape:
            count *= n
        made = (T.arange(count) % 5).reshape(shape).to(getattr(T, rng.choice(KINDS)))
        if made.dtype in (T.float32, T.float64, T.complex64):
            if rng.random() < 0.3:
                return T.nn.Parameter(made, requires_grad=rng.random() < 0.7)
            if rng.random() < 0.2:
                made.requires_grad_()
        kept.append(made)
        return made

    def part(x):
        x = x.detach()
        how = rng.randrange(4)
        if how == 0 or not x.dim():
            return x.reshape(-1)
        if how == 1:
            return x.transpose(0, -1)
        if how == 2:
            return x[rng.randrange(x.shape[0] + 1) :]
        return x[..., :1]

    def value(depth):
        kind = rng.random()
        if depth > 3 or kind < 0.4:
            return tensor() if rng.random() < 0.6 else plain()
        size = rng.randrange(5)
        if kind < 0.6:
            return [value(depth + 1) for _ in range(size)]
        if kind < 0.7:
            return tuple(value(depth + 1) for _ in range(size))
        keys = rng.sample(["a", "b", 3, (1, "x"), "ü", -1, 2.5], size)
        make = collections.OrderedDict if kind > 0.9 else dict
        return make((k, value(depth + 1)) for k in keys)

    def plain():
        return rng.choice((
            None, True, 7, -300, 2**33, -(2**66), 0.1, "text", "", b"\xff\0", 1j,
            {1, "a"}, T.Size([2, 3]), T.float16, T.device("cpu"), collections.Counter("aab"),
        ))  # fmt: skip

    return [value(0) for _ in range(3)]


def plainly(x):
    """A tree of what can be compared, of either library."""
    kind = type(x).__name__
    if hasattr(x, "requires_grad") and hasattr(x, "stride"):
        wide = "complex128" if "complex" in str(x.dtype) else "float64"
        exact = str(x.dtype).rpartition(".")[2]
        text = x.detach().tolist() if "int" in exact else str(x.detach().to(
            getattr(__import__(type(x).__module__.partition(".")[0]), wide)).tolist())  # fmt: skip
        return kind, exact, tuple(x.shape), bool(x.requires_grad), text
    if isinstance(x, dict):
        return kind, [(plainly(k), plainly(v)) for k, v in x.items()]
    if isinstance(x, (list, tuple)):
        return kind, [plainly(v) for v in x]
    return kind, str(x).replace("torch.", "").replace("disttrain.", "")


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_pytorch_are_read(zipped):
    import torch

    import disttrain as dt

    for seed in range(SEEDS):
        given, file = drawn(torch, seed), io.BytesIO()
        try:
            torch.save(given, file, _use_new_zipfile_serialization=zipped)
        except RuntimeError:  # several types in one memory, which it does not save
            continue
        file.seek(0)
        assert plainly(dt.load(file)) == plainly(given), seed


@pytest.mark.peer
def test_files_in_its_format_are_read_by_pytorch(tmp_path):
    import torch

    import disttrain as dt

    for seed in range(SEEDS):
        given, path = drawn(dt, seed), tmp_path / "m.pt"
        dt.save(given, path, format="torch")
        for how in ({}, {"mmap": True}):
            found = torch.load(path, weights_only=True, **how)
            assert plainly(found) == plainly(given), (seed, how)
        assert plainly(dt.load(path)) == plainly(given), seed
