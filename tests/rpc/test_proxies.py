"""Methods of a remote value: who is asked for what, and what runs at the owner."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from disttrain.errors import FutureError
from disttrain.futures import Future
from disttrain.rpc import proxies
from disttrain.rpc.api import rpc_async, rpc_sync
from disttrain.rpc.calls.functions import ASYNC, Later
from disttrain.rpc.proxies import RRefProxy, _local_invoke

pytestmark = pytest.mark.simulated


class Thing:
    """A value at its owner."""

    def __init__(self):
        self.total = 0

    def add(self, n, times=1):
        self.total += n * times
        return self.total

    def later(self):
        self.future = Future()
        return self.future

    def wrong(self):
        return 3


for _name in ("later", "wrong"):
    setattr(getattr(Thing, _name), ASYNC, True)


class Reference:
    """An RRef to a ``Thing``, of which ``type`` is known."""

    def __init__(self, type_=Thing):
        self.value, self.asked, self.type = Thing(), [], type_

    def owner(self):
        return "owner"

    def local_value(self):
        return self.value

    def _get_type(self, timeout):
        self.asked.append(timeout)
        return self.type


def recorded(calls):
    def api(to, fn, args, timeout):
        calls.append((to, fn, args, timeout))
        return "answer"

    return api


@pytest.mark.parametrize("name", ["rpc_sync", "rpc_async"])
def test_an_attribute_is_a_function_that_calls_the_owner(monkeypatch, name):
    calls, rref = [], Reference()
    api = recorded(calls)
    monkeypatch.setattr(proxies, name, api)
    assert RRefProxy(rref, api, 2.5).add(3, times=4) == "answer"
    assert calls == [("owner", _local_invoke, (rref, "add", (3,), {"times": 4}), 2.5)]
    assert rref.asked == [], "nobody asks for its type"
    assert rpc_sync is not rpc_async


def test_what_makes_a_reference_finds_a_missing_method_at_once():
    calls, rref = [], Reference()
    proxy = RRefProxy(rref, recorded(calls), 7.0)
    assert proxy.add(1) == "answer" and rref.asked == [7.0]
    with pytest.raises(AttributeError, match="no_such"):
        proxy.no_such()
    assert len(calls) == 1


def test_arguments_may_have_any_name():
    calls = []
    RRefProxy(Reference(), recorded(calls)).add(rref=1, timeout=2, func_name=3)
    assert calls[0][2][3] == {"rref": 1, "timeout": 2, "func_name": 3}


@pytest.fixture
def here(monkeypatch):
    agent = SimpleNamespace(packer=SimpleNamespace(allowed=None))
    monkeypatch.setattr(proxies, "current_agent", lambda: agent)
    checked = []
    monkeypatch.setattr(proxies, "check_method", lambda value, name, allowed: checked.append(name))
    return checked


def test_at_the_owner_the_method_runs_on_the_value(here):
    rref = Reference()
    assert _local_invoke(rref, "add", (2,), {"times": 5}) == 10
    assert _local_invoke(rref, "add", (1,), {}) == 11 and rref.value.total == 11
    assert here == ["add", "add"], "and may be called by others"


def test_an_asynchronous_method_answers_by_its_future(here):
    rref = Reference()
    answer = _local_invoke(rref, "later", (), {})
    assert answer.__class__ is Later and answer.future is rref.value.future
    with pytest.raises(FutureError, match="got int"):
        _local_invoke(rref, "wrong", (), {})


def test_what_may_not_be_called_is_not(here, monkeypatch):
    def refused(value, name, allowed):
        raise PermissionError(name)

    monkeypatch.setattr(proxies, "check_method", refused)
    rref = Reference()
    with pytest.raises(PermissionError):
        _local_invoke(rref, "add", (2,), {})
    assert rref.value.total == 0
