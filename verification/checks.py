"""What a verification script found: printed line by line, drawn in one plot, and its exit code."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from verification.plots import Dot, draw_dots


class Check(NamedTuple):
    """A finding: what was compared, how far off it is and how far it may be (same unit). None: shown, not judged."""

    text: str
    deviation: float | None
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether it is as near as it must be; what is not a number is not."""
        return self.deviation is None or bool(abs(self.deviation) <= self.allowed)


def strictest(text: str, *limits: tuple[float, float]) -> Check:
    """The check of several (deviation, allowed) that must all hold: the pair that is nearest to its limit or beyond."""
    return Check(text, *max(limits, key=lambda limit: abs(share(*limit))))


def share(deviation: float, allowed: float) -> float:
    """Deviation in units of what is allowed: right from -1 to 1; infinite where it is not a number.

    >>> share(-0.5, 2.0), share(0.0, 0.0), share(math.nan, 1.0)
    (-0.25, 0.0, inf)
    """
    if deviation == 0 and allowed == 0:
        return 0.0
    return deviation / allowed if allowed > 0 and not math.isnan(deviation) else math.inf


def report(name: str, checks: Iterable[Check]) -> int:
    """Exit code: 1 when any check fails. Prints each as it comes, then draws all that are judged."""
    dots, shown = [], 0
    for check in checks:
        if check.deviation is None:
            shown += 1
            print("(shown)", check.text, flush=True)
            continue
        print("PASS" if check.passed else "FAIL", check.text, flush=True)
        dots.append(Dot(check.text, share(check.deviation, check.allowed), check.passed))
    failed = sum(not dot.passed for dot in dots)
    others = f", {shown} more shown, not judged" if shown else ""
    print(f"{'FAIL' if failed else 'PASS'}: {name}, {failed} of {len(dots)} checks failed{others}")
    draw_dots(name, f"{name}: {len(dots) - failed} of {len(dots)} checks right{others}", dots)
    return int(failed > 0)
