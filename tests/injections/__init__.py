"""Experiments that hurt a job on purpose and look at what is left."""
