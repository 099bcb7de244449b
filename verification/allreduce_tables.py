"""AllReduce on the simulated links against published tables: within 20 % at 8 KiB to 2 MiB.

Right: every scored set says PASS. A set that is not scored is shown with the reason. The constants of the links are
fitted to these very tables (data/fits/links.toml says which to which): this shows that one set of constants and the
boxes' wiring explain them together, not that unseen boxes are predicted.
"""

import math
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.gpus import load_gpu
from hwmodel.link_constants import custom_kernel, usual_protocol
from hwmodel.percent import percent
from hwmodel.units import KIB, US
from simulator.ranks.allreduce_algorithms import Choice
from simulator.ranks.isolated import allreduce_period_s
from simulator.ranks.topology_graph import Box, box_from_topology, box_of_class
from simulator.topology import Topology
from verification.checks import Check, report
from verification.plots import BAND, RIGHT, UNJUDGED, WRONG, draw

TABLES = Path(__file__).parent / "data" / "allreduce_tables.toml"
TOLERANCE = 0.20
COLUMNS, CURVES_INCHES = 3, (8.0, 11.0)
TICKS_KIB = (8, 64, 512, 2048)


class Compared(NamedTuple):
    """A set of the tables, and its rows: KiB, measured us, simulated us."""

    entry: dict[str, Any]
    rows: list[tuple[int, float, float]]

    @property
    def scored(self) -> bool:
        """Whether it is judged."""
        return bool(self.entry.get("scored", True))

    def check(self) -> Check:
        """The row that is farthest off."""
        worst = max((simulated / measured - 1.0 for _, measured, simulated in self.rows), key=abs)
        reason = "" if self.scored else f" ({self.entry['reason']})"
        cells = "  ".join(f"{kib}:{simulated:.1f}/{measured:.1f}" for kib, measured, simulated in self.rows)
        text = f"{self.entry['name']:42} worst {percent(worst, signed=True)}{reason}"
        text += f"\n      KiB:simulated/measured us  {cells}"
        return Check(text, worst if self.scored else None, TOLERANCE)


def main() -> int:
    """Exit code: 1 when a scored set is off by more than the tolerance anywhere."""
    entries = tomllib.loads(TABLES.read_text(encoding="utf-8"))["set"]
    sets = [Compared(entry, compare(entry)) for entry in entries]
    code = report("allreduce_tables", (each.check() for each in sets))
    draw("allreduce_tables_curves", CURVES_INCHES, lambda figure: paint(figure, sets))
    return code


def paint(figure: Any, sets: list[Compared]) -> None:
    """A panel a set, time over size: right where the simulated line stays in the band around the measured dots."""
    figure.suptitle(
        f"AllReduce, microseconds over KiB. Dots: measured, band: ±{percent(TOLERANCE)} of it, line: simulated.\n"
        "Right: the line stays in the band; a row outside is a cross. Grey: shown, not judged."
    )
    panels = figure.subplots(math.ceil(len(sets) / COLUMNS), COLUMNS, sharex=True).flat
    for each, axes in zip(sets, panels, strict=False):
        kib, measured, simulated = (np.array(column) for column in zip(*each.rows, strict=True))
        look = RIGHT if each.scored else UNJUDGED
        axes.fill_between(
            kib, (1.0 - TOLERANCE) * measured, (1.0 + TOLERANCE) * measured, **BAND | {"color": look["color"]}
        )
        axes.plot(kib, measured, linestyle="", **look)
        axes.plot(kib, simulated, color="black")
        off = np.abs(simulated / measured - 1.0) > TOLERANCE
        axes.plot(kib[off], simulated[off], linestyle="", **WRONG)
        axes.set(xscale="log", yscale="log")
        axes.set_title(each.entry["name"], fontsize="medium")
        axes.set_xticks(TICKS_KIB, map(str, TICKS_KIB))
        axes.minorticks_off()
        axes.yaxis.get_major_locator().set_params(subs=(1, 2, 3, 5))
        axes.yaxis.set_major_formatter("{x:g}")


def compare(entry: dict[str, Any]) -> list[tuple[int, float, float]]:
    """(KiB, measured us, simulated us) of every row of a set."""
    box = box_of(entry)
    rows = []
    for kib, measured in entry["time_us"].items():
        choice = choice_for(entry, box, int(kib) * KIB)
        rows.append((int(kib), float(measured), allreduce_period_s(box, int(kib) * KIB, choice) / US))
    return rows


def box_of(entry: dict[str, Any]) -> Box:
    """The box of a set: NVSwitch without further keys, else its wiring as `nvidia-smi topo -m` would show it."""
    gpu, count = load_gpu(entry["gpu"]), entry["num_gpus"]
    if "switch_gpus" not in entry:
        return box_of_class("nvswitch", gpu, count)

    def link(i: int, j: int) -> str:
        if i == j:
            return "X"
        if i // entry["socket_gpus"] != j // entry["socket_gpus"]:
            return "SYS"
        same_switch = i // entry["switch_gpus"] == j // entry["switch_gpus"]
        return "PIX" if same_switch else str(entry.get("between_switches", "NODE"))

    return box_from_topology(Topology(tuple(tuple(link(i, j) for j in range(count)) for i in range(count))), gpu, count)


def choice_for(entry: dict[str, Any], box: Box, num_bytes: int) -> Choice:
    """The algorithm and protocol of a row."""
    if entry["algorithm"] == "custom":
        return Choice(custom_kernel(box.num_gpus, num_bytes))
    if entry["algorithm"] != "nccl":
        return Choice(entry["algorithm"])
    usual = usual_protocol(box.family, num_bytes, entry.get("mistuned_socket", False))
    return Choice("ring", entry.get("protocol", usual), entry.get("channels"))


if __name__ == "__main__":
    sys.exit(main())
