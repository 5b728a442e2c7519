#!/bin/bash
# Two to four machines of a Ray cluster, eight ranks on each. Run it in the folder of train.py, on a machine that
# reaches the head's dashboard; RAY_ADDRESS names it, as http://head:8265. Ray sends the folder along.
exec ray job submit --working-dir . -- \
    dtrun --cluster ray --nnodes 2:4 --nproc-per-node 8 --max-restarts 3 --on-term checkpoint train.py
