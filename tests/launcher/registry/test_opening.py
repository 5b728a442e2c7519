"""Opening the registry: who is its host, who may do without a token, when waiting ends."""

from __future__ import annotations

import pytest

from disttrain.comm.store.ports import PortTaken
from disttrain.errors import LaunchError, StoreError, StoreRefused, StoreUnreached
from disttrain_launcher.options.rendezvous import Rendezvous
from disttrain_launcher.plan.membership import TIMED_OUT
from disttrain_launcher.registry import opening
from disttrain_launcher.registry.opening import CannotOpen, opened, towards

pytestmark = pytest.mark.simulated


def place(host="127.0.0.1", **more):
    fields = {"backend": "c10d", "endpoint": f"{host}:99", "host": host, "port": 99,
              "run_id": "job", "min_nodes": 2, "max_nodes": 2}  # fmt: skip
    return Rendezvous(**{**fields, **more})


class World:
    """What there is: who may bind the port, and who answers; tries that were made."""

    def __init__(self, monkeypatch, host=None, answers=None, loopback=True):
        self.tries, self.waits = [], []
        self.host, self.answers = host, answers
        self.address = "127.0.0.1" if loopback else "10.0.0.5"
        monkeypatch.setattr(opening, "_connect", self.connect)
        monkeypatch.setattr(opening, "known", lambda host, port: (2, (self.address, port)))
        monkeypatch.setattr(opening, "is_of_this_machine", lambda kind, address: True)
        monkeypatch.setattr(opening, "towards", lambda host: f"towards {host}")

    def connect(self, r, hosts, token):
        self.tries.append("host" if hosts else "guest")
        says = self.host if hosts else self.answers
        says = says.pop(0) if isinstance(says, list) else says
        if isinstance(says, Exception):
            raise says
        return says or "registry"

    def waiting(self, seconds, last):
        self.waits.append((round(seconds, 3), last))
        return len(self.waits) < 20

    def open(self, r, token=b"t"):
        return opened(r, token, self.waiting)


TAKEN = PortTaken("port 99 is taken")
NOBODY = StoreUnreached("nobody answers")


def test_the_first_node_at_its_own_address_is_the_host(monkeypatch):
    world = World(monkeypatch)
    found = world.open(place())
    assert found.hosts and found.registry == "registry" and world.tries == ["host"]
    assert found.address == "towards 127.0.0.1"
    assert world.open(place(), token=None).address == "127.0.0.1"
    assert world.open(place(local_addr="mine")).address == "mine"


def test_who_finds_the_port_taken_is_a_guest(monkeypatch):
    found = World(monkeypatch, host=TAKEN).open(place())
    assert not found.hosts


def test_a_node_that_is_told_not_to_be_the_host_is_none(monkeypatch):
    world = World(monkeypatch)
    assert not world.open(place(is_host=False)).hosts and world.tries == ["guest"]


def test_a_guest_waits_until_somebody_answers(monkeypatch):
    world = World(monkeypatch, answers=[NOBODY, NOBODY, None])
    assert not world.open(place(is_host=False)).hosts
    assert world.waits == [(0.7, "nobody answers"), (1.4, "nobody answers")]


def test_it_waits_no_longer_than_is_said(monkeypatch):
    world = World(monkeypatch, answers=NOBODY)
    with pytest.raises(CannotOpen, match=r"nobody has answered in 2 s .nobody answers.") as error:
        world.open(place(is_host=False, join_timeout=2.0))
    assert error.value.code == TIMED_OUT and len(world.waits) == 2


def test_it_ends_when_the_caller_says_so(monkeypatch):
    World(monkeypatch, answers=NOBODY)
    assert opened(place(is_host=False), b"t", lambda seconds, last: False) is None


def test_a_port_that_something_silent_has_is_told_at_the_second_try(monkeypatch):
    world = World(monkeypatch, host=TAKEN, answers=NOBODY)
    with pytest.raises(CannotOpen, match=r"127.0.0.1:99: port 99 is taken") as error:
        world.open(place())
    assert world.tries == ["host", "guest"] * 2 and error.value.code == 2


def test_another_job_s_store_is_told_at_once(monkeypatch):
    world = World(monkeypatch, answers=StoreRefused("a store of another job"))
    with pytest.raises(CannotOpen, match="another job"):
        world.open(place(is_host=False))
    world = World(monkeypatch, host=TAKEN, answers=StoreRefused("x"))
    with pytest.raises(CannotOpen, match="port 99 is taken"):
        world.open(place())


def test_nodes_of_several_machines_need_a_token(monkeypatch):
    world = World(monkeypatch, loopback=False)
    with pytest.raises(CannotOpen, match=r"need a token.*umask 077"):
        world.open(place("node1"), token=None)
    assert world.tries == [] and world.open(place("node1")).hosts


def test_a_name_may_become_known_later(monkeypatch):
    world = World(monkeypatch)
    answers = [StoreError("the name is not known")] * 2

    def known(host, port):
        if answers:
            raise answers.pop()
        return 2, ("127.0.0.1", port)

    monkeypatch.setattr(opening, "known", known)
    assert world.open(place(name_timeout=5.0)).hosts and len(world.waits) == 2
    answers[:] = [StoreError("the name is not known")] * 99
    with pytest.raises(CannotOpen, match=r"the name '127.0.0.1' is not known on this node"):
        world.open(place(name_timeout=1.0))
    with pytest.raises(CannotOpen, match="name_timeout=SECONDS"):
        world.open(place())


@pytest.mark.parametrize("error", [OSError("no route"), LaunchError("odd"), StoreError("broken")])
def test_other_errors_name_the_endpoint(monkeypatch, error):
    world = World(monkeypatch, host=error)
    with pytest.raises(CannotOpen, match=f"--rdzv-endpoint 127.0.0.1:99: {error}"):
        world.open(place())


def test_etcd_needs_a_token_unless_it_is_here(monkeypatch):
    class Etcd:
        host, closed = "10.0.0.9", 0

        def close(self):
            self.closed += 1

    made, asked = Etcd(), []

    class module:  # noqa: N801
        @staticmethod
        def connect(*args):
            asked.append(args)
            return made

    World(monkeypatch)
    monkeypatch.setattr(opening.importlib, "import_module", lambda name: module)
    r = place(backend="etcd", conf=(("user", "me"),))
    found = opened(r, b"t", None)
    assert not found.hosts and found.address == "towards 10.0.0.9"
    assert asked[0][:4] == ("127.0.0.1:99", "job", {"user": "me"}, 2.0)
    with pytest.raises(CannotOpen, match="need a token"):
        opened(r, None, None)
    assert made.closed == 1
    assert opened(place(backend="etcd", local_addr="127.0.0.1"), None, None).address == "127.0.0.1"
    made = None
    assert opened(r, b"t", None) is None


def test_the_way_to_a_host_is_an_address_of_this_machine(monkeypatch):
    assert towards("127.0.0.1") == "127.0.0.1"

    def unknown(*args, **more):
        raise OSError("Name or service not known")

    monkeypatch.setattr(opening.socket, "getaddrinfo", unknown)
    with pytest.raises(CannotOpen, match="--local-addr"):
        towards("nowhere")
