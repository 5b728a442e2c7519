"""Caches and saved elements."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.data.pipeline import Pipeline
from disttrain.errors import ConfigError, SerializationError


def items(pipeline):
    return [np.asarray(x).tolist() for x in pipeline.as_numpy_iterator()]


@pytest.fixture
def counted():
    read = []
    make = Pipeline.from_generator(lambda: (read.append(i) or i for i in range(4)))
    return make, read


@pytest.mark.parametrize("file", [False, True])
def test_the_source_is_read_once(counted, tmp_path, file):
    source, read = counted
    made = source.cache(str(tmp_path / "kept") if file else "")
    it = iter(made)
    next(it)
    it.close()  # nothing is kept of a part
    assert list(tmp_path.iterdir()) == []
    for _ in range(3):
        assert items(made) == [0, 1, 2, 3]
    assert len(read) == 1 + 4
    assert len(list(tmp_path.iterdir())) == file


def test_what_is_given_can_be_written_to():
    made = Pipeline.range(3).cache()
    for _ in range(3):
        assert [x.add_(1).item() for x in made] == [1, 2, 3]


def test_two_passes_may_make_it_at_once(tmp_path):
    made = Pipeline.range(3).cache(str(tmp_path / "kept"))
    pairs = zip(iter(made), iter(made), strict=True)
    assert [(a.item(), b.item()) for a, b in pairs] == [(0, 0), (1, 1), (2, 2)]
    assert items(made) == [0, 1, 2] and len(list(tmp_path.iterdir())) == 1


def test_a_damaged_file_is_told(tmp_path):
    path = tmp_path / "kept"
    items(Pipeline.range(3).cache(str(path)))
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(SerializationError, match="ends within"):
        items(Pipeline.range(3).cache(str(path)))
    path.write_bytes(b"something else")
    with pytest.raises(SerializationError, match="no file of a pipeline"):
        items(Pipeline.range(3).cache(str(path)))


def test_save_and_load(tmp_path):
    made = Pipeline.from_tensor_slices({"a": np.arange(4.0).reshape(2, 2), "t": ["x", "y"]})
    made.save(str(tmp_path / "set"))
    again = Pipeline.load(str(tmp_path / "set"))
    assert [(d["a"].tolist(), d["t"]) for d in again] == [([0, 1], b"x"), ([2, 3], b"y")]
    assert again.element_spec == made.element_spec
    with pytest.raises(FileNotFoundError):
        Pipeline.load(str(tmp_path / "other"))


@pytest.mark.parametrize("count", range(10))
@pytest.mark.parametrize("file", [False, True])
def test_a_position_within(tmp_path, count, file):
    def make():
        return Pipeline.range(4).cache(str(tmp_path / "kept") if file else "").repeat(2)

    whole = [0, 1, 2, 3] * 2
    it = iter(make())
    for _ in range(min(count, 8)):
        next(it)
    state = it.state_dict()
    it.close()
    other = iter(make())
    other.load_state_dict(state)
    assert [x.item() for x in other] == whole[count:]


def test_windows_can_be_kept_and_other_pipelines_cannot():
    made = Pipeline.range(4).window(2).cache()
    for _ in range(2):
        assert [[x.item() for x in w] for w in made] == [[0, 1], [2, 3]]
    it = iter(Pipeline.range(4).map(lambda x: Pipeline.range(x).map(lambda y: y)).prefetch(2))
    next(it)
    with pytest.raises(ConfigError, match="pipelines of functions"):
        it.state_dict()
    it.close()
