"""Live servers and real launches. Import the submodules; this file holds no names, since other distributions own a
top-level `validate`."""
