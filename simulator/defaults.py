"""What is taken where nothing is asked for; apart from the rest, so that `--help` can say it without computing."""

DEFAULT_DRAWS = 2000  # parameter draws behind an interval
HORIZON_DAYS = 7.0  # how long a choice is in use, for the net value of a measurement
