"""The pool of KV cache blocks: every block is free or held by exactly one request."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class BlockPool:
    """`total` blocks of `block_size` tokens; requests hold whole blocks (docs/invariants.md, 3)."""

    total: int
    block_size: int
    free: int = field(init=False)

    def __post_init__(self) -> None:
        """All blocks are free at first."""
        self.free = self.total

    @property
    def used(self) -> int:
        """Blocks in use."""
        return self.total - self.free

    @property
    def usage(self) -> float:
        """Share of the blocks in use."""
        return self.used / self.total

    def blocks_for(self, tokens: Any) -> Any:
        """Blocks that hold so many tokens; a number or an array."""
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> None:
        """Hand out blocks that are known to be free."""
        self.free -= blocks
        assert 0 <= self.free <= self.total, f"KV blocks: {self.free} free of {self.total}"

    def give_back(self, blocks: int) -> None:
        """Blocks return."""
        self.take(-blocks)
