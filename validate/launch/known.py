"""What the user knows about a launch beyond its own words."""

from dataclasses import dataclass

from hwmodel.specs import Gpu

API_KEY_VARIABLE = "DRAFTCAST_API_KEY"  # the environment variable with a server's key; a key is never an option


@dataclass(frozen=True, slots=True)
class Known:
    """Facts that stand beside a launch: the engine's version, the GPU, and a card or config.json of the model."""

    version: str | None = None
    gpu: Gpu | None = None
    model: str | None = None


NOTHING = Known()
