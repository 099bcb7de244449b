"""What can be wrong with a stated acceptance beyond the bounds of each key; each trap with the way out of it."""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from operator import mul

from simulator.deployment.counters import read_counters
from simulator.deployment.speculation import FORMS, Acceptance

# Published vectors are rounded to two or three digits: a stated mean length may miss 1 + sum by this much, relative.
# A cumulative vector read as a conditional one, or the reverse, misses by far more (README of published cards:
# .633 .404 .264 is 2.30 as cumulative and 1.96 as conditional).
ROUNDING = 0.02
_VECTORS = ("per_position", "conditional")
_WHERE = "speculation.acceptance"


def acceptance_problems(acceptance: Acceptance) -> Iterator[str]:
    """One-line problems of `acceptance`; what cannot be read raises by itself."""
    given = [name for name in FORMS if getattr(acceptance, name) is not None]
    if not given:
        yield f"{_WHERE}: got none of its forms, allowed: one of {', '.join(FORMS)}"
        return
    is_check = len(given) == len(_VECTORS) and given[0] in _VECTORS and given[1] == "mean_length"
    if len(given) > 1 and not is_check:
        yield f"{_WHERE}: got {' and '.join(given)}, allowed: one form (mean_length may check a vector)"
    yield from _scalar_problems(acceptance)
    yield from _vector_problems(acceptance)
    if acceptance.counters is not None:
        read_counters(acceptance.counters)
    if acceptance.published is not None:
        from simulator.published_drafters import check_name  # only where one is named: start-up time

        check_name(acceptance.published)


def _scalar_problems(acceptance: Acceptance) -> Iterator[str]:
    k, length = acceptance.measured_at_k, acceptance.mean_length
    if acceptance.form in ("mean_length", "rate") and k is None:
        yield f"{_WHERE}.{acceptance.form}: missing measured_at_k, allowed: the draft length it was measured at"
    if length is not None and k is not None and length > k + 1:
        yield f"{_WHERE}.mean_length: got {length:g}, allowed: 1 to {k + 1} (measured_at_k = {k}, and the bonus token)"


def _vector_problems(acceptance: Acceptance) -> Iterator[str]:
    vector = acceptance.per_position or acceptance.conditional
    if vector is None:
        return
    if acceptance.measured_at_k not in (None, len(vector)):
        yield f"{_WHERE}.measured_at_k: got {acceptance.measured_at_k}, allowed: {len(vector)}, as the vector is long"
    if acceptance.per_position is not None and any(b > a for a, b in pairwise(vector)):
        yield (
            f"{_WHERE}.per_position: got {', '.join(f'{s:g}' for s in vector)}, allowed: never increasing "
            "(unconditional shares; rates given the position before are `conditional`)"
        )
    if acceptance.mean_length is not None:
        yield from _length_problems(acceptance, vector)


def _length_problems(acceptance: Acceptance, vector: tuple[float, ...]) -> Iterator[str]:
    """A card's mean length tells whether its rates are cumulative, whatever the card calls them."""
    lengths = {"per_position": 1 + sum(vector), "conditional": 1 + sum(accumulate(vector, mul))}
    stated, form = acceptance.mean_length or 1.0, acceptance.form
    if _close(lengths[form], stated):
        return
    other = _VECTORS[1 - _VECTORS.index(form)]
    hint = f"; read as {other} it is: write {other} = [...]" if _close(lengths[other], stated) else ""
    yield f"{_WHERE}.{form}: mean length by the vector is {lengths[form]:.3f}, stated mean_length {stated:g}{hint}"


def _close(length: float, stated: float) -> bool:
    return abs(length - stated) <= ROUNDING * stated
