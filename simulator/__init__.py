"""When things happen: the deployment file, acceptance, closed-form serving, and what a choice is worth over time.

Asks `hwmodel` for every duration and never computes one itself.
"""
