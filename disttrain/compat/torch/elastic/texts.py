"""Small things of ``torch.distributed.elastic.utils``."""

from __future__ import annotations

import inspect
import logging
from string import Template
from typing import Any

from .... import settings


class macros:
    """``${local_rank}`` in the arguments of a program."""

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[Any]:
        return [
            Template(a).safe_substitute(local_rank=local_rank) if isinstance(a, str) else a
            for a in args
        ]


def get_env_variable_or_raise(env_name: str) -> str:
    """Raises ``ValueError`` for a variable that is not set."""
    value = settings.environment().get(env_name)
    if value is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value


def get_logger(name: str | None = None) -> logging.Logger:
    """The logger of that name, else the caller's module's; ``LOGLEVEL`` sets its level."""
    if name is None:
        caller = inspect.currentframe()
        assert caller is not None and caller.f_back is not None
        name = caller.f_back.f_globals.get("__name__", "")
    logger = logging.getLogger(name)
    logger.setLevel(settings.LOG_LEVEL.text())
    return logger
