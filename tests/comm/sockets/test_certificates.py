"""Certificates of one secret: who knows it trusts them, and they name the worker."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from disttrain.comm.sockets.certificates import issue, worker_name

TOKEN, JOB = b"t" * 32, bytes(range(8))


def loaded(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_workers_of_one_secret_make_the_same_authority_and_certify_each_other():
    one, other = issue(TOKEN, JOB, 1), issue(TOKEN, JOB, 2)
    mine, theirs = loaded(one.authority), loaded(other.authority)
    assert mine.public_key() == theirs.public_key()
    loaded(other.certificate).verify_directly_issued_by(mine)
    loaded(one.certificate).verify_directly_issued_by(theirs)


@pytest.mark.parametrize("token, job", [(b"u" * 32, JOB), (TOKEN, b"another ")])
def test_another_secret_or_another_job_is_another_authority(token, job):
    stranger = loaded(issue(token, job, 1).certificate)
    mine = loaded(issue(TOKEN, JOB, 1).authority)
    assert stranger.public_key() != mine.public_key()
    with pytest.raises((InvalidSignature, ValueError)):
        stranger.verify_directly_issued_by(mine)


def test_a_certificate_names_its_worker_and_belongs_to_its_key():
    made = issue(TOKEN, JOB, 7)
    certificate = loaded(made.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [worker_name(JOB, 7)]
    key = serialization.load_pem_private_key(made.key, None)
    assert key.public_key() == certificate.public_key()


def test_every_issue_has_a_fresh_key_which_is_not_the_authoritys():
    one, again = issue(TOKEN, JOB, 1), issue(TOKEN, JOB, 1)
    keys = [loaded(p).public_key() for p in (one.certificate, again.certificate, one.authority)]
    assert keys[0] != keys[1] and keys[0] != keys[2]


def test_only_the_authority_may_sign_others():
    made = issue(TOKEN, JOB, 1)
    for pem, authority in ((made.authority, True), (made.certificate, False)):
        found = loaded(pem).extensions
        assert found.get_extension_for_class(x509.BasicConstraints).value.ca is authority
        assert found.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is authority
