"""A what-if page on a free port of loopback, as `draftcast serve` starts it, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from draftcast.options import Request
from draftcast.serve.answer import Answers
from draftcast.serve.site import Site, listen, own_names
from draftcast.serve.source import Source
from validate.web.server import Address

LOOPBACK = "127.0.0.1"


def written(folder: Path, deployment: str) -> Path:
    """A deployment file of this text in the folder."""
    path = folder / "box.toml"
    path.write_text(deployment, encoding="utf-8")
    return path


def asked(source: str | Path, **options: Any) -> Request:
    """What a command is given about this source; 200 draws."""
    usual: dict[str, Any] = {"overrides": (), "num_draws": 200, "seed": 0, "as_json": False}
    unstated = dict.fromkeys(("gpu", "model", "num_gpus", "launch", "profile"))
    return Request(source=str(source), **{**unstated, **usual, **options})


def site_of(source: str | Path, method: str | None = None, subject: str = "box", **options: Any) -> Site:
    """The site about this source."""
    return Site(Answers(Source(asked(source, **options), method)), method, own_names(LOOPBACK), subject)


@contextmanager
def serving_page(site: Site) -> Iterator[str]:
    """The URL of the page, with its slash."""
    listener = listen(site, Address(LOOPBACK, 0))
    try:
        yield f"{listener.url}/"
    finally:
        listener.close()
