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


@pytest.mark.parametrize("world", [3])
class TestSeveralRounds:
    """As in groups of many ranks, which meet in several rounds, and as between hosts, where MPI
    reduces."""

    settings = {"radix": 2, "fixed_order": False}

    test_all_reduce = Conformance.test_all_reduce
    test_all_reduce_large = Conformance.test_all_reduce_large
    test_every_verb_async = Conformance.test_every_verb_async
    test_async_operations_keep_their_order = Conformance.test_async_operations_keep_their_order
    test_split = Conformance.test_split


class TestSeveralRoundsFailures:
    settings = {"radix": 2, "fixed_order": False}

    test_calls_from_different_lines = (
        Failures.test_calls_may_come_from_different_lines_with_other_shapes
    )
    test_a_mismatch_leaves_the_group_usable = Failures.test_a_mismatch_leaves_the_group_usable
    test_another_number_of_calls = Failures.test_another_number_of_calls_is_found_at_the_end
    test_a_failed_rank_ends_every_wait = Failures.test_a_failed_rank_ends_every_wait
