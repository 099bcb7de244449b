"""Sweeps run elsewhere: in local processes or on a Dask cluster. No arithmetic."""
