"""A disk whose fsync takes until a test lets it end."""

import threading


class SlowDisk:
    """Put its `sync` in the place of `acp_bridge.journal.file.sync_file`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.goes_on = threading.Event()

    def sync(self, _descriptor: int) -> None:
        """Wait in the journal's thread until the disk goes on; 10 seconds at most."""
        self.reached.set()
        assert self.goes_on.wait(timeout=10)
