"""How an etcd is reached: what the words of a command line mean."""

from __future__ import annotations

import pytest

from disttrain.errors import LaunchError
from disttrain_launcher.registry.access import access_of


def names(endpoint: str, **conf: str) -> tuple[str, ...]:
    return access_of(endpoint, conf, {}).names


def test_endpoints_of_several_members():
    assert names("a:1, b:2,c") == ("http://a:1", "http://b:2", "http://c:2379")
    assert names("https://a:1,b") == ("https://a:1", "http://b:2379")
    assert names("a,a:2379", protocol="https") == ("https://a:2379",)
    assert names("::1,[fe80::2]:7") == ("http://[::1]:2379", "http://[fe80::2]:7")


@pytest.mark.parametrize(
    ("endpoint", "conf", "words"),
    [
        ("", {}, "addresses of etcd's members are needed"),
        ("a:1,,b:1", {}, "addresses of etcd's members are needed"),
        ("a:port", {}, "host:port is needed"),
        ("a:0", {}, "host:port is needed"),
        ("a:70000", {}, "host:port is needed"),
        ("me@a:1", {}, "host:port is needed"),
        ("etcd://a:1", {}, "neither http nor https"),
        ("a:1", {"protocol": "grpc"}, "http or https is needed"),
        ("a:1", {"cacert": "/nowhere/ca.pem"}, "cacert=/nowhere/ca.pem: no such file"),
        ("a:1", {"cert": __file__}, "cert and key go together"),
        ("a:1", {"protocol": "http", "cacert": __file__}, "they are for https"),
        ("a:1", {"user": "root"}, "its password is needed"),
        ("a:1", {"user": "root", "password_file": "/nowhere/secret"}, "No such file"),
    ],
)
def test_wrong_words_are_named(endpoint, conf, words):
    with pytest.raises(LaunchError, match=words):
        access_of(endpoint, conf, {})


def test_who_asks(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    conf = {"user": "root", "password_file": str(secret)}
    access = access_of("a", conf, {})
    assert (access.user, access.password) == ("root", "s3cret")
    assert "s3cret" not in repr(access)
    secret.chmod(0o640)
    with pytest.raises(LaunchError, match=r"others may read it \(0640\); chmod 600"):
        access_of("a", conf, {})
    as_etcdctl = {"ETCDCTL_USER": "me:word"}
    assert (access_of("a", {}, as_etcdctl).user, access_of("a", {}, as_etcdctl).password) == (
        "me",
        "word",
    )
    apart = {"ETCDCTL_USER": "me", "ETCDCTL_PASSWORD": "w:d"}
    assert access_of("a", {}, apart).password == "w:d"
    assert access_of("a", {"user": "root", "password": "mine"}, apart).password == "mine"
