"""What a measurement is asked to do, and the limits that keep it harmless."""

from dataclasses import dataclass
from typing import Any, Literal

from hwmodel.errors import InputError
from hwmodel.units import MINUTE

Api = Literal["auto", "chat", "completions"]
PrefixCache = Literal["avoid", "allow"]

MAX_CONCURRENCY = 512  # a thread each; a larger fleet of users needs several machines
DEFAULT_OUTPUT_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent. Two runs with the same load send the same prompts in the same order."""

    concurrencies: tuple[int, ...] = (1, 4, 16)
    output_tokens: int | None = None  # most of a request; default: the prompt's own, else 256
    temperature: float | None = None  # None: as the server does by default
    ignore_eos: bool = False
    api: Api = "auto"
    served_model: str | None = None
    prefix_cache: PrefixCache = "avoid"
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """What must be equal for two cells to be of one kind; concurrencies aside."""
        return {
            "output_tokens": self.output_tokens,
            "temperature": self.temperature,
            "ignore_eos": self.ignore_eos,
            "api": self.api,
            "served_model": self.served_model,
            "prefix_cache": self.prefix_cache,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """When a cell is good enough, and when it ends anyway. `precision` is the half-width of the 95 % interval of TPOT,
    relative."""

    precision: float = 0.03
    min_requests: int = 8
    max_requests: int = 2000  # of a cell
    cell_s: float = 60.0
    request_s: float = 300.0
    warmup_s: float = 10.0  # of the first cell; later ones warm up for one request of each user
    observe_s: float = 1.5  # before the first request: does anything move?
    gauge_s: float = 2.0  # between looks at the load; each holds the server's front end up for some milliseconds
    settle_s: float = 3.0  # after the last answer: the longest wait for the server's own accounting
    total_s: float = 30 * MINUTE
    total_tokens: int = 1_000_000  # generated, all cells together

    def to_dict(self) -> dict[str, Any]:
        """For the record."""
        return {name: getattr(self, name) for name in self.__slots__}


def check_load(load: Load) -> None:
    """An `InputError` for a load that cannot be run."""
    if not load.concurrencies:
        raise InputError("concurrency: got none, allowed: a list such as 1,4,16")
    bad = [users for users in load.concurrencies if not 1 <= users <= MAX_CONCURRENCY]
    if bad:
        raise InputError(f"concurrency: got {bad[0]}, allowed: 1 to {MAX_CONCURRENCY}")
