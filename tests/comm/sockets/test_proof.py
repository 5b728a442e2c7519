"""One secret for all who meet through a store, and the own address on the way to a host."""

import pytest

from disttrain.comm.sockets.proof import address_towards, shared_token
from disttrain.comm.store.local import HashStore
from disttrain.errors import ConfigError


class Keyed(HashStore):
    """A store whose members have a key that does not lie in it."""

    key = b"a"

    def secret(self, purpose):
        return self.key + purpose.encode()


def test_whoever_asks_gets_the_secret_of_the_first():
    store = HashStore()
    first = shared_token(store, "rpc")
    assert len(first) == 32
    assert shared_token(store, "rpc") == first
    assert shared_token(store, "other") != first
    assert shared_token(HashStore(), "rpc") != first


def test_what_lies_in_the_store_is_not_the_secret_where_there_is_a_key():
    store = Keyed()
    secret = shared_token(store, "rpc")
    assert secret.hex().encode() not in bytes(store.get("rpc/token"))
    assert shared_token(store, "rpc") == secret
    store.key = b"b"
    assert shared_token(store, "rpc") != secret


def test_the_way_to_the_own_host():
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("localhost") in ("127.0.0.1", "::1")


def test_no_way():
    with pytest.raises(ConfigError, match=r"'no-such-host.invalid'.*with host="):
        address_towards("no-such-host.invalid")
