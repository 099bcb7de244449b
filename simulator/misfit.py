"""What a profile says of measurements that the model misses by more than its usual error; every answer repeats it."""

from dataclasses import dataclass

from hwmodel.percent import percent
from simulator.json_table import JsonTable

_MOST_MEASUREMENTS = 1_000_000
_WIDER = 1.05  # times: less rounds to no difference


@dataclass(frozen=True, slots=True)
class Misfit:
    """What missed, by how much, and what follows.

    `num_inside` of `num_measurements` lie in the 90 % interval that all other loads and the usual model error give
    them, or the priors alone (`from_priors`); `worst` is the farthest off, its prediction by the share `error`.
    Where one load was measured alone, `carried` is by what share a step differs from the model at each of `loads`, the
    measured one first: what no parameter explains, as far as it counts elsewhere.
    """

    num_measurements: int
    num_inside: int
    from_priors: bool
    worst: str
    error: float
    usual_error: float  # tau before and after, relative
    found_error: float
    widening: float | None = None  # of the speedup's interval; None where no speedup was in question
    loads: tuple[float, ...] = ()
    carried: tuple[float, ...] = ()

    def sentence(self) -> str:
        """All of it in one note."""
        by = "the priors allow" if self.from_priors else "the other loads leave"
        inside = f"{self.num_inside} of {self.num_measurements} lie in the 90 % interval that {by} them"
        if self.num_inside == self.num_measurements:
            inside = f"each lies in the 90 % interval that {by} it, but not all of them together can"
        wider = "" if (self.widening or 0.0) < _WIDER else f", and intervals are {self.widening:.1f} times as wide"
        return (
            f"the profile's measurements do not fit the model: {inside} (farthest: {self.worst}, predicted"
            f" {percent(self.error, signed=True)}); the model error is taken as {percent(self.found_error)} instead of"
            f" {percent(self.usual_error)}{wider}. Check attention backend, interconnect, AllReduce class and graphs of"
            f" the deployment file, and that measurement{self._elsewhere()}"
        )

    def _elsewhere(self) -> str:
        """What one load says of the others, in words; nothing where there are none."""
        if not self.loads[1:]:
            return ""
        by_load = ", ".join(_at(*pair) for pair in zip(self.loads[1:], self.carried[1:], strict=True))
        there = percent(self.carried[0], signed=True)
        return (
            f". Only C={self.loads[0]:g} was measured: what no parameter explains there, {there} of a"
            f" step, counts at other loads as far as they are alike ({by_load}), and the model alone beyond: measure"
            " those loads too"
        )


def _at(load: float, share: float) -> str:
    """The part that counts at one load: C=4: -18 %."""
    return f"C={load:g}: {percent(share, signed=True)}" if round(100 * share) else f"C={load:g}: none"


def misfit_of(tree: JsonTable) -> Misfit:
    """The record of a profile's JSON, every value checked."""
    loads = tuple(tree.vector("loads").tolist()) if tree.get("loads") is not None else ()
    return Misfit(
        num_measurements=tree.whole("num_measurements", 1, _MOST_MEASUREMENTS),
        num_inside=tree.whole("num_inside", 0, _MOST_MEASUREMENTS),
        from_priors=tree.truth("from_priors"),
        worst=tree.text("worst"),
        error=tree.number("error", -1.0, 1e9),
        usual_error=tree.number("usual_error", 0.0, 1.0),
        found_error=tree.number("found_error", 0.0, 1.0),
        widening=tree.optional("widening", 0.0, 1e6),
        loads=loads,
        carried=tuple(tree.vector("carried", len(loads)).tolist()) if loads else (),
    )
