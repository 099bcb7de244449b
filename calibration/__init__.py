"""Turning measurements into parameters with uncertainty. Never talks to a server."""
