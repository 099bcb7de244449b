"""Readers of other tools' files: one file per format, `read.read_evidence` for all of them."""
