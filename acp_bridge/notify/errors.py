"""The one error of the ways in which a user is told."""


class NotTold(Exception):
    """The user was not told in this way; the text says why, and names no part of an address."""
