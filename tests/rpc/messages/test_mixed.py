"""Several transports in one endpoint: the best that both have; which are opened, and where."""

from __future__ import annotations

import pytest

from disttrain.errors import CommError, ConfigError
from disttrain.rpc.messages import mixed
from disttrain.rpc.messages.contract.message import Limits, Message
from disttrain.rpc.messages.mixed import MixedEndpoint, is_between_hosts, open_endpoint

pytestmark = pytest.mark.simulated


class Way:
    """A transport that notes what it is asked, and reaches addresses of its kind."""

    def __init__(self, kind, me=0, fails=False):
        self.kind, self.me, self.token, self.limits = kind, me, b"t", Limits()
        self.address, self.asked, self.fails = f"{kind}:{me}", [], fails

    def serve(self, on_message, on_lost):
        self.on_message, self.on_lost = on_message, on_lost

    def __getattr__(self, name):
        return lambda *args: self.asked.append((name, *args))


@pytest.fixture(autouse=True)
def reaching(monkeypatch):
    monkeypatch.setattr(mixed, "_reaches", lambda way, part: part.startswith(way.kind))


def both():
    ways = Way("fast"), Way("far")
    return MixedEndpoint(ways), *ways


def test_its_address_names_all_of_them_the_best_first():
    assert both()[0].address == "fast:0|far:0"


def test_a_peer_is_reached_by_the_best_that_both_have():
    end, fast, far = both()
    end.introduce(1, "far:1|fast:1")
    end.connect(2, "far:2")
    assert fast.asked == [("introduce", 1, "fast:1")] and far.asked == [("connect", 2, "far:2")]
    message = Message(0, 1)
    end.send(1, message, True)
    end.waiting(2, 5), end.look_out(2), end.take(1)
    assert fast.asked[1:] == [("send", 1, message, True), ("take", 1)]
    assert far.asked[1:] == [("waiting", 2, 5), ("look_out", 2)]


def test_a_peer_whom_nothing_reaches_is_named():
    end, *_ = both()
    with pytest.raises(
        CommError, match=r"worker 3 is at odd:3, which none of fast:0.far:0 reaches"
    ):
        end.introduce(3, "odd:3")
    with pytest.raises(CommError, match="worker 3 is not known"):
        end.send(3, Message(0, 1))
    end.look_out(3), end.take(3)  # nothing is to be done


def test_who_comes_unknown_is_answered_on_its_way_and_the_first_way_stays():
    end, fast, far = both()
    heard = []
    end.serve(lambda *said: heard.append(said), None)
    far.on_message(4, "request")
    fast.on_message(4, "another")
    assert heard == [(4, "request"), (4, "another")]
    end.send(4, "answer")
    assert far.asked == [("send", 4, "answer", False)] and not fast.asked


def test_leaving_a_peer_and_closing_reach_all():
    end, fast, far = both()
    end.introduce(1, "fast:1")
    end.disconnect(1)
    with pytest.raises(CommError, match="not known"):
        end.send(1, None)
    end.close()
    for way in (fast, far):
        assert way.asked[-2:] == [("disconnect", 1), ("close",)]
    for use in (lambda: end.send(1, None), lambda: end.introduce(1, "fast:1")):
        with pytest.raises(CommError, match="the endpoint is closed"):
            use()


@pytest.fixture
def opened(monkeypatch):
    """Which transports are opened, and with what."""
    made = []

    def maker(kind):
        def make(me, token, limits, **more):
            way = Way(kind, me)
            made.append((kind, more, way))
            if more.get("host") == "10.9.9.9":
                raise ConfigError("no such address here")
            return way

        return make

    monkeypatch.setattr(mixed, "LocalEndpoint", maker("local"))
    monkeypatch.setattr(mixed, "RemoteEndpoint", maker("grpc"))
    monkeypatch.setattr(mixed, "address_towards", lambda host: {"head": "10.0.0.7"}[host])
    return made


def test_on_one_host_sockets_are_enough(opened):
    for host in (None, "127.0.0.1", "::1", "localhost"):
        opened.clear()
        assert open_endpoint(0, b"t", host=host).kind == "local"
        assert [kind for kind, _, _ in opened] == ["local"]


def test_between_hosts_there_are_both_and_grpc_listens_towards_the_meeting(opened):
    end = open_endpoint(0, b"t", meeting_host="head", tls=False)
    assert isinstance(end, MixedEndpoint)
    assert [kind for kind, _, _ in opened] == ["local", "grpc"]
    assert opened[1][1] == {"host": "10.0.0.7", "tls": False, "data_tls": None}
    open_endpoint(0, b"t", host="10.1.1.1", meeting_host="head")
    assert opened[-1][1]["host"] == "10.1.1.1"


def test_what_is_wanted_is_opened_whatever_the_hosts_are(opened):
    open_endpoint(0, b"t", "grpc")
    assert [kind for kind, _, _ in opened] == ["grpc"] and opened[0][1]["host"] == "127.0.0.1"
    opened.clear()
    open_endpoint(0, b"t", ["grpc", "local"])
    assert [kind for kind, _, _ in opened] == ["grpc", "local"]


@pytest.mark.parametrize("wrong", [[], ["tcp"], ["local", "local"], "udp"])
def test_transports_that_there_are_not(opened, wrong):
    with pytest.raises(ConfigError, match="one or both of local, grpc, each once"):
        open_endpoint(0, b"t", wrong)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_every_address_is_none(opened, host):
    with pytest.raises(ConfigError, match="name the one that other hosts reach"):
        open_endpoint(0, b"t", host=host)


def test_what_was_opened_before_an_error_is_closed(opened):
    with pytest.raises(ConfigError, match="no such address"):
        open_endpoint(0, b"t", host="10.9.9.9")
    assert opened[0][2].asked == [("close",)]


def test_an_address_tells_whether_a_network_leads_there():
    assert is_between_hosts("local:abc|grpcs://10.0.0.1:4711")
    assert not is_between_hosts("local:abc|other:grpcs://x") and not is_between_hosts("")
