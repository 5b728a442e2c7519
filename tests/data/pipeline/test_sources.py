"""Sources: memory, functions, files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import disttrain as dt
from disttrain.data.pipeline import Pipeline, TensorSpec
from disttrain.errors import ConfigError, ShapeError


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


def test_slices_are_copies():
    rows = np.arange(4.0)
    for x in Pipeline.from_tensor_slices(rows):
        x.add_(10)
    assert rows.tolist() == [0, 1, 2, 3]


def test_slices_of_a_structure():
    made = Pipeline.from_tensor_slices((dt.arange(2), {"a": ["x", "y"]}))
    assert [(a.item(), b["a"]) for a, b in made] == [(0, b"x"), (1, b"y")]
    with pytest.raises(ShapeError, match="same first size"):
        Pipeline.from_tensor_slices(([1, 2], [1]))
    with pytest.raises(ShapeError, match="same first size"):
        Pipeline.from_tensor_slices(5)


def test_a_generator_is_called_anew_and_closed():
    begun, closed = [], []

    def numbers():
        begun.append(1)
        try:
            yield from range(5)
        finally:
            closed.append(1)

    made = Pipeline.from_generator(numbers)
    assert items(made) == items(made) == [0, 1, 2, 3, 4]
    it = iter(made)
    next(it)
    it.close()
    assert (len(begun), len(closed)) == (3, 3)


def test_a_generator_that_raises_ends_after_it():
    def numbers():
        yield 1
        raise KeyError("here")

    it = iter(Pipeline.from_generator(numbers).map(lambda x: x + 1))
    assert next(it).item() == 2
    with pytest.raises(KeyError, match="here") as caught:
        next(it)
    assert "numbers" in [entry.name for entry in caught.traceback]
    with pytest.raises(StopIteration):
        next(it)


def test_a_signature_converts_and_checks():
    spec = (TensorSpec((None,), np.dtype(np.float32)), TensorSpec((), "string"))
    made = Pipeline.from_generator(lambda: iter([([1, 2], "a"), ([], b"b")]), spec)
    (a, t), (b, u) = made
    assert (a.dtype, t, b.tolist(), u) == (dt.float32, b"a", [], b"b")
    assert made.element_spec == spec
    with pytest.raises(ShapeError, match="element 0 does not fit"):
        next(iter(Pipeline.from_generator(lambda: [1], spec)))
    with pytest.raises(ConfigError, match="function without arguments"):
        Pipeline.from_generator([1, 2])


def test_lines_and_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\n\nlast")
    with gzip.open(tmp_path / "b.txt", "wb") as file:
        file.write(b"x\ny\n")
    assert list(Pipeline.text_lines(str(tmp_path / "a.txt"))) == [b"one", b"two", b"", b"last"]
    assert list(Pipeline.text_lines([str(tmp_path / "b.txt")], "GZIP")) == [b"x", b"y"]
    names = Pipeline.list_files(str(tmp_path / "*.txt"), shuffle=False)
    assert [n.decode()[-5:] for n in names] == ["a.txt", "b.txt"]
    with pytest.raises(ConfigError, match="no files match"):
        Pipeline.list_files(str(tmp_path / "*.csv"))
    with pytest.raises(FileNotFoundError):
        list(Pipeline.text_lines(str(tmp_path / "c")))


def test_a_missing_file_is_one_error_and_the_next_is_read(tmp_path):
    (tmp_path / "b").write_text("x\n")
    it = iter(Pipeline.text_lines([str(tmp_path / "a"), str(tmp_path / "b")]))
    with pytest.raises(FileNotFoundError):
        next(it)
    assert list(it) == [b"x"]


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_position_in_files(tmp_path, parallel):
    for name in "ab":
        (tmp_path / name).write_text("".join(f"{name}{i}\n" for i in range(4)))
    files = [str(tmp_path / name) for name in "ab"]
    make = lambda: Pipeline.text_lines(files, num_parallel_reads=parallel)
    whole = list(make())
    for count in range(9):
        it = iter(make())
        for _ in range(count):
            next(it)
        other = iter(make())
        other.load_state_dict(it.state_dict())
        assert list(other) == whole[count:]
