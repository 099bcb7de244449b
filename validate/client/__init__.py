"""Talking to a live server: requests, streamed answers, counters, and what can go wrong with each."""
