"""How a link begins: both ends know the token and each other's number, or a refusal says why."""

from __future__ import annotations

import pytest

from disttrain.comm.sockets.handshake import Identity, Opened, Refused, answer, ask

TOKEN = b"t" * 32


class End:
    """One end of a conversation; what others send waits in ``heard``."""

    def __init__(self, steps) -> None:
        self.steps, self.heard, self.result = steps, b"", None
        self.sends, self.wants = next(steps)

    def go(self) -> bytes:
        """Go on as far as what has come lets it; what it sends."""
        out, self.sends = self.sends, b""
        while self.result is None and len(self.heard) >= self.wants:
            got, self.heard = self.heard[: self.wants], self.heard[self.wants :]
            try:
                sends, self.wants = self.steps.send(got)
                out += sends
            except StopIteration as end:
                self.result = end.value
                out += self.result.last
            except Refused as error:
                self.result = error
        return out


def talk(client, server):
    """What both ends come to: ``Opened`` or ``Refused``, or None of who waits in vain."""
    one, two = End(client), End(server)
    for _ in range(40):
        two.heard += one.go()
        one.heard += two.go()
    assert not isinstance(one.result, Opened) or not (one.heard or two.heard)
    return one.result, two.result


def welcome(number: int, said: bytes) -> bytes:
    return b"welcome %d, who says %s" % (number, said)


def identity(number: int, tls: bool, token: bytes = TOKEN, purpose: str = "tests") -> Identity:
    return Identity(number, token, purpose, tls=tls)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_both_ends_learn_each_others_number_and_words(tls):
    client, server = talk(ask(identity(3, tls), 5, b"hello"), answer(identity(5, tls), welcome))
    assert (client.number, client.said) == (5, b"welcome 3, who says hello")
    assert (server.number, server.said) == (3, b"hello")
    if not tls:
        assert client.keys is None and server.keys is None
        return
    assert client.keys.sends == server.keys.receives
    assert client.keys.receives == server.keys.sends
    assert client.keys.sends != client.keys.receives


def test_every_conversation_has_its_own_keys():
    me, you = identity(3, True), identity(5, True)
    found = [talk(ask(me, 5, b""), answer(you, welcome))[0].keys for _ in range(2)]
    assert found[0] != found[1]


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_who_does_not_know_the_token_is_refused(tls):
    stranger = identity(3, tls, b"u" * 32)
    client, server = talk(ask(stranger, 5, b""), answer(identity(5, tls), welcome))
    reasons = [str(r) for r in (client, server) if isinstance(r, Refused)]
    assert reasons and not isinstance(server, Opened) and not isinstance(client, Opened)
    assert all("TLS" in r or "does not know the token" in r for r in reasons)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_a_refusal_travels_with_its_reason(tls):
    def refuse(number: int, said: bytes) -> bytes:
        raise Refused(f"{number} is not wanted here")

    client, server = talk(ask(identity(3, tls), 5, b""), answer(identity(5, tls), refuse))
    assert str(client) == "it refused: 3 is not wanted here"
    assert str(server) == "3 is not wanted here"


def test_who_asks_for_another_number_is_told_whose_place_this_is():
    client, server = talk(ask(identity(3, False), 6, b""), answer(identity(5, False), welcome))
    assert str(client) == "it refused: this is number 5, not 6"
    assert isinstance(server, Refused)


def test_a_number_that_the_certificate_does_not_name_is_refused():
    liar = identity(3, True)
    liar.number = 4  # its certificate still says 3
    client, _ = talk(ask(liar, 5, b""), answer(identity(5, True), welcome))
    assert str(client) == "it refused: its certificate is not number 4's"


def test_links_of_another_purpose_are_refused():
    other = identity(3, False, purpose="other tests")
    client, server = talk(ask(other, 5, b""), answer(identity(5, False), welcome))
    assert isinstance(server, Refused) and not isinstance(client, Opened)


def test_who_does_not_speak_tls_is_refused_by_who_does():
    _, server = talk(ask(identity(3, False), 5, b""), answer(identity(5, True), welcome))
    assert isinstance(server, Refused) and "TLS" in str(server)
