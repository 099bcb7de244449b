"""A whole calibration as the front door sees it: fitted, judged, written, and shown."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibration.calibrate import Calibration
from calibration.calibrate import calibrate as fitted
from calibration.identify import Identified, identify
from calibration.readers.read import read_evidence
from calibration.records import Evidence
from calibration.report import report_of
from simulator.deployment import Deployment
from simulator.files import WholeFile

JsonObject = dict[str, Any]

_IN_PROFILE = ("parameters", "residuals", "warnings")  # of the report; for people, not read by draftcast


@dataclass(frozen=True)
class CalibrationAnswer:
    """A calibration with everything that its report says."""

    calibration: Calibration
    identified: Identified
    inputs: JsonObject
    report: JsonObject

    def to_dict(self, written_to: str | None = None) -> JsonObject:
        """The JSON object of `draftcast calibrate --json`."""
        return {"inputs": self.inputs, "profile": written_to, **self.report}

    def write(self, path: str) -> None:
        """The profile as a file, which appears when it is complete or not at all."""
        document = self.calibration.profile.to_document()
        document["report"] = {name: self.report[name] for name in _IN_PROFILE}
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items()
        )
        whole = WholeFile(path)
        try:
            whole.file.write(f"{{\n{lines}\n}}\n")
            whole.complete()
        except BaseException:
            whole.discard()
            raise


def calibrate(
    deployment: Deployment,
    data: Sequence[str | os.PathLike[str]] = (),
    *,
    skip_bad: bool = False,
    num_draws: int = 2000,
    seed: int = 0,
) -> CalibrationAnswer:
    """The parameters of a deployment fitted to files and folders of measurements and to its own `[[measured]]` facts.

    A profile that the deployment was loaded with is continued. Raises `InputError` where a file cannot be used (with
    `skip_bad` it is left out and named in the report), or where nothing is left to go by.
    """
    evidence = read_evidence(data, skip_bad=skip_bad)
    return calibrated(deployment, evidence, num_draws=num_draws, seed=seed)


def calibrated(
    deployment: Deployment, evidence: Evidence, *, num_draws: int = 2000, seed: int = 0
) -> CalibrationAnswer:
    """The same, from evidence that was read already."""
    found = fitted(deployment, evidence, num_draws=num_draws, seed=seed)
    identified = identify(found.plan, found.fitted, deployment, found.profile, seed)
    if found.profile.misfit is not None:
        misfit = replace(found.profile.misfit, widening=identified.widening)
        found = replace(found, profile=replace(found.profile, misfit=misfit))
    old = deployment.profile
    inputs = {
        "deployment": deployment.to_dict(),
        "data": [{"path": f.path, "format": f.format, "sha256": f.sha256} for f in evidence.files],
        "profile": None if old is None else {"created": old.created, "sha256": old.sha256},
        "seed": seed,
    }
    report = report_of(found, identified)
    report["notes"] = list(dict.fromkeys([*deployment.notes, *report["notes"]]))
    return CalibrationAnswer(found, identified, inputs, report)
