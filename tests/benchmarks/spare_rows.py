"""How long a further session takes to open: alone, behind the bridge, shared, with `--spare`."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from tests.benchmarks.client import Client, bridge, now
from tests.benchmarks.figures import Figures, ms

FLOOR = (sys.executable, str(Path(__file__).with_name("floor.py")))
_SESSIONS = 10


def spare(home: Path) -> Figures:
    """The median of the second and later `session/new`, in milliseconds."""
    log = home / "log"
    words = [*bridge(home), "--spare", "--log-file", str(log), "--", *FLOOR]
    shared = [*bridge(home), "--process-per-session", "off", "--", *FLOOR]
    return {
        "new_alone_median_ms": _opened(FLOOR),
        "new_behind_median_ms": _opened(bridge(home, *FLOOR)),
        "new_shared_median_ms": _opened(shared),
        "new_spare_median_ms": _opened(words, log),
    }


def _opened(command: list[str] | tuple[str, ...], log: Path | None = None) -> float:
    """`log`: where the bridge says that a process is ready, which is waited for."""
    times = []
    with Client(command) as client:
        client.initialize()
        client.new_session()
        for number in range(1, _SESSIONS + 1):
            if log:
                while log.read_text().count("spare.ready") < number:
                    client.read(0.01)
            began = now()
            client.new_session()
            times.append(now() - began)
    return ms(statistics.median(times))
