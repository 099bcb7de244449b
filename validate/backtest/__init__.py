"""The model scored on published measurements, by a fixed protocol (docs/accuracy.md, "Protocol")."""
