"""How far a node of a job on several nodes has come, in a word."""

from __future__ import annotations

READY, WORKING, FINISHED, FAILED, LEAVING = "ready", "running", "finished", "failed", "leaving"
