"""Pods of an Indexed Job: which one this is, and what a manifest must say for that."""

from __future__ import annotations

import pytest

from disttrain_launcher.clusters.kubernetes import UID, matches, place

POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "2", "PET_NNODES": "2:4",
    "PET_RDZV_ENDPOINT": "train-0.train:29400", "PET_RDZV_ID": "train",
}  # fmt: skip


def without(name: str) -> dict[str, str]:
    return {k: v for k, v in POD.items() if k != name}


def test_a_pod_knows_its_place():
    found = place(POD)
    assert (found.num_nodes, found.node_rank, found.job) == (4, 2, "train")
    assert found.first == "train-0.train:29400" and found.lasting == ""


@pytest.mark.parametrize("name", ["KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "PET_NNODES"])
def test_a_pod_that_is_a_job_of_its_own_does_not_match(name):
    assert matches(POD) and not matches(without(name))


def test_a_job_that_is_started_anew_is_known_by_its_number():
    assert place({**POD, UID: "7f"}).lasting == "kubernetes-7f"


def test_the_name_of_the_first_may_stand_under_either_name():
    assert place({**without("PET_RDZV_ENDPOINT"), "PET_MASTER_ADDR": "train-0"}).first == "train-0"


def test_one_node_meets_nobody():
    assert place({**without("PET_RDZV_ENDPOINT"), "PET_NNODES": "1"}).first == ""


def test_all_that_a_manifest_lacks_is_said_at_once():
    with pytest.raises(ValueError, match="--cluster kubernetes") as info:
        place({"PET_NNODES": "many"})
    for text in ("JOB_COMPLETION_INDEX is not set", "'many' is no number", "PET_RDZV_ENDPOINT"):
        assert text in str(info.value)
