"""IDX files: what MNIST and its relatives look like, and every way to be something else."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from disttrain.errors import ConfigError, SerializationError
from training.idx import read_folder, read_idx


def idx_bytes(array: np.ndarray) -> bytes:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_folder(folder: Path, names=("train", "t10k"), packed=False) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    written = {}
    for name, count in zip(names, (20, 8)):
        images = draw.integers(0, 256, (count, 5, 4)).astype(np.uint8)
        labels = (np.arange(count) % 3).astype(np.uint8)
        for kind, array, num_dims in (("images", images, 3), ("labels", labels, 1)):
            data = idx_bytes(array)
            path = folder / f"{name}-{kind}-idx{num_dims}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)
            written[f"{name}-{kind}"] = array
    return written


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("names", [("train", "t10k"), ("emnist-letters-train", "x-test")])
def test_folder(tmp_path, packed, names):
    written = write_folder(tmp_path, names, packed)
    parts = read_folder(tmp_path)
    for part, name in zip(("train", "test"), names):
        np.testing.assert_array_equal(parts[part][0], written[f"{name}-images"])
        np.testing.assert_array_equal(parts[part][1], written[f"{name}-labels"])


GOOD = idx_bytes(np.zeros((2, 3, 3), np.uint8))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "starts with nothing"),
        (b"\x89PNG....", "starts with 89 50 4e 47"),
        (b"\0\0\x0d\x03" + GOOD[4:], "element type 0x0d"),
        (idx_bytes(np.zeros(4)), "in 1 dimensions"),
        (GOOD[:9], "ends inside its header"),
        (GOOD[:-1], "promises 18 bytes for shape (2, 3, 3); the file has only 17"),
        (GOOD + b"x", "the file has more"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 2**31), "is empty or over"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 0, 28, 28), "is empty or over"),
        (gzip.compress(GOOD)[:-10], "damaged gzip data"),
        (b"\x1f\x8b\xff\xff\xff\xff", "damaged gzip data"),
    ],
)
def test_damaged_files(tmp_path, data, said):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(SerializationError) as info:
        read_idx(path, 3)
    assert said in str(info.value) and str(path) in str(info.value)


def test_packed_zeros_are_not_unpacked_beyond_the_header(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(GOOD + bytes(50_000_000)))
    with pytest.raises(SerializationError, match="the file has more"):
        read_idx(path, 3)


def test_folders_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigError, match="is no folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"has no file \*train-images\*"):
        read_folder(tmp_path)
    write_folder(tmp_path)
    (tmp_path / "other-train-images-idx3-ubyte").write_bytes(GOOD)
    with pytest.raises(ConfigError, match="several files"):
        read_folder(tmp_path)
    (tmp_path / "other-train-images-idx3-ubyte").unlink()
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(3)))
    with pytest.raises(SerializationError, match="3 labels for 20 images"):
        read_folder(tmp_path)


def test_plain_file_goes_before_the_packed_one(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"broken")
    assert len(read_folder(tmp_path)["train"][0]) == 20
