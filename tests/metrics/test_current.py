"""The writer and the step in force."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.metrics import current


def test_numbers_go_to_the_writer_in_force(tmp_path):
    writer = current.Writer(str(tmp_path))
    with writer.as_default(step=1):
        assert current.write("scalar", "loss", dt.tensor(0.5))
        assert current.write("write", "raw", dt.ones(2), 3)
        with current.held(current.NAMES, ("inner",)) as (name, _):
            assert name == "inner"
            assert current.write("histogram", "h", dt.arange(4))
        with current.held(current.RECORD, lambda: False):
            assert not current.write("scalar", "no", 1)
    assert not current.write("scalar", "outside", 1, 1)
    writer.close()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert all(tag in data for tag in (b"loss", b"raw", b"inner/h"))
    assert b"outside" not in data


def test_a_step_is_needed(tmp_path):
    writer = current.Writer(str(tmp_path))
    with writer.as_default(), pytest.raises(ValueError, match="No step set"):
        current.write("scalar", "loss", 1)
    writer.close()
    with pytest.raises(ValueError, match="cannot be None"):
        current.writer_of(None)
    current.writer_of(tmp_path / "more", ".x").close()
    assert [f.suffix for f in (tmp_path / "more").iterdir()] == [".x"]
    with current.Writer().as_default(1):
        assert not current.write("scalar", "loss", 1)
