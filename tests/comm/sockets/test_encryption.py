"""The records of a sealed link, byte for byte: what another implementation of the cipher gives."""

from __future__ import annotations

import pytest

from disttrain.comm.sockets import encryption
from disttrain.comm.sockets.encryption import LENGTH, OVERHEAD, RENEW, Broken, Seal, record_size
from disttrain.comm.store import hello

KEY = bytes(range(32))
TEXT = b"gradients of layer 3"
# Of KEY and TEXT, by AES-256-GCM written down from FIPS 197 and SP 800-38D, which was held against
# the published vectors of the cipher (McGrew and Viega, test case 14).
FIRST = "24000000855ee35bcdca827339246aa51cade9b2a913ef1db188dd47ec381a7dbe1d43be68b39788"
SECOND = "24000000811c8a0493c006c9de9d0172acea967b347e48f3770b7de72109f0ff90e70b718aaec987"
NEXT_KEY = "eac22a86531ef12742d8002e0bf4e2bf85228ca880f7edbdcf1e8166a5c2947f"
FIRST_OF_NEXT = "240000000a1d2aa06f573d54c9909402e9e4dade044e72cdf14764b2af9c09c8d651130bc152a11b"


def sealed(by: Seal, text: bytes = TEXT) -> bytes:
    out = bytearray(len(text) + OVERHEAD)
    assert by.seal(memoryview(text), memoryview(out)) == len(out)
    return bytes(out)


def opened(by: Seal, record: bytes) -> bytes:
    out = bytearray(len(record) - OVERHEAD)
    by.open(memoryview(record), memoryview(out))
    return bytes(out)


def test_records_are_those_of_the_standard():
    ours = Seal(KEY)
    assert [sealed(ours).hex() for _ in range(2)] == [FIRST, SECOND]
    theirs = Seal(KEY)
    assert [opened(theirs, bytes.fromhex(r)) for r in (FIRST, SECOND)] == [TEXT, TEXT]


def test_the_cipher_is_that_of_the_published_vectors():
    """Test case 14 of the cipher's authors: a key, a nonce and a block of zeros."""
    cipher = Seal(bytes(32))._cipher
    assert cipher.encrypt(bytes(12), bytes(16), b"").hex() == (
        "cea7403d4d606b6e074ec5d3baf39d18" + "d0d1c8a799996bf0265b98b5d48ab919"
    )


def test_a_key_is_replaced_before_its_limit():
    assert hello.derive_key(KEY, "next link key").hex() == NEXT_KEY
    ours, theirs = Seal(KEY), Seal(KEY)
    for end in (ours, theirs):
        end._count = RENEW  # as if it had sealed so many
    record = sealed(ours)
    assert record.hex() == FIRST_OF_NEXT and opened(theirs, record) == TEXT
    # RFC 8446, 5.5: 2**24.5 full records of 16 KB, 2**34.5 blocks, keep an attacker below 2**-57.
    assert RENEW * (encryption.MOST // 16) <= 2**34.5


@pytest.mark.parametrize("at", range(0, len(FIRST) // 2, 3))
def test_no_byte_of_a_record_can_be_changed(at):
    """Its length, its text, its tag."""
    record = bytearray.fromhex(FIRST)
    record[at] ^= 1
    with pytest.raises(Broken, match="does not fit its seal"):
        opened(Seal(KEY), bytes(record))


@pytest.mark.parametrize("order", [(1,), (0, 0), (1, 0)], ids=["left out", "twice", "moved"])
def test_records_keep_their_order(order):
    ours, theirs = Seal(KEY), Seal(KEY)
    records = [sealed(ours), sealed(ours)]
    with pytest.raises(Broken):
        for i in order:
            opened(theirs, records[i])


def test_the_two_directions_have_keys_of_their_own():
    """A record that is sent back opens nowhere: see ``handshake._keys``."""
    there, back = (hello.derive_key(KEY, way) for way in ("client to server", "server to client"))
    with pytest.raises(Broken):
        opened(Seal(back), sealed(Seal(there)))


@pytest.mark.parametrize("size", [0, 16, encryption.MOST + 17, 2**32 - 1])
def test_a_length_that_no_record_has_is_refused_before_memory_is_made(size):
    with pytest.raises(Broken, match="a record of"):
        record_size(memoryview(LENGTH.pack(size)))
