#!/bin/bash
# Two machines, eight ranks on each, started by mpiexec (MPICH, Intel MPI; Open MPI: mpirun --map-by ppr:1:node).
exec mpiexec -hosts node1,node2 -ppn 1 \
    dtrun --nproc-per-node 8 --max-restarts 3 --on-term checkpoint train.py
