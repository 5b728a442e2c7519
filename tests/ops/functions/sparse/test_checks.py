"""Whether numbers of places are looked at is said for a rank, a block or a call."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain.errors import ShapeError

switch = dt.sparse.check_sparse_tensor_invariants
WRONG = ([0, 1, 4], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3))


def test_by_call_and_block():
    assert not switch.is_enabled()
    dt.sparse_csr_tensor(*WRONG)
    with pytest.raises(ShapeError):
        dt.sparse_csr_tensor(*WRONG, check_invariants=True)
    with switch():
        assert switch.is_enabled()
        with pytest.raises(ShapeError):
            dt.sparse_csr_tensor(*WRONG)
        with switch(False):
            dt.sparse_csr_tensor(*WRONG)
        dt.sparse_csr_tensor(*WRONG, check_invariants=False)
    assert not switch.is_enabled()


def test_as_a_decorator_and_for_good():
    with pytest.raises(ShapeError):
        switch()(dt.sparse_csr_tensor)(*WRONG)
    switch.enable()
    try:
        with pytest.raises(ShapeError):
            dt.sparse_csr_tensor(*WRONG)
    finally:
        switch.disable()
    dt.sparse_csr_tensor(*WRONG)


def test_places_that_are_said_to_be_in_order():
    with switch(), pytest.raises(ShapeError, match="is_coalesced"):
        dt.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (2,), is_coalesced=True)
    assert dt.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), is_coalesced=True).is_coalesced()
