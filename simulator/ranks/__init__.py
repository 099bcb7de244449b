"""One engine step on the ranks of a tensor-parallel group, event by event: layers, AllReduce on links, drawn experts.

Read `step.py` first, then `rank_process.py` (what a rank does), `allreduce_algorithms.py` (what it sends) and
`links.py` (what the wires do with it). Durations come from `hwmodel`; only waiting is computed here.
"""
