"""Calls to several members of an etcd of which some are slow, gone, or no etcd at all."""

from __future__ import annotations

import pytest
from standins.etcd import StandIn

from disttrain_launcher.registry.access import access_of
from disttrain_launcher.registry.gateway import NO_TOKEN, NOT_FOUND, Gateway, Refused, Unreached
from support.ranks import free_port

pytest.importorskip("etcd3gw", reason="the extra etcd is not installed")
KEY = {"key": "YQ=="}


@pytest.fixture
def etcd():
    with StandIn(3) as made:
        yield made


def gateway(endpoint: str, **conf: str) -> Gateway:
    return Gateway(access_of(endpoint, conf, {}))


@pytest.mark.parametrize("manner", ["silent", "hangs up", "garbage", "no leader"])
def test_the_first_answer_counts(etcd, manner):
    """With two members of three that do not answer well, and the first asked next time."""
    etcd.manner[:2] = [manner, manner]
    asking = gateway(etcd.endpoint)
    assert asking.call("/kv/range", KEY, 2.0)["header"] == {"revision": "1"}
    etcd.asked.clear()
    asking.call("/kv/range", KEY, 2.0)
    assert [member for member, _ in etcd.asked] == [2]
    asking.close()


def test_a_member_that_is_gone_is_passed_over():
    with StandIn(1) as etcd:
        asking = gateway(f"127.0.0.1:{free_port()},{etcd.endpoint}")
        assert asking.call("/lease/grant", {"TTL": 3}, 1.0)["TTL"] == "3"
        asking.close()


def test_nobody_answers(etcd):
    etcd.manner[:] = ["silent", "no leader", "hangs up"]
    gone = free_port()
    asking = gateway(f"{etcd.endpoint},127.0.0.1:{gone}")
    with pytest.raises(Unreached) as caught:
        asking.call("/kv/range", KEY, 3.0)
    asking.close()
    text = str(caught.value)
    assert text.startswith("etcd: no member gave an answer in 3 s (http://127.0.0.1:")
    assert "no answer; " in text and "no leader; " in text
    assert text.endswith(f"http://127.0.0.1:{gone}: connection refused)")
    assert not caught.value.lasting


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [("nowhere.invalid:2379", "the name does not resolve"), ("https://{0}", "TLS: ")],
)
def test_what_waiting_does_not_mend(etcd, endpoint, words):
    asking = gateway(endpoint.format(etcd.endpoint.split(",")[0]))
    with pytest.raises(Unreached, match=words) as caught:
        asking.call("/kv/range", KEY, 9.0)  # it is known at once
    asking.close()
    assert caught.value.lasting


def test_an_answer_that_is_no_etcds(etcd):
    etcd.manner[:] = ["garbage"] * 3
    asking = gateway(etcd.endpoint)
    with pytest.raises(Unreached, match="its answer is no etcd's") as caught:
        asking.call("/kv/range", KEY, 9.0)
    asking.close()
    assert caught.value.lasting


def test_a_refusal_is_told_at_once(etcd):
    asking = gateway(etcd.endpoint)
    with pytest.raises(Refused, match="etcd says: requested lease not found") as caught:
        asking.call("/lease/revoke", {"ID": "7"}, 2.0)
    asking.close()
    assert caught.value.code == NOT_FOUND
    assert len(etcd.asked) == 1


def test_a_user_is_known_by_a_token_that_members_may_forget(monkeypatch):
    monkeypatch.setattr("disttrain_launcher.registry.gateway.HEDGE", 9.0)  # one member is asked
    with StandIn(2, password="s3cret") as etcd:
        asking = gateway(etcd.endpoint, user="root", password="s3cret")
        asking.call("/kv/range", KEY, 2.0)
        etcd.forget_tokens()
        asking.call("/kv/range", KEY, 2.0)
        assert [path for _, path in etcd.asked].count("/auth/authenticate") == 2
        wrong = gateway(etcd.endpoint, user="root", password="guess")
        with pytest.raises(Refused, match="user root: etcd says: authentication failed"):
            wrong.call("/kv/range", KEY, 2.0)
        nobody = gateway(etcd.endpoint)
        with pytest.raises(Refused, match="user name is empty") as caught:
            nobody.call("/kv/range", KEY, 2.0)
        assert caught.value.code != NO_TOKEN
        for each in (asking, wrong, nobody):
            each.close()


def test_a_user_where_etcd_asks_for_none(etcd):
    asking = gateway(etcd.endpoint, user="root", password="s3cret")
    asking.call("/kv/range", KEY, 2.0)
    asking.close()
