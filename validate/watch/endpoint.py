"""The page for Prometheus: GET /metrics and GET /healthz, nothing else."""

from collections.abc import Callable

from validate.watch.exposition import CONTENT_TYPE
from validate.web.server import PLAIN, Address, Handler, Listener, Reply


class Endpoint(Listener):
    """Serves what two functions return, in threads of its own, until it is closed."""

    def __init__(self, address: Address, metrics: Callable[[], str], health: Callable[[], str | None]) -> None:
        """Listens from now on; `health` says what is wrong, None if nothing. `InputError` where it cannot listen."""

        class Pages(_Pages):
            pages = {  # noqa: RUF012 - of this class alone
                "/metrics": lambda: Reply(200, CONTENT_TYPE, metrics()),
                "/healthz": lambda: _health(health()),
            }

        super().__init__(address, Pages, ("--listen", "--listen"))


def _health(wrong: str | None) -> Reply:
    return Reply(200, PLAIN, "ok\n") if wrong is None else Reply(503, PLAIN, f"{wrong}\n")


class _Pages(Handler):
    """Two pages; any other path is not there."""

    allowed = "GET /metrics, GET /healthz"
    pages: dict[str, Callable[[], Reply]]

    def reply(self) -> Reply:
        """One of the pages."""
        page = self.pages.get(self.path.partition("?")[0])
        return page() if page else Reply(404, PLAIN, f"allowed: {self.allowed}\n")
