"""The environment variables that the package hears, each declared once; read here and nowhere else.

A variable is read when it is asked for, so a program may set it until then. What launchers tell
their workers, under each launcher's names, is a table of its own: ``comm/job/worker_env``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Setting(NamedTuple):
    """A variable: its name, what holds without it, who sets it, and what it says."""

    name: str
    default: str
    who: str
    meaning: str

    def said(self, env: Mapping[str, str] | None = None) -> str | None:
        """What it is set to, in ``env`` or in the process; None where it is not set."""
        return environment(env).get(self.name)

    def text(self, env: Mapping[str, str] | None = None) -> str:
        """The same, or the default."""
        return environment(env).get(self.name, self.default)

    def flag(self, env: Mapping[str, str] | None = None) -> bool:
        """Whether it asks for what it names: all but nothing and 0 do."""
        return self.text(env) not in ("", "0")


def environment(env: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """``env``, or where none is given the variables of the process as they are now."""
    return os.environ if env is None else env


_PROGRAM, _LAUNCHER, _SYSTEM = "you", "dtrun", "the system"

FULL_TRACEBACK = Setting(
    "DISTTRAIN_FULL_TRACEBACK",
    "0",
    _PROGRAM,
    "1: a traceback shows what numpy or an inner part said first, too",
)
STRICT = Setting(
    "DISTTRAIN_STRICT",
    "0",
    _PROGRAM,
    "1: groups compare lines and shapes of calls, where `strict=` says nothing",
)
XLA_FLAGS = Setting(
    "XLA_FLAGS",
    "",
    _PROGRAM,
    "--xla_force_host_platform_device_count=N: how many devices a program of JAX's has in one "
    "process (other flags are let be)",
)
PRIVATE_FILES = Setting(
    "DISTTRAIN_PRIVATE_FILES", "0", _PROGRAM, "1: files that are saved are for their owner alone"
)
TORCH_FILES = Setting(
    "DISTTRAIN_TORCH_FILES",
    "0",
    _PROGRAM,
    "1: `torch.save` of the stand-in writes PyTorch's format",
)
TOKEN_FILE = Setting(
    "DISTTRAIN_TOKEN_FILE",
    "",
    "you or dtrun",
    "the file (or `fd:` and a descriptor) with the job's secret token, needed between hosts",
)
TLS = Setting(
    "DISTTRAIN_TLS", "0", _PROGRAM, "1: what ranks of different hosts send each other is encrypted"
)
FIXED_ORDER = Setting(
    "DISTTRAIN_FIXED_ORDER",
    "",
    _PROGRAM,
    "1: MPI sums in the order of the tree; 0: in its own; unset: the tree on one host",
)
NCCL_CHECK = Setting(
    "DISTTRAIN_NCCL_CHECK",
    "beside",
    _PROGRAM,
    "`before`: operations wait for the others' headers; `beside`: compared while devices work",
)
RECORD_FOLDER = Setting(
    "DISTTRAIN_RECORD_DIR", "", "dtrun --record", "the folder that ranks record what they do into"
)
RECORD = Setting(
    "DISTTRAIN_RECORD", "ops", "you or dtrun", "what of it: `collectives`, `modules` or `ops`"
)
RECORD_STEPS = Setting(
    "DISTTRAIN_RECORD_STEPS", "", "dtrun --record", "in which steps, as `100:110`; unset: all"
)
RECORD_RANKS = Setting(
    "DISTTRAIN_RECORD_RANKS", "", "dtrun --record", "which ranks, as `0,3`; unset: all"
)
RECORD_PAYLOADS = Setting(
    "DISTTRAIN_RECORD_PAYLOADS", "0", "dtrun --record", "1: the bytes that ranks receive, too"
)
SANITIZE = Setting(
    "DISTTRAIN_SANITIZE",
    "",
    "dtrun --sanitize",
    "1, or kinds as `error,dead-activations`: ranks look for silent bugs (docs/sanitizer.md)",
)
SANITIZE_REPORT = Setting(
    "DISTTRAIN_SANITIZE_REPORT",
    "",
    "dtrun --sanitize",
    "a file that gets a line of JSON for each finding",
)
MIN_RANKS = Setting(
    "DISTTRAIN_MIN_RANKS", "", _LAUNCHER, "with fewer ranks the launcher ends the job"
)
ON_TERM = Setting(
    "DISTTRAIN_ON_TERM", "", _LAUNCHER, "what SIGTERM means to a rank, where that is not the end"
)
GENERATION = Setting(
    "DISTTRAIN_GENERATION", "0", _LAUNCHER, "the number of this start of the job's ranks; it grows"
)
JOB_ID = Setting(
    "DISTTRAIN_JOB_ID", "", _LAUNCHER, "the same in all starts of a job, and in no other job"
)
JOB_UID = Setting(
    "DISTTRAIN_JOB_UID",
    "",
    "the manifest",
    "the UID of the Job in Kubernetes, for `DISTTRAIN_JOB_ID`",
)
JOB_FD = Setting("DISTTRAIN_JOB_FD", "", _LAUNCHER, "the descriptor of the job's shared memory")
BLACKBOX_FD = Setting("DISTTRAIN_BLACKBOX_FD", "", _LAUNCHER, "the descriptor of the black box")
DEBUGGER = Setting(
    "DISTTRAIN_DEBUGGER", "", _LAUNCHER, "where the launcher listens for ranks that stop to debug"
)
KEPT_FD = Setting(
    "DISTTRAIN_KEPT_FD",
    "",
    _LAUNCHER,
    "the descriptor of what ranks have committed",
)
FAKE = Setting("DISTTRAIN_FAKE", "0", "dtrun --fake", "1: a rank without peers")
BY_MPI = Setting(
    "DISTTRAIN_BY_MPI", "", _LAUNCHER, "1: MPI has started the ranks, which meet in it"
)

BLOCKING_WAIT = Setting(
    "TORCH_NCCL_BLOCKING_WAIT", "0", _PROGRAM, "1: `wait` of an operation of NCCL blocks the host"
)
DEBUG_LEVEL = Setting(
    "TORCH_DISTRIBUTED_DEBUG",
    "OFF",
    _PROGRAM,
    "OFF, INFO or DETAIL: what `get_debug_level` answers",
)
LOG_LEVEL = Setting("LOGLEVEL", "WARNING", _PROGRAM, "of torchelastic's loggers")
ERROR_FILE = Setting("TORCHELASTIC_ERROR_FILE", "", _LAUNCHER, "where `record` writes an error")
RUN_ID = Setting("TORCHELASTIC_RUN_ID", "", _LAUNCHER, "the job's name; set: a launcher is there")
RANK = Setting("RANK", "-1", _LAUNCHER, "the number of this rank")
LOCAL_RANK = Setting("LOCAL_RANK", "", _LAUNCHER, "its number on its host")
MASTER_PORT = Setting("MASTER_PORT", "", "you or dtrun", "the port of the store where ranks meet")
VISIBLE_DEVICES = Setting(
    "CUDA_VISIBLE_DEVICES", "", "you or dtrun", "the GPUs that there are; unset: all"
)
THREADS = Setting("OMP_NUM_THREADS", "", "you or dtrun", "of the linear algebra; unset: all cores")
HASH_SEED = Setting(
    "PYTHONHASHSEED", "", _PROGRAM, "a replay has the same order of sets of texts where it is set"
)
NO_COLOR = Setting("NO_COLOR", "", _PROGRAM, "set: a terminal is shown no colours")
TERMINAL = Setting("TERM", "", _SYSTEM, "`dumb`: a terminal that cannot move its cursor")
CACHES = Setting(
    "XDG_CACHE_HOME", "", _SYSTEM, "where compiled kernels are kept; unset: `~/.cache`"
)
CONFIG_HOME = Setting(
    "XDG_CONFIG_HOME",
    "",
    _SYSTEM,
    "where the key is that recordings are signed with; unset: `~/.config`",
)
TORCH_HOME = Setting(
    "TORCH_HOME", "", _PROGRAM, "where `torch.hub` of the stand-in keeps files; unset: in the cache"
)
BREAKPOINT = Setting(
    "PYTHONBREAKPOINT",
    "",
    _PROGRAM,
    "what `breakpoint()` calls (0: nothing); unset: pdb, in ranks too",
)
TF_CONFIG = Setting(
    "TF_CONFIG",
    "",
    "you or a cluster",
    "the workers and this task, as TensorFlow's programs know it",
)
RUNTIME = Setting("XDG_RUNTIME_DIR", "", _SYSTEM, "where running jobs are announced")
LIBRARIES = Setting("LD_LIBRARY_PATH", "", _SYSTEM, "`dttrain doctor` names CUDA's that come first")

TABLE = tuple(value for value in globals().values() if isinstance(value, Setting))
