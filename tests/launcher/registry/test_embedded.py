"""The registry on a store of the job's own."""

from __future__ import annotations

import secrets

import pytest

from disttrain.comm.store.ports import PortTaken
from disttrain.errors import StoreUnreached
from disttrain_launcher.registry import RegistryLost
from disttrain_launcher.registry.embedded import EmbeddedRegistry
from support.registry_contract import RegistryContract

TTL, PATIENCE = 0.3, 0.5


@pytest.fixture(params=["token", "this user"])
def opened(request):
    """Opens another end; the first one holds the store."""
    token = secrets.token_bytes(32) if request.param == "token" else None
    ends: list[EmbeddedRegistry] = []

    def another() -> EmbeddedRegistry:
        port = ends[0].port if ends else 0
        end = EmbeddedRegistry("127.0.0.1", port, not ends, token, TTL, PATIENCE, 10.0)
        ends.append(end)
        return end

    yield another
    for end in reversed(ends):
        end.close()


class TestEmbedded(RegistryContract):
    def test_who_does_not_know_the_token_is_refused(self, opened):
        host = opened()
        with pytest.raises(StoreUnreached, match="token"):
            EmbeddedRegistry("127.0.0.1", host.port, False, b"x" * 32, TTL, PATIENCE, 5.0)

    def test_a_port_that_is_taken_is_told_with_who_has_it(self, opened):
        host = opened()
        with pytest.raises(PortTaken, match="by process"):
            EmbeddedRegistry("127.0.0.1", host.port, True, None, TTL, PATIENCE, 5.0)

    def test_a_registry_that_has_gone_is_lost_for_all_others(self, opened):
        host, other = opened(), opened()
        other.put_leased("nodes/b", b"1")
        assert not other.has_gone()
        host.close()
        with pytest.raises(RegistryLost, match="rendezvous at"):
            other.renew()
        assert other.has_gone()
