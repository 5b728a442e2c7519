"""The MPI transport passes the conformance suite, in one job of four ranks."""

from __future__ import annotations

import pytest
from comm.conformance import Conformance, Failures

from support.mpi_job import MPIEXEC, Job

pytestmark = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="MPICH's wheel is not installed (pip install 'disttrain[mpi]')"
)


@pytest.fixture(scope="module")
def mpi_job(request):
    with Job(request.session.items, __file__, num_ranks=4) as job:
        yield job


@pytest.fixture
def ranks(mpi_job, request):
    return mpi_job.replay(request.node)


class TestMpi(Conformance):
    pass


class TestMpiFailures(Failures):
    pass
