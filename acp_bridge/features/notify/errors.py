"""The error that every way to notify the user raises."""


class NotTold(Exception):
    """The user was not told in this way; the text says why, and names no part of an address."""
