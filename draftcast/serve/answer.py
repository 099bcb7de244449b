"""One state answered by the model of `choose` and `predict`, one at a time; what nobody waits for is not computed."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

from draftcast import api
from draftcast.serve.source import Source
from draftcast.serve.state import State
from hwmodel.records import dataclass
from simulator.deployment import Deployment

PREVIEW_DRAWS = 200  # while a slider moves: the medians are the same, the ends of the intervals a little rougher
_KEPT = 64  # answers, of some 50 kB each


@dataclass(frozen=True, slots=True)
class Answer:
    """What `choose` and `predict` say about a state, as their JSON; `is_final` with all the draws of the commands."""

    deployment: Deployment
    choice: dict[str, Any]
    prediction: dict[str, Any]
    num_draws: int
    is_final: bool


class Gone(Exception):
    """Whoever asked has gone."""


class Answers:
    """Answers about one source."""

    def __init__(self, source: Source) -> None:
        """Nothing is computed yet."""
        self.source = source
        self._turn = Lock()
        self._kept: OrderedDict[tuple[tuple[str, ...], int | None, int], Answer] = OrderedDict()

    def answer(self, state: State, *, preview: bool = False, is_gone: Callable[[], bool] = lambda: False) -> Answer:
        """The answer; `Gone` where nobody waits for it when its turn comes. `InputError` as the commands have it."""
        request = self.source.request
        num_draws = min(PREVIEW_DRAWS, request.num_draws) if preview else request.num_draws
        key = (state.overrides, state.load, num_draws)
        with self._turn:
            if key not in self._kept:
                if is_gone():
                    raise Gone
                self._kept[key] = self._computed(state, num_draws)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _computed(self, state: State, num_draws: int) -> Answer:
        request = self.source.request
        deployment = self.source.deployment(state.overrides)
        choice = api.choose(deployment, num_draws=num_draws, seed=request.seed)
        prediction = api.predict(deployment, concurrency=state.load, num_draws=num_draws, seed=request.seed)
        final = num_draws == request.num_draws
        return Answer(deployment, choice.to_dict(), prediction.to_dict(), num_draws, final)
