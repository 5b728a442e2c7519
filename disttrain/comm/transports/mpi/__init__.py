"""Ranks under MPI: started by mpiexec or srun, on one host or several (``docs/mpi.md``).

Files: ``library`` (mpi4py, loaded late), ``rounds`` (pure: who tells whom that it has come),
``notices`` (pure: what ranks tell each other beside their calls, and who is stuck), ``starting``
(nobody waits in MPI_Init for a rank that has ended), ``station`` (a process's end of it: waits,
notices, failure), ``arrival`` (headers are compared), ``collectives`` (as steps), ``messages``
(send and recv), ``transport`` (the verbs), ``shrinking`` (a group goes on without some of its
ranks), ``ending`` (a job that ends), ``engine`` (how a default group is made), by ``connect``.
"""
