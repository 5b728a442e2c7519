"""What each environment answers: where, how many, who is first, which one, how it ends. Pure."""

import dataclasses

import pytest

from disttrain_launcher import clusters
from disttrain_launcher.clusters import Place, kubernetes, mpi, slurm
from disttrain_launcher.command import dispatch
from disttrain_launcher.options.command_line import parse
from disttrain_launcher.plan.job import make_plan

STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[08-11,3]",
    "SLURM_STEP_NUM_NODES": "5", "SLURM_STEP_NUM_TASKS": "5", "SLURM_NODEID": "4",
    "SLURM_PROCID": "4", "SLURM_CLUSTER_NAME": "big",
}  # fmt: skip
POD = {
    "KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1", "PET_NNODES": "2:3",
    "PET_RDZV_ENDPOINT": "train-0.train:29400", "PET_RDZV_ID": "train",
    "DISTTRAIN_TOKEN_FILE": "/etc/disttrain/token",
}  # fmt: skip
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
}  # fmt: skip
TOLD = ("node1:15001", "ab" * 16)


def as_named(host):
    return host


def test_slurm_answers_from_what_srun_has_set():
    place = slurm.place(STEP, as_named)
    assert (place.cluster, place.num_nodes, place.node_rank) == ("slurm", 5, 4)
    assert (place.first, place.job) == ("n08:15427", "slurm-7.0")
    assert "SIGTERM" in place.ends and "slurm-7.0" not in place.label
    again = slurm.place(STEP | {"SLURM_RESTART_COUNT": "1"}, as_named)
    assert again.job == place.job and again.label != place.label, "requeued: another token"


def job_id(place: Place, *words: str) -> str:
    options = dataclasses.replace(parse(["--nproc-per-node", "1", *words], {}), place=place)
    return make_plan(options, 1).job


@pytest.mark.simulated
def test_a_job_that_is_queued_again_is_the_same_job():
    first, again, other, later = (
        slurm.place(STEP | more, as_named)
        for more in (
            {}, {"SLURM_RESTART_COUNT": "1"}, {"SLURM_JOB_ID": "8"}, {"SLURM_STEP_ID": "1"}
        )
    )  # fmt: skip
    assert job_id(first, "a.py", "1") == job_id(again, "a.py", "1")
    ids = [job_id(place, "a.py", "1") for place in (first, other, later, Place(), Place())]
    ids.append(
        job_id(first, "a.py", "2")
    )  # a script of one step, which starts one job after another
    assert len(set(ids)) == len(ids)
    pods = [kubernetes.place(POD | {kubernetes.UID: uid}) for uid in ("u1", "u1", "u2")]
    found = [job_id(place, "a.py") for place in pods]
    assert found[0] == found[1] != found[2]
    assert not kubernetes.place(POD).lasting


def test_nodes_of_one_step_agree_on_all_but_their_number():
    first, last = (
        slurm.place(STEP | {"SLURM_NODEID": n, "SLURM_PROCID": n}, as_named) for n in "04"
    )
    assert first.node_rank == 0 and last.node_rank == 4
    assert (first.first, first.job, first.label) == (last.first, last.job, last.label)


@pytest.mark.parametrize(
    "env, cluster",
    [
        ({}, "local"),
        (STEP, "slurm"),
        (STEP | {"PMI_RANK": "1", "PMI_SIZE": "5"}, "slurm"),
        (STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}, "local"),
        ({k: v for k, v in STEP.items() if "STEP" not in k}, "local"),
        (POD, "kubernetes"),
        ({k: v for k, v in POD.items() if k != "PET_NNODES"}, "local"),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, "local"),
    ],
)
def test_auto_finds_who_has_started_several_of_us(env, cluster, monkeypatch):
    monkeypatch.setattr(slurm, "reachable", as_named)
    assert clusters.find("auto", env).cluster == cluster


def test_a_batch_script_of_several_nodes_is_told_of_srun():
    batch = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "0"}
    assert "srun" in clusters.find("auto", batch).hint
    assert not clusters.find("local", batch).hint and not clusters.find("auto", {}).hint
    assert not clusters.find("auto", batch | {"SLURM_JOB_NUM_NODES": "1"}).hint


def test_mpi_answers_what_mpiexec_has_set_and_mpi_has_told():
    place = mpi.place(HYDRA, lambda: TOLD)
    assert (place.num_nodes, place.node_rank, place.first) == (2, 1, "node1:15001")
    assert place.label.endswith(TOLD[1]) and TOLD[1] not in place.job
    assert mpi.place(OPEN_MPI, lambda: TOLD).num_nodes == 3
    assert mpi.matches(HYDRA) and mpi.matches(OPEN_MPI) and not mpi.matches({})


def test_a_pod_answers_from_its_index_and_its_manifest():
    place = kubernetes.place(POD)
    assert (place.num_nodes, place.node_rank, place.job) == (3, 1, "train")
    assert place.first == "train-0.train:29400"
    assert place.token_file == "/etc/disttrain/token" and not place.label


@pytest.mark.simulated
def test_a_pod_waits_for_the_name_of_the_first_one():
    """It is not known before that pod has begun."""
    assert parse(["train.py"], POD).rendezvous.name_timeout == 300.0
    said = ["--rdzv-conf", "name_timeout=5,join_timeout=60", "train.py"]
    assert parse(said, POD).rendezvous.name_timeout == 5.0
    assert parse(["--rdzv-conf", "join_timeout=60", "train.py"], POD).rendezvous.join_timeout == 60


@pytest.mark.parametrize(
    "name, env, said",
    [
        ("slurm", {}, "srun dtrun train.py"),
        ("slurm", STEP | {"SLURM_STEP_ID": "batch"}, "no number"),
        ("mpi", {}, "mpiexec -ppn 1 dtrun"),
        ("kubernetes", {}, "JOB_COMPLETION_INDEX"),
        ("kubernetes", POD | {"PET_NNODES": "many"}, "PET_NNODES='many'"),
        ("kubernetes", {k: v for k, v in POD.items() if "ENDPOINT" not in k}, "PET_RDZV_ENDPOINT"),
    ],
)
def test_what_an_environment_does_not_say_is_named(name, env, said):
    with pytest.raises(ValueError) as told:
        clusters.find(name, env)
    assert f"--cluster {name}" in str(told.value) and said in str(told.value)


@pytest.mark.simulated
@pytest.mark.parametrize(
    "env",
    [STEP | {"SLURM_STEP_NUM_TASKS": "8"}, HYDRA | {"MPI_LOCALNRANKS": "2"}],
    ids=["slurm", "mpi"],
)
def test_several_processes_on_a_node_are_refused_with_the_way_out(env, capsys, monkeypatch):
    monkeypatch.setattr(slurm, "reachable", as_named)
    with pytest.raises(SystemExit):
        parse(["train.py"], env)
    said = capsys.readouterr().err
    assert "--cluster local" in said and "dtrun --nproc-per-node" in said
    assert parse(["--cluster", "local", "train.py"], env).place == Place()
    assert parse(["--standalone", "train.py"], env).place == Place()


def test_one_node_needs_no_answers():
    assert Place().answers() == {}
    assert (
        slurm.place(STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}).first == ""
    )


def test_answers_are_what_options_are_called():
    given = slurm.place(STEP, as_named).answers()
    assert given == {
        "nnodes": "5", "node_rank": 4, "rdzv_endpoint": "n08:15427", "rdzv_id": "slurm-7.0",
    }  # fmt: skip


def test_what_would_be_started_says_who_has_answered(capsys, monkeypatch):
    monkeypatch.setattr(slurm, "reachable", as_named)
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    assert dispatch.main(["--dry-run", "train.py"]) == 0
    said = capsys.readouterr().out
    assert "cluster: slurm, node 4 of 5, meeting at n08:15427" in said and "SIGTERM" in said


@pytest.mark.simulated
def test_a_name_that_is_no_cluster_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse(["--cluster", "slrum", "train.py"], {})
    assert "--cluster slrum" in capsys.readouterr().err
    assert clusters.is_known("ray://head:10001") and not clusters.is_known("rays")


def test_a_name_that_cannot_be_looked_up_is_asked_of_slurm(tmp_path, monkeypatch):
    told = tmp_path / "sinfo"
    told.write_text('#!/bin/sh\n[ "$3" = nowhere.invalid ] && echo 10.1.2.3\n')
    told.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert slurm.reachable("nowhere.invalid") == "10.1.2.3"
    assert slurm.reachable("elsewhere.invalid") == "elsewhere.invalid", "Slurm does not know it"
    assert slurm.reachable("localhost") == "localhost"
