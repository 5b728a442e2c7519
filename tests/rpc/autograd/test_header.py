"""What travels with a call: every header comes back from its bytes as it was."""

from __future__ import annotations

import struct

import pytest

from disttrain.rpc.autograd.header import NO_GRAD, Header, pack, unpack


@pytest.mark.parametrize(
    "header",
    [
        Header(1),
        Header(1 << 63, 5, NO_GRAD),
        Header(1, 2, path=(3, 0, 7), tensors=(1, 4)),
        Header(1, 2, deps=(8, 9), records={5: (), 6: (7, 1 << 40)}),
        Header(1, 2, deps=None, records={5: (6,)}, over=(11, 12)),
        Header(1, 2, NO_GRAD, deps=None),
    ],
)
def test_there_and_back(header):
    found = unpack(pack(header))
    assert found._replace(over=tuple(found.over)) == header._replace(over=tuple(header.over))


def test_to_know_of_none_is_not_to_know():
    assert unpack(pack(Header(1, deps=()))).deps == ()
    assert unpack(pack(Header(1, deps=None))).deps is None


def test_what_follows_is_not_read():
    header = Header(1, 2, deps=(3,))
    assert unpack(pack(header) + b"more") == header._replace(over=())


def test_a_header_that_is_cut_off_is_refused():
    with pytest.raises(struct.error):
        unpack(pack(Header(1, 2, deps=(3,)))[:-1])
