"""The job's token: secret bytes that all nodes of a job have and nobody else, and that stand in no
command line and no environment.

  A file of the user's, named by DISTTRAIN_TOKEN_FILE, comes before all else.
  Slurm, MPI      derived from the user's key (``~/.config/disttrain/key``, made at first use, mode
                  0600), which all nodes read from the home directory they share, and from what the
                  environment tells of this job alone: another job, or the same one started again,
                  has another token.
  Kubernetes      a Secret, mounted as a file.
  Ray             made by who starts the job, handed over with the call that starts an agent.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Mapping

from disttrain import settings
from disttrain.comm.store.token_file import LEAST_BYTES, read_token_file
from disttrain.errors import LaunchError

from .placement import Place

SIZE = 32
_MOST_BYTES = 4096


def token_of(place: Place, env: Mapping[str, str]) -> bytes | None:
    """The token of the job whose node this is; None where nothing gives one.

    Raises ``ConfigError`` or ``LaunchError`` where a file of it, or the key, cannot be used.
    """
    if place.token_file:
        return _mounted(place.token_file)
    if named := settings.TOKEN_FILE.text(env):
        return read_token_file(named)
    if place.label and place.num_nodes > 1:
        return derive(user_key(key_path(env)), place.label)
    return None


def derive(key: bytes, label: str) -> bytes:
    """The token for ``label``: HMAC-SHA256 (RFC 2104), which tells nothing of the key."""
    return hmac.new(key, b"disttrain job token\0" + label.encode(), hashlib.sha256).digest()


def key_path(env: Mapping[str, str]) -> str:
    """Where the user's key is: by the XDG base directories."""
    home = env.get("HOME") or os.path.expanduser("~")
    return os.path.join(
        env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "disttrain", "key"
    )


def user_key(path: str) -> bytes:
    """The key, made where there is none. Several nodes may do that at once: the file appears whole,
    and the first one stays."""
    if not os.path.lexists(path):
        _make(path)
    return read_token_file(path)


def _make(path: str) -> None:
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=".key-", dir=folder)  # mode 0600
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(secrets.token_bytes(SIZE))
                file.flush()
                os.fsync(file.fileno())
            os.link(name, path)  # fails where there is one by now, on NFS, too
        except FileExistsError:
            pass
        finally:
            os.unlink(name)
    except OSError as error:
        raise LaunchError(
            f"the key of your jobs cannot be made at {path}: {error.strerror}; it is needed on all "
            "nodes alike: set DISTTRAIN_TOKEN_FILE to a file of at least 16 secret bytes that all "
            "of them read"
        ) from None


def _mounted(path: str) -> bytes:
    """A token that Kubernetes has mounted. It is a link, belongs to root, and may be readable for
    the pod's group (``fsGroup``): who is inside the pod is us."""
    try:
        with open(path, "rb") as file:
            token = file.read(_MOST_BYTES)
    except OSError as error:
        raise LaunchError(
            f"DISTTRAIN_TOKEN_FILE={path}: it cannot be read ({error.strerror}); mount the job's "
            "Secret there"
        ) from None
    if len(token) < LEAST_BYTES:
        raise LaunchError(
            f"DISTTRAIN_TOKEN_FILE={path}: {len(token)} bytes; at least {LEAST_BYTES} secret ones "
            "are needed"
        )
    return token
