"""Acceptance replayed offline: what a draft that copies text would have had accepted in recorded outputs.

Reading guide: `recording` (what is replayed), `ngram` and `suffix` (what would have been drafted at every position and
how much of it is right), `walk` (which positions become decode steps), `counts` (what is counted), `run` (all of it).
"""
