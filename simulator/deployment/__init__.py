"""The deployment file: what is served, on what, how it would draft, and what was measured.

`tables` and `speculation` declare the keys, `load` reads and checks them, `overrides` lays command-line values over
them, `keys` lists them, `write` writes a deployment down as a file. Everything that a user writes passes through here
once; inside, values are trusted.
"""

from simulator.deployment.keys import KeyInfo, known_keys
from simulator.deployment.load import apply_overrides, load_deployment, read_tables, with_method
from simulator.deployment.speculation import LOOKUP_METHODS, METHODS, NGRAM_METHODS, Acceptance, Speculation
from simulator.deployment.tables import INTERCONNECTS, KINDS, Deployment, Workload

__all__ = [
    "INTERCONNECTS",
    "KINDS",
    "LOOKUP_METHODS",
    "METHODS",
    "NGRAM_METHODS",
    "Acceptance",
    "Deployment",
    "KeyInfo",
    "Speculation",
    "Workload",
    "apply_overrides",
    "known_keys",
    "load_deployment",
    "read_tables",
    "with_method",
]
