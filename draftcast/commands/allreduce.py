"""`draftcast allreduce`: how long one AllReduce takes."""

from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import json_option
from draftcast.output import show
from hwmodel.errors import InputError
from simulator.files import read_text

if TYPE_CHECKING:
    from hwmodel.collectives import AllReduceCurve

MAX_GPUS = 72  # the largest box whose GPUs share one link: NVL72. Source: NVIDIA GB200 NVL72 datasheet
# Whose links are assumed where only a topology is given, by whether NVLink carries the group.
ASSUMED_GPUS = {True: "h100-sxm", False: "rtx-pro-6000-blackwell-server"}
NVLINK_CLASSES = ("nvlink", "nvswitch")


@click.command("allreduce", cls=Command)
@click.option("--gpu", metavar="NAME", help="GPU card; `draftcast list gpus` has the names.")
@click.option("--num-gpus", type=click.IntRange(min=1), metavar="N", help="GPUs that take part.")
@click.option("--interconnect", metavar="CLASS", help="`draftcast list interconnects`; default: the GPU's usual one.")
@click.option("--nccl-tests", metavar="FILE", help="Output of all_reduce_perf, in place of GPU and class.")
@click.option("--topology", metavar="FILE", help="Text of `nvidia-smi topo -m`, in place of the class.")
@click.option("--algorithm", default="auto", show_default=True, help="auto, nccl, one-shot, two-shot, hierarchical.")
@json_option
def command(as_json: bool, **options: Any) -> None:
    """How long one AllReduce takes, by its size.

    Every layer of a tensor-parallel model waits for two of them, and drafts make each of them larger.
    """
    _check_usage(options)
    from hwmodel.allreduce_report import allreduce_report

    notes: list[str] = []
    curve = _measured(options) if options["nccl_tests"] else _by_class(options, notes)
    report = allreduce_report(curve, None)
    show({"inputs": options, "notes": notes, **report}, as_json=as_json, view="allreduce")


def _check_usage(options: dict[str, Any]) -> None:
    """`click.UsageError` for a source that is missing, or given twice."""
    pairs = (("nccl_tests", "interconnect"), ("nccl_tests", "topology"), ("topology", "interconnect"))
    for one, other in pairs:
        if options[one] and options[other]:
            raise click.UsageError(f"--{one.replace('_', '-')} cannot be used with --{other}")
    if not options["nccl_tests"] and not options["topology"] and not (options["gpu"] and options["num_gpus"]):
        raise click.UsageError("give --gpu and --num-gpus, or --topology, or --nccl-tests")


def _measured(options: dict[str, Any]) -> "AllReduceCurve":
    """The user's own table, which must be of --num-gpus ranks where that is given."""
    from simulator.nccl_tests import parse_nccl_tests

    path = options["nccl_tests"]
    return parse_nccl_tests(read_text(path), path, expected_ranks=options["num_gpus"])


def _by_class(options: dict[str, Any], notes: list[str]) -> "AllReduceCurve":
    """The curve of a GPU and an interconnect class, named or read from the topology."""
    from hwmodel.collectives import allreduce_curve
    from hwmodel.gpus import load_gpu

    if options["topology"]:
        _read_topology(options, notes)
    if not 1 <= options["num_gpus"] <= MAX_GPUS:
        raise InputError(f"--num-gpus: got {options['num_gpus']}, allowed: 1 to {MAX_GPUS}, the GPUs of one box")
    gpu = load_gpu(options["gpu"])
    if not options["interconnect"]:
        options["interconnect"] = gpu.interconnect
        notes.append(f"--interconnect is not given; {gpu.interconnect} assumed, as {gpu.title} usually has")
    return allreduce_curve(gpu, options["num_gpus"], options["interconnect"], options["algorithm"])


def _read_topology(options: dict[str, Any], notes: list[str]) -> None:
    """Fills class, number of GPUs and GPU from the matrix, as far as they are not given; it does not name the GPU."""
    from simulator.topology import classify, parse_topology

    topology = parse_topology(read_text(options["topology"]))
    options["num_gpus"] = options["num_gpus"] or topology.num_gpus
    options["interconnect"], reason = classify(topology, options["num_gpus"])
    notes.append(f"interconnect {options['interconnect']}: {reason}")
    if not options["gpu"]:
        options["gpu"] = ASSUMED_GPUS[options["interconnect"] in NVLINK_CLASSES]
        notes.append(f"--gpu is not given, and the matrix does not name it; {options['gpu']} assumed")
