"""The handshake proves the token both ways, and nothing that was said before serves again."""

import pytest

from disttrain.comm.store import hello

KEY = hello.derive_key(b"t" * 32, "store")
JOB = hello.job_hash("a job")


def shake(client_key=KEY, server_key=KEY):
    """(client's hello, server's answer, client's proof)."""
    first = hello.client_hello(JOB, 3)
    answer = hello.server_hello(server_key, first)
    return first, answer, hello.client_proof(client_key, first, answer)


def test_both_sides_know_the_token():
    first, answer, proof = shake()
    assert (len(first), len(answer), len(proof)) == (hello.SIZE, hello.SIZE, hello.PROOF_BYTES)
    assert hello.is_server(answer)
    assert hello.proof_holds(KEY, first, answer, proof)


def test_another_token_proves_nothing():
    other = hello.derive_key(b"u" * 32, "store")
    assert shake(client_key=other)[2] is None
    assert shake(server_key=other)[2] is None
    first, answer, _ = shake()
    assert not hello.proof_holds(KEY, first, answer, bytes(32))


def test_a_key_is_for_one_purpose():
    keys = {hello.derive_key(b"t" * 32, purpose) for purpose in ("store", "rpc", "data")}
    assert len(keys) == 3 and all(len(key) == 32 for key in keys)


def test_a_replayed_or_reflected_proof_fails():
    first, answer, proof = shake()
    again = hello.server_hello(KEY, first)
    assert again != answer
    assert not hello.proof_holds(KEY, first, again, proof)
    servers = answer[24:56]  # the proof of the server, said back to it
    assert not hello.proof_holds(KEY, first, answer, servers)


@pytest.mark.parametrize("byte", [0, 8, 10, 12, 20, 40])
def test_a_changed_hello_is_noticed(byte):
    first, answer, proof = shake()
    changed = bytearray(first)
    changed[byte] ^= 1
    assert hello.client_proof(KEY, bytes(changed), answer) is None
    assert not hello.proof_holds(KEY, bytes(changed), answer, proof)


def test_why_a_client_is_refused():
    good = hello.client_hello(JOB, 3)
    assert hello.objection(good, JOB, 3) == ""
    assert "another job" in hello.objection(good, hello.job_hash("other"), 3)
    assert "epoch 3, not 4" in hello.objection(good, JOB, 4)
    assert "something else" in hello.objection(good, JOB, 3, hello.ROLE_RPC)
    assert "protocol" in hello.objection(b"GET / HTTP/1.1\r\n".ljust(64, b"x"), JOB, 3)
    newer = bytearray(good)
    newer[8:10] = (2).to_bytes(2, "little")
    assert "version 2, not 1" in hello.objection(bytes(newer), JOB, 3)
    assert "something else" in hello.objection(good[:-1] + b"x", JOB, 3)


def test_only_stores_of_programs_take_any_epoch():
    for epoch, mine in ((0, 5), (5, 0)):
        store, rpc = (
            hello.objection(hello.client_hello(JOB, epoch, role), JOB, mine, role)
            for role in (hello.ROLE_STORE, hello.ROLE_RPC)
        )
        assert store == "" and "epoch" in rpc
