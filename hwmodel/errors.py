"""The errors that every room may raise: one line that says what, what was given, and what is allowed."""


class DraftcastError(Exception):
    """A stated error: its message is one line for the user; the command ends with exit code 1."""


class InputError(DraftcastError, ValueError):
    """Something that the user wrote or pointed at cannot be used."""


class UnknownNameError(InputError):
    """A name that is in no vocabulary; the message lists the known ones."""
