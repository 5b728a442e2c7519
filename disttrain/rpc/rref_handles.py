"""What programs hold of RRefs: values of this worker, and forks of what others own. Knows nothing
of how either is kept alive: a user's handle tells its part (``note``) when it ends.
"""

from __future__ import annotations

from typing import Any

from ..futures import Future
from .calls.kept_errors import again, keep
from .calls.workers import WorkerInfo
from .rref_protocol import Name, User


class Value(Future):
    """A value that this worker owns, or that which keeps it from being made: without the frames of
    who could not make it, nor of who waits, which may have RRefs."""

    def put(self, result: object, error: BaseException | None = None) -> None:
        """Make it done, unless it is."""
        if not self._done:
            self._complete(result, None if error is None else keep(error))

    def value(self) -> Any:
        if self._done and self._error is not None:
            raise again(self._error)
        return super().value()


class OwnerHandle:
    """Keeps a value of this worker. ``value``: it, or that it is awaited, or why there is none.
    ``creation``: as a user's."""

    __slots__ = ("__weakref__", "creation", "name", "part", "value")

    def __init__(self, part: Any, name: Name, value: Value, creation: Future | None = None) -> None:
        self.part, self.name, self.value, self.creation = part, name, value, creation


class UserHandle:
    """Keeps a fork of this worker, and so the value at its owner. ``creation``: the answer to the
    request to make the value, where this worker sent it."""

    __slots__ = ("__weakref__", "_note", "creation", "owner", "part", "user")

    def __init__(
        self, part: Any, user: User, owner: WorkerInfo, creation: Future | None = None
    ) -> None:
        self.part, self.user, self.owner, self.creation = part, user, owner, creation
        self._note = part.note

    def __del__(self) -> None:
        self._note(self.user)


Handle = OwnerHandle | UserHandle


def show(user: User) -> str:
    return f"UserRRef(RRefId = {user.name.rref_id}, ForkId = {user.fork})"
