"""``scripts/gpu``: what is claimed of GPUs, tried on one, part by part.

``parts.py`` lists the parts (data), ``schedule.py`` says which may start when (pure), ``runner.py``
starts each in a process of its own with a limit of time, ``journal.py`` is what a part writes as it
goes, so that a crash loses one line, ``report.py`` makes the Markdown (pure). ``proofs/`` has what
the parts do.
"""
