"""More ranks than a machine has cores for: they start, meet, and share their memory."""

from __future__ import annotations

from support.dtrun import dtrun

NUM_RANKS = 48
SCRIPT = """
import re, sys
before = set(sys.modules)
import disttrain as dt, disttrain.distributed as dist
dist.init_process_group()
t = dt.ones(4)
dist.all_reduce(t)
text = open('/proc/self/smaps_rollup').read()
private = sum(int(n) for n in re.findall(r'Private_\\w+: +(\\d+) kB', text))
new = [name for name in sys.modules if name not in before and name.startswith('disttrain')]
with open(f'seen{dist.get_rank()}', 'w') as file:
    file.write(f"{int(t[0])} {private >> 10} {','.join(new)}")
"""


def test_many_ranks_meet_and_have_little_memory_of_their_own(tmp_path):
    """Nothing is loaded by each rank for itself: 64 ranks that each loaded the transport took
    longer for that than for all else."""
    ended = dtrun(tmp_path, SCRIPT, "--nproc-per-node", str(NUM_RANKS))
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    for rank in range(NUM_RANKS):
        total, private, new = (tmp_path / f"seen{rank}").read_text().split(" ")
        assert (int(total), new) == (NUM_RANKS, "")
        assert int(private) < 15  # MiB
