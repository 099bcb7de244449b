"""A small deployment with everything that can be drawn, and how each command is asked about it."""

import csv
from pathlib import Path

from outcome_runs import cell, write_run
from published_rows import records, sweep

DEPLOYMENT = """
[model]
config = "qwen3-30b-a3b-bf16"
[hardware]
gpu = "rtx-pro-6000-blackwell-server"
num_gpus = 2
interconnect = "pcie-switch"
[engine]
version = "0.16.0"
tensor_parallel_size = 2
[speculation]
method = "eagle3"
num_speculative_tokens = 3
acceptance = { conditional = [0.6] }
[workload]
concurrency = [1, 4, 8]
input_tokens = 100
output_tokens = 50
[[measured]]
concurrency = 1
tpot_ms = 4.5
[[measured]]
concurrency = 8
tpot_ms = 7.5
"""
VIEWS = ("choose", "whatif", "simulate", "calibrate", "validate", "options", "backtest", "report")


def arguments(view: str, folder: Path) -> list[str]:
    """What is typed after `draftcast` for each page, without --report; its input files are written into `folder`."""
    deployment, table = folder / "box.toml", folder / "published.csv"
    deployment.write_text(DEPLOYMENT, encoding="utf-8")
    found = records(*sweep(set_id="A"), *sweep(set_id="B"))
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for each in found for name in each)), restval="")
        writer.writeheader()
        writer.writerows(found)
    run = write_run(
        folder / "run.json",
        *(cell(c, 3, tpot_s=t, tokens_per_step=1.8, method="eagle3") for c, t in ((1, 0.003), (8, 0.02))),
    )
    few = ["--draws", "200"]
    asked = {
        "choose": [str(deployment), "-k", "0-3", *few],
        "whatif": [str(deployment), "--vary", "workload.kind=chat,code", "--vary", "workload.concurrency=1,8", *few],
        "simulate": [str(deployment), "--arrivals", "closed:4", "--requests", "40"],
        "calibrate": [str(deployment), *few],
        "validate": [str(deployment), "--run", str(run), *few],
        "backtest": [str(table)],
        "report": [str(deployment), "-k", "0-3", *few],
        "options": [str(deployment), "-c", "1,8", "--set", "restart.outage_min=10", *few],
    }
    return [view, *asked[view]]


def page_option(view: str) -> str:
    """The option that names the page."""
    return "-o" if view == "report" else "--report"
