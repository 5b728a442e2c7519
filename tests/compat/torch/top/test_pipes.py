"""Datapipes: datasets made of each other, by methods that classes register."""

from __future__ import annotations

import pytest

from disttrain.compat.torch.top import pipes
from disttrain.data import DataLoader


class Numbers(pipes.IterDataPipe):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def test_methods_make_pipes_of_pipes():
    @pipes.functional_datapipe("test_doubled")
    class Doubled(pipes.IterDataPipe):
        def __init__(self, source, by=2):
            self.source, self.by = source, by

        def __iter__(self):
            return (self.by * x for x in self.source)

    try:
        found = Numbers(3).test_doubled(by=3)
        assert list(found) == [0, 3, 6] and isinstance(found, Doubled)
        assert [b.tolist() for b in DataLoader(found, 2)] == [[0, 3], [6]]
        with pytest.raises(RuntimeError, match="already taken"):
            pipes.functional_datapipe("test_doubled")(Doubled)
        with pytest.raises(AttributeError, match="no attribute 'missing'"):
            Numbers(1).missing
        assert not hasattr(pipes.MapDataPipe(), "test_doubled")
    finally:
        del pipes.IterDataPipe.functions["test_doubled"]


def test_marks_and_batches():
    names = pipes.names()
    assert names["non_deterministic"](Numbers) is Numbers
    assert names["non_deterministic"](lambda: True)(Numbers) is Numbers
    assert names["argument_validation"](len) is len
    with names["runtime_validation_disabled"](), names["guaranteed_datapipes_determinism"]():
        pass
    chunk = pipes.DataChunk([1, 2])
    assert chunk.as_str() == "[1, 2]" and list(chunk.raw_iterator()) == [1, 2] == chunk
