"""What every process of a sweep needs, imported once in the process that the others are forked from."""

import draftcast.scale.chunks
import draftcast.scale.local
import simulator.predict

__all__ = ["draftcast", "simulator"]
