"""The rows of the table about several clients, `--keep` and the commands."""

from __future__ import annotations

from tests.benchmarks.figures import Figures, TableRow, row

_ANY = float("inf")


def client_rows(f: Figures) -> list[TableRow]:
    """The rows of those groups whose figures there are."""
    return [
        *(_second(f) if "second_client_delay_added_ms" in f else []),
        *(_keep(f) if "keep_start_added_ms" in f else []),
        *(_attach(f) if "attach_10000_ms" in f else []),
        *(_remote(f) if "remote_cpu_unix_added_us" in f else []),
        *(_commands(f) if "ps_ten_bridges_ms" in f else []),
        *(_looking_back(f) if "search_few_ms" in f else []),
    ]


def _second(f: Figures) -> list[TableRow]:
    one, two = f["second_client_lag_one_median_ms"], f["second_client_lag_two_median_ms"]
    used, more = f["second_client_cpu_one_us"], f["second_client_cpu_two_us"]
    return [
        row(f"a second client's addition to an update's delay, median ({one:g} to {two:g} ms)",
            "0.1 ms", (f["second_client_delay_added_ms"], 0.1, "ms")),
        row(f"... to the front's CPU for an update ({used:g} to {more:g} us)",
            "3 us", (f["second_client_cpu_added_us"], 3, "us")),
    ]  # fmt: skip


def _keep(f: Figures) -> list[TableRow]:
    start, with_ = f["keep_start_without_ms"], f["keep_start_with_ms"]
    lag, rate = f["keep_lag_without_median_ms"], f["keep_updates_per_s_without"]
    kept_rate = f["keep_updates_per_s_with"]
    return [
        row(f"`--keep`: its addition to spawn to `initialize` ({start:g} to {with_:g} ms)",
            "20 ms", (f["keep_start_added_ms"], 20, "ms")),
        row("... after that, an update's delay: without it, with it, medians",
            f"the same ({lag + 0.1:g} ms)", (lag, _ANY, "ms"),
            (f["keep_lag_with_median_ms"], lag + 0.1, "ms")),
        ("... and updates a second: without it, with it", f"the same ({0.9 * rate:,.0f})",
         f"{rate:,.0f}, {kept_rate:,.0f}", kept_rate >= 0.9 * rate, ""),
    ]  # fmt: skip


def _attach(f: Figures) -> list[TableRow]:
    more = round(f["attach_10000_peak_mb"] - f["attach_100_peak_mb"], 1)
    return [
        row("a second client attaches to 10,000 messages", "1000 ms",
            (f["attach_10000_ms"], 1000, "ms")),
        row("... more memory of the front than for 100", "flat (3 MB)", (more, 3, "MB")),
    ]  # fmt: skip


def _remote(f: Figures) -> list[TableRow]:
    return [
        row("a client on the unix socket of a server, one over WebSocket: CPU added for an update",
            "as it is", (f["remote_cpu_unix_added_us"], _ANY, "us"),
            (f["remote_cpu_websocket_added_us"], _ANY, "us")),
        row("... an update's delay, medians", "as it is",
            (f["remote_lag_unix_median_ms"], _ANY, "ms"),
            (f["remote_lag_websocket_median_ms"], _ANY, "ms")),
    ]  # fmt: skip


def _commands(f: Figures) -> list[TableRow]:
    return [
        row("`acp-bridge ps` with ten live bridges, the whole process", "500 ms",
            (f["ps_ten_bridges_ms"], 500, "ms")),
        row("`acp-bridge send` to a live session, the whole process: one bridge, ten", "300 ms",
            (f["send_ms"], 300, "ms"), (f["send_among_ten_bridges_ms"], 300, "ms")),
        row("`acp-bridge chat`: until what is typed is shown; until a first prompt is answered",
            "700 ms", (f["chat_ready_ms"], 700, "ms"), (f["chat_answered_ms"], _ANY, "ms")),
    ]  # fmt: skip


def _looking_back(f: Figures) -> list[TableRow]:
    return [
        row("`acp-bridge sessions --search` over 1,000 sessions of 40 messages, the whole process:"
            f" found in 10, in all (CPU: {f['search_all_cpu_ms']:.0f} ms)", "300 ms",
            (f["search_few_ms"], 300, "ms"), (f["search_all_ms"], 300, "ms")),
        row("... the first time, which makes the index; with one session more than before",
            "as it is", (f["search_first_ms"], _ANY, "ms"), (f["search_one_more_ms"], _ANY, "ms")),
        row("`acp-bridge show --diff` of 10,000 messages, 5,000 of them edits, the whole process"
            f" (CPU: {f['show_diff_10000_cpu_ms']:.0f} ms)", "1000 ms",
            (f["show_diff_10000_ms"], 1000, "ms")),
    ]  # fmt: skip
