"""What a feature says whose optional package is missing: how to add it, however draftcast was installed."""

from collections.abc import Mapping

from hwmodel.errors import InputError

PACKAGES: Mapping[str, str] = {"report": "vl-convert-python", "tokenizer": "tokenizers", "dask": "distributed"}


def missing_extra(extra: str, wanted_by: str, otherwise: str, reason: str = "which is not installed") -> InputError:
    """The error to raise: who needs which package, and what to type with pip, pipx and uv; `otherwise`: without it."""
    package = PACKAGES[extra]
    return InputError(
        f"{wanted_by} needs the package {package}, {reason}; next: pip install 'draftcast[{extra}]', installed by pipx:"
        f" pipx inject draftcast {package}, by uv: uv tool install --force --with {package} SOURCE (the checkout or"
        f" wheel it came from); or {otherwise}"
    )
