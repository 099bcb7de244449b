"""What was predicted, written down before the restart, and how it turned out: one SQLite file, only ever added to."""
