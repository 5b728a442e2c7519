"""Messages over gRPC do what every transport does: with TLS, without, and beside Unix sockets."""

from __future__ import annotations

import pytest
from rpc.messages.conformance import Conformance
from rpc.messages.nodes import TOKEN, Threads

from disttrain.comm.sockets.proof import address_towards
from disttrain.errors import CommError, ConfigError
from disttrain.rpc.messages.hosts.endpoint import RemoteEndpoint
from disttrain.rpc.messages.local.endpoint import LocalEndpoint
from disttrain.rpc.messages.mixed import MixedEndpoint, open_endpoint


class TestRemote(Conformance):
    """With TLS."""

    @pytest.fixture
    def nodes(self):
        return Threads(RemoteEndpoint)


def mixed(me, token, limits=None):
    """Worker 1 seems to be on another host than all others; no TLS."""
    transports = ["grpc"] if me == 1 else ["local", "grpc"]
    return open_endpoint(me, token, transports, tls=False, limits=limits)


class TestMixed(Conformance):
    """Some peers over gRPC, others over Unix sockets."""

    @pytest.fixture
    def nodes(self):
        return Threads(mixed)

    def test_each_pair_takes_the_best_way(self, nodes):
        def body(node):
            node.handle = node.echo
            node.meet()
            for peer in range(3):
                node.call(peer)
            node.meet()
            return [type(node.endpoint._way(peer)) for peer in range(3)]

        near, far = LocalEndpoint, RemoteEndpoint
        assert nodes.run(3, body) == [[near, far, near], [far] * 3, [near, far, near]]


class TestWhichTransports:
    """``open_endpoint`` makes what the place needs."""

    def test_one_host_needs_no_network(self):
        for meeting_host in (None, "localhost", "127.0.0.1", "::1"):
            with open_endpoint(0, TOKEN, meeting_host=meeting_host) as endpoint:
                assert isinstance(endpoint, LocalEndpoint)

    def test_several_hosts_listen_where_the_meeting_host_can_reach_them(self):
        # Nothing is sent to this address (RFC 5737: of no host); it has to be routed, though.
        try:
            mine = address_towards("192.0.2.1")
        except ConfigError:
            pytest.skip("this host has no route to other hosts")
        with open_endpoint(0, TOKEN, meeting_host="192.0.2.1") as endpoint:
            assert isinstance(endpoint, MixedEndpoint)
            local, remote = endpoint.address.split("|")
            assert local.startswith("local:")
            assert remote.startswith(f"grpcs://{mine}:")

    def test_who_says_which_is_heard(self):
        with open_endpoint(0, TOKEN, "grpc") as endpoint:
            assert endpoint.address.startswith("grpcs://127.0.0.1:")
        with open_endpoint(0, TOKEN, ["grpc"], host="127.0.0.1", tls=False) as endpoint:
            assert endpoint.address.startswith("grpc://127.0.0.1:")

    @pytest.mark.parametrize("wrong", [[], ["tcp"], ["grpc", "grpc"], "uv"])
    def test_others_are_refused(self, wrong):
        with pytest.raises(ConfigError, match="needed are one or both of local, grpc"):
            open_endpoint(0, TOKEN, wrong)

    def test_an_address_that_is_not_of_this_host_is_refused(self):
        with pytest.raises(CommError, match=r"cannot listen on 192\.0\.2\.1"):
            open_endpoint(0, TOKEN, "grpc", host="192.0.2.1")

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
    def test_all_addresses_at_once_are_refused(self, host):
        with pytest.raises(ConfigError, match="name the one that other hosts reach"):
            open_endpoint(0, TOKEN, host=host)

    def test_a_peer_has_one_address(self):
        with open_endpoint(0, TOKEN, "grpc") as endpoint:
            endpoint.introduce(1, "grpcs://127.0.0.1:1")
            endpoint.introduce(1, "grpcs://127.0.0.1:1")
            with pytest.raises(CommError, match="disconnect it first"):
                endpoint.introduce(1, "grpcs://127.0.0.1:2")

    def test_workers_without_a_common_transport_are_told(self):
        with open_endpoint(0, TOKEN, ["local", "grpc"]) as endpoint:
            with pytest.raises(CommError, match="same transports"):
                endpoint.introduce(1, "local:elsewhere:0:abc")

    def test_tls_on_one_side_only_is_told(self):
        with open_endpoint(0, TOKEN, "grpc") as a, open_endpoint(1, TOKEN, "grpc", tls=False) as b:
            with pytest.raises(CommError, match="tls= must be the same on all"):
                a.connect(1, b.address)
            with pytest.raises(CommError, match="tls= must be the same on all"):
                b.connect(0, a.address)
