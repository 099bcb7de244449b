"""Results for a human reader: one `render(result, page)` per command, from the same dictionary that `--json` prints."""
