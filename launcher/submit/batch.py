"""The script that sbatch takes. Pure: a job to text.

One task on each node, which is the node's ``dtrun``; Slurm itself answers the rest
(``launcher/clusters/slurm.py``). Where fewer nodes are enough, a lost one ends neither the job nor
its step (``--no-kill``), so that the others go on; else Slurm ends the job and queues it again
(``--requeue``), since a job of Slurm's gets no other node. Slurm sends SIGTERM before the time
limit; ``dtrun`` then ends with 143, and the script queues the job anew. A job that is cancelled is
not queued again: scancel ends the script, too.
"""

from __future__ import annotations

import shlex

from .job import Job, Slurm

ENDED_BY_SIGTERM = 143
_REQUEUE = """\
code=0
{srun} || code=$?
# {code}: SIGTERM came before the time limit, and the program has had its time to save. The same job
# goes on later, with the same number and output file.
if [[ $code == {code} && ${{SLURM_RESTART_COUNT:-0}} -lt {restarts} ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


def script(job: Job, slurm: Slurm) -> str:
    """The whole script."""
    fewest, most = job.nodes
    asked = {
        "job-name": job.name,
        "nodes": f"{fewest}-{most}" if most > fewest else f"{most}",
        "ntasks-per-node": "1",
        "cpus-per-task": job.cpus,
        "gpus-per-node": job.gpus,
        "mem": job.memory,
        "time": slurm.time,
        "partition": slurm.partition,
        "account": slurm.account,
        "output": slurm.output,
        "open-mode": "append",
        "signal": f"TERM@{job.save_time}",
    }
    lines = [f"#SBATCH --{name}={value}" for name, value in asked.items() if value]
    lines += ["#SBATCH --requeue", *(["#SBATCH --no-kill"] if most > fewest else [])]
    lines += [f"#SBATCH {line}" for line in slurm.lines]
    setup = [*slurm.setup, ""] if slurm.setup else []
    body = _REQUEUE.format(srun=_srun(job), code=ENDED_BY_SIGTERM, restarts=job.restarts)
    return "\n".join(["#!/bin/bash", f"# {job.written_by}", *lines, "", *setup, body])


def _srun(job: Job) -> str:
    """The command that starts ``dtrun`` on every node. srun takes the processors of a task from its
    own options alone (since Slurm 22.05)."""
    fewest, most = job.nodes
    own = [f"--cpus-per-task={job.cpus}"] if job.cpus else []
    others = ["--no-kill", "--kill-on-bad-exit=0"] if most > fewest else []
    words = ["srun", *others, *own, "dtrun"]
    elastic = [f'--nnodes {fewest}:"$SLURM_JOB_NUM_NODES"'] if most > fewest else []
    return " ".join([*words, *elastic, shlex.join([*job.flags, *job.program])])
