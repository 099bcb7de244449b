"""One file per command; `draftcast.cli` imports each when it runs."""
