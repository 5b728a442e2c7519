"""Watching jobs, live and dead: what ranks have written into their black box, read and judged.

``reading`` turns the bytes of a box into data; ``waiting`` says who waits for whom and who is late;
``stragglers`` finds the rank that all others wait for (both pure). ``running`` is where the jobs of
a user are found, ``processes`` what the kernel says of them, ``stacks`` where Python stands in
them. ``table`` and ``screen`` show it, ``trace`` keeps it. Shared by the launcher and the command
``disttrain``; knows no tensors and starts nothing.
"""
