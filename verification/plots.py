"""Plots of what the verification scripts found; each shows which region is right.

A wrong point differs in colour and in shape, so that a plot can be read in grey and by the colour-blind. Without
matplotlib (it is for working on draftcast only) one line says that the plot was left out.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

OUT = Path("out") / "verification"  # git-ignored, in the checkout
CHECKOUT = Path(__file__).parents[1]
# Blue and vermilion of the palette of Okabe and Ito (Color Universal Design, 2008): told apart with any colour vision.
RIGHT: dict[str, Any] = {"color": "#0072B2", "marker": "o"}
WRONG: dict[str, Any] = {"color": "#D55E00", "marker": "X"}
UNJUDGED: dict[str, Any] = {"color": "#666666", "marker": "s"}
BAND: dict[str, Any] = {"color": "#0072B2", "alpha": 0.15, "linewidth": 0}
# Small type and thin lines for a printed page; the salt gives the same SVG for the same run.
STYLE: dict[Any, Any] = {"font.size": 8, "lines.linewidth": 1.0, "lines.markersize": 4, "svg.hashsalt": "draftcast"}
DOTS_PER_INCH = 150
WIDTH_INCHES, ROW_INCHES, FRAME_INCHES = 8.0, 0.19, 1.1
EDGE = 2.0  # in limits; a dot beyond is drawn there, with its value
LABEL_CHARS, GAP_POINTS = 76, 6


class Dot(NamedTuple):
    """A check in a plot: its text, where it lies in units of what is allowed, and whether it passed."""

    text: str
    share: float
    passed: bool


def draw(name: str, size_inches: tuple[float, float], paint: Callable[[Any], None]) -> None:
    """Writes `name`.svg and .png below out/verification: `paint` fills the matplotlib figure it is given."""
    try:  # here, not above: tests import the scripts and draw nothing
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no plot {OUT / name}.svg: matplotlib is not installed (make setup installs it)")
        return
    (CHECKOUT / OUT).mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        figure = Figure(figsize=size_inches, dpi=DOTS_PER_INCH, layout="constrained")
        paint(figure)
        figure.savefig(CHECKOUT / OUT / f"{name}.svg", metadata={"Date": None})
        figure.savefig(CHECKOUT / OUT / f"{name}.png")
    print(f"plot: {OUT / name}.svg, .png")


def draw_dots(name: str, title: str, dots: Sequence[Dot]) -> None:
    """The plot of all checks of a script: one line each, right where |deviation| is at most what is allowed."""
    rows = max(1, len(dots))

    def paint(figure: Any) -> None:
        figure.suptitle(title)
        axes = figure.add_subplot()
        axes.axvspan(-1, 1, **BAND)
        for limit in (-1, 1):
            axes.axvline(limit, color=RIGHT["color"])
        axes.axvline(0, color=UNJUDGED["color"], linestyle=":")
        for row, dot in enumerate(dots):
            shown = math.copysign(min(abs(dot.share), EDGE), dot.share)
            axes.plot(shown, row, linestyle="", clip_on=False, **(RIGHT if dot.passed else WRONG))
            if not dot.passed:
                side, gap = ("right", -GAP_POINTS) if shown > 0 else ("left", GAP_POINTS)  # towards the middle
                place = {"xytext": (gap, 0), "textcoords": "offset points", "ha": side, "va": "center"}
                axes.annotate(f"{dot.share:+.2g}", (shown, row), **place)
        axes.set(xlim=(-EDGE, EDGE), ylim=(rows - 0.5, -0.5), xlabel="deviation / allowed deviation")
        axes.set_yticks(range(len(dots)), [short(dot.text) for dot in dots])
        axes.set_xticks([-2, -1, 0, 1, 2], ["≤ -2", "-1", "0", "1", "≥ 2"])
        axes.grid(axis="y", alpha=0.3)
        above = axes.secondary_xaxis("top")
        above.set_xticks([-1.5, 0, 1.5], ["wrong", "right", "wrong"])
        above.tick_params(length=0)

    draw(name, (WIDTH_INCHES, FRAME_INCHES + ROW_INCHES * rows), paint)


def short(text: str) -> str:
    """The text on one line that fits beside a plot: without its figures where they are too much, else cut.

    >>> short("few words:   1.0 given")
    'few words: 1.0 given'
    >>> short("what was looked at: " + "1.0 " * 30)
    'what was looked at'
    """
    line = " ".join(text.partition("\n")[0].split())
    if len(line) > LABEL_CHARS:
        line = line.partition(": ")[0]
    return line if len(line) <= LABEL_CHARS else line[: LABEL_CHARS - 1] + "…"
