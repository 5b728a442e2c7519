"""What jobs on real clusters run in tests: programs whose ranks meet and add up ones."""

ALL_REDUCE = """
import os, sys, time
import disttrain as dt
import disttrain.distributed as dist
dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()

def step():
    x = dt.ones(1)
    dist.all_reduce(x)
    time.sleep(0.02)
    return int(x.item())
"""
SUM = (
    ALL_REDUCE
    + """
print(f"rank {rank} of {world}, node {os.environ['GROUP_RANK']}: sum {step()}", flush=True)
"""
)
