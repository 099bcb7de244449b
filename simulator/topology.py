"""Reads `nvidia-smi topo -m` and says which interconnect class a tensor-parallel group has on that machine."""

import re
from itertools import takewhile

from hwmodel.errors import InputError
from hwmodel.records import dataclass

_MAX_CHARS = 200_000  # sixteen GPUs and as many NICs are 5 kB
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_GPU = re.compile(r"^GPU\d+$")
_NVLINK = re.compile(r"^NV(\d{1,3})$")
_PCIE_LINKS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_OLD_NAMES = {"SOC": "SYS"}  # drivers before 390
_SWITCH_LINKS = ("PIX", "PXB")  # never through the CPU
_MIN_SWITCH_NVLINKS = 18  # per GPU on H100 and later; no directly wired machine gives one pair this many
_MAX_NVLINKS_PER_GPU = 18  # a GPU that shows more in sum reaches its peers through NVSwitch
_MIN_RING_NEIGHBOURS = 2


@dataclass(frozen=True)
class Topology:
    """Links between GPUs: `links[i][j]` is "X", "NV4", "PIX", "PXB", "PHB", "NODE" or "SYS"; symmetric."""

    links: tuple[tuple[str, ...], ...]

    @property
    def num_gpus(self) -> int:
        """GPUs in the matrix."""
        return len(self.links)


def parse_topology(text: str) -> Topology:
    """The GPU matrix of `nvidia-smi topo -m` text; network cards, affinities and the legend are left out."""
    if len(text) > _MAX_CHARS:
        raise _error(f"{len(text)} characters", f"at most {_MAX_CHARS}")
    lines = [_ANSI.sub("", line).split() for line in text.splitlines()]
    header = next((number for number, words in enumerate(lines) if _is_header(words)), None)
    if header is None:
        raise _error("no header line 'GPU0 GPU1 ...'", "the table with its header")
    names = list(takewhile(_GPU.match, lines[header]))  # network cards and affinities stand right of the GPUs
    if len(set(names)) < len(names):
        raise _error(f"columns {' '.join(names)[:60]}", "each GPU once")
    rows: dict[str, tuple[str, ...]] = {}
    for words in lines[header + 1 :]:
        if words and words[0] in names and words[0] not in rows:
            rows[words[0]] = _row(words, len(names))
    missing = [name for name in names if name not in rows]
    if missing:
        raise _error(f"no row for {missing[0]}", f"{len(names)} rows under {len(names)} GPU columns")
    topology = Topology(tuple(rows[name] for name in names))
    _check_matrix(topology)
    return topology


def classify(topology: Topology, num_gpus: int) -> tuple[str, str]:
    """(interconnect class, reason in plain words) of the first `num_gpus` GPUs, which is what an engine takes.

    The table does not say whether peer-to-peer works; `nvidia-smi topo -p2p r` does, and without it the class is
    pcie-no-p2p whatever the links.
    """
    if not 1 <= num_gpus <= topology.num_gpus:
        raise InputError(
            f"number of GPUs: got {num_gpus}, the topology has {topology.num_gpus}; allowed: up to that many"
        )
    if num_gpus == 1:
        return "none", "one GPU talks to no other"
    nvlink = _classify_nvlink(topology, num_gpus)
    if nvlink is not None:
        return nvlink
    return _classify_pcie(topology, num_gpus)


def _classify_nvlink(topology: Topology, num_gpus: int) -> tuple[str, str] | None:
    """NVLink class, or None where NVLink does not carry the whole group."""
    group = range(num_gpus)
    counts = [[_num_nvlinks(topology.links[i][j]) for j in group if j != i] for i in group]
    if all(count > 0 for row in counts for count in row):
        pair, total = counts[0][0], sum(counts[0])
        if pair >= _MIN_SWITCH_NVLINKS or total > _MAX_NVLINKS_PER_GPU:
            return "nvswitch", f"every pair of the {num_gpus} GPUs shows {pair} NVLinks, more than direct wiring has"
        return "nvlink", f"every pair of the {num_gpus} GPUs is joined by NVLink directly ({pair} links)"
    neighbours = [sum(count > 0 for count in row) for row in counts]
    if min(neighbours) >= _MIN_RING_NEIGHBOURS and _is_connected(topology, num_gpus):
        return (
            "nvlink",
            f"not every pair has NVLink, but each of the {num_gpus} GPUs has two neighbours: NCCL rings over it",
        )
    return None


def _classify_pcie(topology: Topology, num_gpus: int) -> tuple[str, str]:
    links = [topology.links[i][j] for i in range(num_gpus) for j in range(i)]
    names = {link for link in links if not _num_nvlinks(link)}
    bridged = any(_num_nvlinks(link) for link in links)
    note = "; NVLink joins only some pairs, the others bound a ring" if bridged else ""
    if "SYS" in names:
        return "pcie-dual-socket", f"some pairs are SYS: they cross the link between CPU sockets{note}"
    if names <= set(_SWITCH_LINKS):
        return "pcie-switch", f"all pairs are PIX or PXB: peer traffic stays inside PCIe switches{note}"
    islands = _islands(topology, num_gpus)
    if len(islands) > 1 and min(islands) > 1:
        sizes = "+".join(str(size) for size in islands)
        return "pcie-two-switches", f"{len(islands)} switches ({sizes} GPUs) that meet in one CPU (PHB or NODE){note}"
    return "pcie-root", f"pairs meet in the host bridges of one CPU (PHB or NODE){note}"


def _islands(topology: Topology, num_gpus: int) -> list[int]:
    """Sizes of the groups that PIX, PXB and NVLink join without the CPU."""
    left = set(range(num_gpus))
    sizes = []
    while left:
        reached = {left.pop()}
        frontier = set(reached)
        while frontier:
            frontier = {j for j in left if any(_is_near(topology.links[i][j]) for i in frontier)}
            left -= frontier
            reached |= frontier
        sizes.append(len(reached))
    return sizes


def _is_near(link: str) -> bool:
    return link in _SWITCH_LINKS or _num_nvlinks(link) > 0


def _is_connected(topology: Topology, num_gpus: int) -> bool:
    reached, frontier = {0}, {0}
    while frontier:
        frontier = {
            j for i in frontier for j in range(num_gpus) if _num_nvlinks(topology.links[i][j]) and j not in reached
        }
        reached |= frontier
    return len(reached) == num_gpus


def _num_nvlinks(link: str) -> int:
    match = _NVLINK.match(link)
    return int(match.group(1)) if match else 0


def _is_header(words: list[str]) -> bool:
    """A line of GPU names; a row has links right of its name."""
    return bool(words) and bool(_GPU.match(words[0])) and (len(words) == 1 or not _is_link(words[1]))


def _row(words: list[str], num_gpus: int) -> tuple[str, ...]:
    links = tuple(_OLD_NAMES.get(cell, cell) for cell in words[1 : num_gpus + 1])
    wrong = next((link for link in links if not _is_link(link)), None)
    if wrong is not None:
        raise _error(f"link {wrong[:20]!r} in row {words[0]}", f"X, NV#, {', '.join(_PCIE_LINKS)}")
    if len(links) < num_gpus:
        raise _error(f"row {words[0]} with {len(links)} links", f"{num_gpus}, one per GPU column")
    return links


def _is_link(cell: str) -> bool:
    return cell == "X" or _OLD_NAMES.get(cell, cell) in _PCIE_LINKS or _num_nvlinks(cell) > 0


def _check_matrix(topology: Topology) -> None:
    for i, row in enumerate(topology.links):
        for j, link in enumerate(row):
            if (link == "X") != (i == j):
                raise _error(f"'{link}' between GPU{i} and GPU{j}", "X on the diagonal only")
            if link != topology.links[j][i]:
                raise _error(f"GPU{i}-GPU{j} {link} but GPU{j}-GPU{i} {topology.links[j][i]}", "a symmetric table")


def _error(got: str, allowed: str) -> InputError:
    return InputError(f"nvidia-smi topo -m text: got {got}; allowed: {allowed}")
