"""Discrete-event simulation of a serving engine: requests arrive, wait, are prefilled, decode and finish.

Read `engine.py` first: it is the loop. `scheduler.py` decides who runs (as vLLM V1 does), `step_times.py` asks
`hwmodel` how long a step takes, `acceptance_sampling.py` says which drafts survive, `clients.py` sends the requests,
`metrics.py` defines every figure, `run.py` puts both arms together. Invariants: docs/invariants.md.
"""
