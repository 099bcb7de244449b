"""The deployment that the page is about: read once, then asked about with other keys laid over it."""

from collections.abc import Sequence
from threading import Lock

from draftcast.expand import Expanded, expand, stated
from draftcast.options import Request
from hwmodel.errors import InputError
from simulator.deployment import Deployment, read_tables
from simulator.deployment.load import with_profile
from simulator.profile import read_profile

_VERSION, _METHOD = "engine.version", "speculation.method"
_MAX_VERSIONS = 16  # a launch is read anew for an engine version that it was not read for


class Source:
    """What `draftcast choose` reads anew each time, kept; the same overrides give the same deployment as there."""

    def __init__(self, request: Request, method: str | None) -> None:
        """Reads it all; `InputError` as the commands have it."""
        self.request = request
        expanded, self.overrides = request.expanded(method, needs_method=True)
        own_method = stated(request.overrides, _METHOD)
        self.method = method or (None if own_method else stated(self.overrides, _METHOD))
        version = stated(self.overrides, _VERSION)
        self._profile = None if request.profile is None else read_profile(request.profile)
        self.base = self._with_profile(request.checked(expanded, self.overrides))
        self._is_fixed = expanded.tables is None or expanded.kind == "names"  # no launch to read for another version
        self._expanded = {version: self._kept(expanded)}
        self._lock = Lock()

    def deployment(self, more: Sequence[str]) -> Deployment:
        """The deployment with `more` overrides behind those of the command line."""
        overrides = (*self.overrides, *more)
        expanded = self._for_version(stated(overrides, _VERSION))
        return self._with_profile(self.request.checked(expanded, overrides))

    def _kept(self, expanded: Expanded) -> Expanded:
        """With the tables of a plain file in it, so that no request reads the file."""
        if expanded.tables is not None:
            return expanded
        return Expanded(expanded.path, read_tables(expanded.path), expanded.notes, expanded.kind)

    def _for_version(self, version: str | None) -> Expanded:
        """The tables; a launch may say something else to another version of its engine."""
        with self._lock:
            if self._is_fixed:
                return next(iter(self._expanded.values()))
            if version not in self._expanded:
                first = next(iter(self._expanded.values()))
                if first.kind == "server":
                    raise InputError(f"{_VERSION}: the server was asked as it runs; allowed: a deployment file")
                if len(self._expanded) >= _MAX_VERSIONS:
                    self._expanded.pop(list(self._expanded)[1])
                self._expanded[version] = expand(self.request.source, self.request.launch, version)
            return self._expanded[version]

    def _with_profile(self, deployment: Deployment) -> Deployment:
        return deployment if self._profile is None else with_profile(deployment, self._profile)
