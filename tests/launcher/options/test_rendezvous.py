"""What the words of --rdzv-conf set, and what is said of those that set nothing."""

from __future__ import annotations

import pytest

from disttrain_launcher.nodes.starting import _not_encrypted
from disttrain_launcher.options.command_line import parse

MEET = ("--nnodes", "2", "--rdzv-endpoint", "first:29400", "--rdzv-backend")


def rendezvous(backend: str, conf: str):
    return parse([*MEET, backend, "--rdzv-conf", conf, "t.py"], {}).rendezvous


def test_words_that_set_nothing_are_told_and_not_refused():
    r = rendezvous("c10d", "read_timeout=60,join_timeout=5,use_libuv=1,user=f,store_type=tcp")
    assert r.join_timeout == 5 and not r.tls
    told = [hint.split()[1] for hint in r.hints]
    assert told == ["read_timeout", "use_libuv", "user", "store_type"]
    assert rendezvous("etcd", "is_host=1,protocol=http").hints[0].startswith("--rdzv-conf is_host")
    assert rendezvous("static", "timeout=7,is_host=1,tls=0").hints == ()


@pytest.mark.parametrize(
    ("backend", "conf", "said"),
    [
        ("c10d", "cert=f,key=k,ca=c", "cert=f: it is for tls=1, which is not given"),
        ("static", "tls=true,cert=f", "all of cert, key, cacert are needed"),
        ("etcd", "tls=1", "protocol=https"),
        ("c10d", "jion_timeout=3", "did you mean join_timeout?"),
        ("c10d", "tls=perhaps", "1 or 0 is needed"),
    ],
)
def test_what_cannot_be_had_is_refused(backend, conf, said, capsys):
    with pytest.raises(SystemExit):
        rendezvous(backend, conf)
    assert said in capsys.readouterr().err


def test_certificates_are_the_tokens_or_those_of_files():
    assert rendezvous("c10d", "tls=1").tls and rendezvous("c10d", "tls=1").hints == ()
    r = rendezvous("static", "tls=yes,cert=a,key=b,ca=c")
    assert r.tls and dict(r.conf) == {"cert": "a", "key": "b", "cacert": "c"} and not r.hints


def test_who_encrypts_between_ranks_is_told_what_that_leaves_out():
    assert rendezvous("etcd", "tls=1,protocol=https") is not None
    on, token = {"DISTTRAIN_TLS": "1"}, b"x" * 32
    (said,) = _not_encrypted(rendezvous("c10d", "tls=0"), token, on)
    assert "not encrypted: what ranks put into their store" in said
    assert "what the nodes' launchers say (names" in said
    assert "launchers say" not in _not_encrypted(rendezvous("c10d", "tls=1"), token, on)[0]
    assert "say to etcd" in _not_encrypted(rendezvous("etcd", ""), token, on)[0]
    assert _not_encrypted(rendezvous("c10d", "tls=0"), None, on) == []
    assert _not_encrypted(rendezvous("c10d", "tls=0"), token, {}) == []
    (said,) = _not_encrypted(rendezvous("etcd", "protocol=https"), token, on)
    assert "their store" in said and "launchers" not in said
