"""Server-sent events out of bytes, however the network cut them.

Source: WHATWG HTML, server-sent events: lines end with LF, CR or CRLF; `data` lines of one event are joined; a line
that starts with a colon is a comment; an empty line ends the event.
"""

from hwmodel.units import MB

MAX_LINE_BYTES = int(8 * MB)  # a chunk with the logprobs of a whole vocabulary has a few
_FIELD = b"data:"


class SseDecoder:
    """Turns pieces of a stream into the `data` of its events; a line is decoded only when it is whole, so characters
    that the network cut stay in one piece."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        """Nothing has been received; a longer line than `max_line_bytes` is dropped and counted."""
        self.num_oversized = 0
        self._max_line_bytes = max_line_bytes
        self._pieces: list[bytes] = []  # of the line that has not ended
        self._num_bytes = 0
        self._data: list[bytes] = []  # of the event that has not ended
        self._after_cr = False
        self._dropping = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that ends in `piece`, in order.

        >>> decoder = SseDecoder()
        >>> decoder.feed(b": hello\\r\\ndata: a"), decoder.feed(b"b\\r\\n\\r\\nda"), decoder.feed(b"ta:c\\n\\n")
        ([], [b'ab'], [b'c'])
        """
        piece = self._with_plain_ends(piece)
        first, *rest = piece.split(b"\n")
        self._keep(first)
        if not rest:
            return []
        events: list[bytes] = []
        self._line(self._taken(), events)
        for line in rest[:-1]:
            self._line(line, events)
        self._keep(rest[-1])
        return events

    @property
    def is_inside(self) -> bool:
        """Whether the stream has stopped inside a line or an event."""
        return bool(self._pieces or self._data)

    def _with_plain_ends(self, piece: bytes) -> bytes:
        """`piece` with LF as the only end of a line."""
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_cr = False
        if piece:
            self._after_cr = piece.endswith(b"\r")
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in piece else piece

    def _keep(self, part: bytes) -> None:
        """Adds `part` to the line that has not ended, or begins to drop that line."""
        if self._dropping or not part:
            return
        self._pieces.append(part)
        self._num_bytes += len(part)
        if self._num_bytes > self._max_line_bytes:
            self.num_oversized += 1
            self._pieces, self._num_bytes, self._dropping = [], 0, True

    def _taken(self) -> bytes:
        """The line that ends now; empty data for one that was dropped, which no event holds."""
        line = b":" if self._dropping else b"".join(self._pieces)
        self._pieces, self._num_bytes, self._dropping = [], 0, False
        return line

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(_FIELD):
            value = line[len(_FIELD) :]
            self._data.append(value[1:] if value.startswith(b" ") else value)
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data = []
