"""Where the ledger is: the file that is named, else the project's, else the user's own."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from hwmodel.errors import InputError
from simulator.deployment.keys import short

LEDGER_VARIABLE = "DRAFTCAST_LEDGER"
PROJECT_FOLDER = ".draftcast"
FILE_NAME = "ledger.sqlite"
_PATH_CHARS = 300


def ledger_path(named: str | None, environment: Mapping[str, str] | None = None) -> Path:
    """The ledger's file, absolute: `named`, else DRAFTCAST_LEDGER, else the project's, else the user's.

    A project's is in the nearest folder `.draftcast` of the working directory or above it; the user's is
    `$XDG_DATA_HOME/draftcast/ledger.sqlite`, by default in `~/.local/share`. Nothing is created here.
    """
    environment = os.environ if environment is None else environment
    stated = named if named is not None else environment.get(LEDGER_VARIABLE) or None
    if stated is not None:
        return _checked(stated)
    return _of_project() or _of_user(environment)


def _checked(text: str) -> Path:
    """An absolute path of what the user wrote."""
    if not text.strip() or "\0" in text:
        raise InputError("ledger: got an empty or impossible path; allowed: a new file, or an earlier ledger")
    try:
        return Path(text).expanduser().absolute()
    except (OSError, RuntimeError) as error:
        raise InputError(f"ledger: cannot resolve {short(text, _PATH_CHARS)}: {error}; allowed: a path") from error


def _of_project() -> Path | None:
    """The file in the nearest project folder; None where there is none.

    A folder of another user is passed over: in a shared folder such as /tmp anybody could make one.
    """
    try:
        here = Path.cwd()
    except OSError:  # the working directory has been removed
        return None
    for folder in (here, *here.parents):
        if _is_own_folder(folder / PROJECT_FOLDER):
            return folder / PROJECT_FOLDER / FILE_NAME
    return None


def _is_own_folder(path: Path) -> bool:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "getuid") or found.st_uid == os.getuid())


def _of_user(environment: Mapping[str, str]) -> Path:
    stated = environment.get("XDG_DATA_HOME", "")
    if os.path.isabs(stated):  # the XDG specification: a relative one is ignored
        return Path(stated) / "draftcast" / FILE_NAME
    try:
        return Path.home() / ".local" / "share" / "draftcast" / FILE_NAME
    except RuntimeError as error:
        raise InputError("ledger: no home folder is known; allowed: --ledger FILE, or XDG_DATA_HOME") from error
