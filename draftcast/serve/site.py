"""What every path of the page is answered, and who may ask: this machine's own names, never another site's script."""

import ipaddress
import logging
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from urllib.parse import urlsplit

from draftcast.output import to_json
from draftcast.serve.answer import Answers, Gone
from draftcast.serve.command_line import commands
from draftcast.serve.drawings import heat_rules
from draftcast.serve.page import Shown, change, own_values, page
from draftcast.serve.state import State, parse
from draftcast.text import one_line
from hwmodel.errors import DraftcastError
from simulator.deployment.write import file_text
from validate.web.server import PLAIN, Address, Handler, Listener, Reply

_OPTIONS = ("--host", "--port")
_MAX_CLIENTS = 32  # browsers open several connections ahead of need, and hold them; answers are computed one by one
_HTML, _JSON, _TOML = "text/html; charset=utf-8", "application/json", "application/toml; charset=utf-8"
_REFUSED, _NO_ANSWER, _MISDIRECTED = 400, 422, 421
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="6" y="1" fill="#0072b2"/>'
    '<rect width="11" height="6" y="9" fill="#d55e00"/></svg>'
)
_LOGGER = logging.getLogger(__name__)


class Site:
    """The answers to all paths; `hosts` are the names by which it may be asked, beside addresses as such."""

    def __init__(self, answers: Answers, method: str | None, hosts: frozenset[str], subject: str) -> None:
        """Computes the answer without settings at once: what is wrong with the deployment is said before a page is."""
        self._answers, self._method, self._hosts, self._subject = answers, method, hosts, subject
        base = answers.answer(State({}))
        self._own_values = own_values(base)
        self._own = base.deployment.to_dict()
        self._still = {
            "/page.css": Reply(200, "text/css; charset=utf-8", _style()),
            "/page.js": Reply(200, "text/javascript; charset=utf-8", _resource("draftcast.serve", "page.js")),
            "/icon.svg": Reply(200, "image/svg+xml", _ICON),
        }
        self._paths: dict[str, Callable[[str, Callable[[], bool]], Reply]] = {
            "/": self._page,
            "/change": lambda query, gone: self._change(query, gone, preview=False),
            "/preview": lambda query, gone: self._change(query, gone, preview=True),
            "/answer.json": self._json,
            "/deployment.toml": self._file,
        }

    def reply(self, target: str, headers: Mapping[str, str], is_gone: Callable[[], bool]) -> Reply:
        """The answer to a GET of `target`; the names of `headers` are in lower case."""
        refusal = self._refusal(headers)
        if refusal is not None:
            return refusal
        path, _, query = target.partition("?")
        if path in self._still:
            return self._still[path]
        if path not in self._paths:
            return Reply(404, PLAIN, f"allowed: {', '.join((*self._paths, *self._still))}\n")
        try:
            return self._paths[path](query, is_gone)
        except Gone:
            return Reply(503, PLAIN, "nobody waits for this answer\n")
        except Exception:
            _LOGGER.exception("draftcast serve: an error of its own, at %s", one_line(path))
            return Reply(500, PLAIN, "an error of draftcast's own; the terminal that serves the page shows it\n")

    def _refusal(self, headers: Mapping[str, str]) -> Reply | None:
        """For a name that an attacker may have pointed here (DNS rebinding), and for other sites' scripts."""
        if not self._is_own(headers.get("host", "")):
            return Reply(_MISDIRECTED, PLAIN, "allowed: the address that draftcast serve printed, or localhost\n")
        fetched, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
        if fetched not in ("none", "same-origin") and mode != "navigate":
            return Reply(403, PLAIN, "allowed: from this page itself\n")
        return None

    def _is_own(self, host: str) -> bool:
        """Whether a Host header names this machine: any port, since it may be forwarded; an address cannot be faked."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return name in self._hosts
        return True

    def _page(self, query: str, is_gone: Callable[[], bool]) -> Reply:
        shown, status = self._shown(query, is_gone, preview=False)
        if shown.error is None and query != shown.state.query:
            return Reply(303, PLAIN, "", (("Location", f"./?{shown.state.query}" if shown.state.query else "./"),))
        return Reply(status, _HTML, page(shown, self._own_values, self._subject))

    def _change(self, query: str, is_gone: Callable[[], bool], *, preview: bool) -> Reply:
        return Reply(200, _JSON, change(self._shown(query, is_gone, preview=preview)[0]))

    def _shown(self, query: str, is_gone: Callable[[], bool], *, preview: bool) -> tuple[Shown, int]:
        state = State({})
        try:
            state = parse(query, self._own)
            answer = self._answers.answer(state, preview=preview, is_gone=is_gone)
        except DraftcastError as error:
            return Shown(state, None, one_line(str(error)), None), _NO_ANSWER if state.query else _REFUSED
        return Shown(state, answer, None, commands(self._answers.source.request, self._method, state)), 200

    def _json(self, query: str, is_gone: Callable[[], bool]) -> Reply:
        shown, status = self._shown(query, is_gone, preview=False)
        if shown.answer is None:
            return Reply(status, _JSON, to_json({"error": shown.error}))
        told = {"choose": shown.answer.choice, "predict": shown.answer.prediction, "commands": shown.commands}
        return Reply(200, _JSON, to_json(told))

    def _file(self, query: str, is_gone: Callable[[], bool]) -> Reply:
        shown, status = self._shown(query, is_gone, preview=False)
        if shown.answer is None or shown.commands is None:
            return Reply(status, PLAIN, f"{shown.error}\n")
        comments = ["Written by draftcast serve; the same answer as that of:", *shown.commands]
        profile = self._answers.source.request.profile
        comments += [] if profile is None else ["It needs the same --profile."]
        try:
            text = file_text(shown.answer.deployment, comments)
        except DraftcastError as error:
            return Reply(_NO_ANSWER, PLAIN, f"{one_line(str(error))}\n")
        return Reply(200, _TOML, text, (("Content-Disposition", 'attachment; filename="deployment.toml"'),))


def _resource(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    """The report page's style sheet, this page's own, and the colours of the heat map."""
    return _resource("validate.report", "page.css") + _resource("draftcast.serve", "page.css") + heat_rules()


def listen(site: Site, address: Address) -> Listener:
    """The site, served until the listener is closed."""

    class Pages(Handler):
        max_clients = _MAX_CLIENTS
        allowed = "GET /"
        headers_of_all = (
            ("Content-Security-Policy", _POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        )

        def reply(self) -> Reply:
            """What the site says."""
            return site.reply(self.path, _single(self.headers.items()), lambda: _has_hung_up(self.connection))

    return Listener(address, Pages, _OPTIONS)


def _single(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by their names in lower case; what is said twice is said by nobody."""
    found: dict[str, list[str]] = {}
    for name, value in items:
        found.setdefault(name.lower(), []).append(value)
    return {name: values[0] if len(values) == 1 else "" for name, values in found.items()}


def _has_hung_up(connection: socket.socket) -> bool:
    """Whether the other side has closed: a request has no body, so what can be read is the end."""
    try:
        ready, _, _ = select.select([connection], [], [], 0)
        return bool(ready) and connection.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True


def own_names(host: str) -> frozenset[str]:
    """The names by which a page that listens on `host` may be asked for."""
    local = {"localhost", host.lower()}
    return frozenset(local if _is_loopback(host) else {*local, socket.gethostname().lower(), socket.getfqdn().lower()})


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_reachable_from_elsewhere(host: str) -> bool:
    """Whether other machines can ask a page that listens on `host`."""
    return not _is_loopback(host)


def wait() -> None:
    """Until Ctrl-C."""
    threading.Event().wait()
