"""The table of figures in docs/benchmarks.md, from the kept results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.benchmarks.client_table import client_rows
from tests.benchmarks.figures import Figures, TableRow, markdown, with_ratios
from tests.benchmarks.figures import row as _row
from tests.benchmarks.floors import ratio

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"


def rows(figures: dict[str, float]) -> list[TableRow]:
    """What, what was to be reached, what was, whether it is."""
    f = figures
    wanted_rate = min(60_000, 0.95 * f["updates_per_s_alone"])
    third = f["import_acp_ms"] / 3
    return [
        _row("prompt accepted (fsync) while a turn streams: median, p99", "2 ms, 10 ms",
             (f["accept_median_ms"], 2, "ms"), (f["accept_p99_ms"], 10, "ms")),
        _row("the same beside a second bridge that streams", "2 ms, 10 ms",
             (f["accept_beside_another_median_ms"], 2, "ms"),
             (f["accept_beside_another_p99_ms"], 10, "ms")),
        _row("cancel to `cancelled`, the bridge's own share, median", "3 ms",
             (f["cancel_share_median_ms"], 3, "ms")),
        _row("cancel to the first update of the next queued prompt, median", "20 ms",
             (f["cancel_to_next_update_median_ms"], 20, "ms")),
        _row("agent ignores cancel: to `cancelled` (drain_timeout 2 s)", "2300 ms",
             (f["stubborn_cancelled_median_ms"], 2300, "ms")),
        _row("... and from there to the next prompt's first update", "1200 ms",
             (f["stubborn_next_update_median_ms"], 1200, "ms")),
        _row("`kill -9` of the agent in a turn, to the error answer, median", "200 ms",
             (f["agent_killed_median_ms"], 200, "ms")),
        _row("front's CPU for an update", "15 us", (f["front_cpu_us_per_update"], 15, "us")),
        (
            f"updates a second (the agent alone: {f['updates_per_s_alone']:,.0f})",
            f"{wanted_rate:,.0f}",
            f"{f['updates_per_s_behind']:,.0f}",
            f["updates_per_s_behind"] >= wanted_rate,
            "",
        ),
        _row("delay added to an update, 50 ms apart: median, p99", "0.5 ms, 3 ms",
             (f["delay_added_median_ms"], 0.5, "ms"), (f["delay_added_p99_ms"], 3, "ms")),
        _row(f"spawn to `initialize`, built-in (`import acp`: {f['import_acp_ms']:.0f} ms)",
             f"{third:.0f} ms", (f["spawn_to_initialize_ms"], third, "ms")),
        _row("memory of the front, of the guard (peak)", "35 MB, 10 MB",
             (f["front_peak_mb"], 35, "MB"), (f["guard_peak_mb"], 10, "MB")),
        _row("load of 10,000 messages", "1000 ms", (f["load_10000_ms"], 1000, "ms")),
        _row("... more memory than a load of 100", "flat (3 MB)",
             (round(f["load_10000_peak_mb"] - f["load_100_peak_mb"], 1), 3, "MB")),
        *_agent_rows(f),
        *_session_rows(f),
    ]  # fmt: skip


def _large_rows(f: dict[str, float]) -> list[TableRow]:
    return [
        _row("memory of the front (PSS) behind a prompt of 64 MB", "as before, and 10 MB",
             (f["front_after_64_mb_mb"], f["front_peak_mb"] + 10, "MB")),
        _row("CPU of the start, the whole tree", "as it is",
             (f["cpu_of_start_ms"], float("inf"), "ms")),
        _row("memory of the front (peak) when it has answered `initialize`", "33 MB",
             (f["front_idle_mb"], 33, "MB")),
    ]  # fmt: skip


def _session_rows(f: dict[str, float]) -> list[TableRow]:
    """Rows of the groups that were measured; results of an earlier day may lack some."""
    groups = (
        ("front_after_64_mb_mb", _large_rows),
        ("early_slow_added_ms", _early_rows),
        ("new_spare_median_ms", _spare_rows),
        ("new_shared_median_ms", _shared_rows),
        ("forks_second_new_ms", _fork_rows),
        ("plain_first_prompt_ms", _plain_rows),
        ("asleep_built_in_median_ms", _asleep_rows),
        ("hundred_accept_median_ms", _hundred_rows),
    )
    return [row for figure, rows in groups if figure in f for row in rows(f)]


def _early_rows(f: dict[str, float]) -> list[TableRow]:
    return [
        _row(f"`initialize` of an agent that takes {f['early_slow_alone_ms']:.0f} ms alone: added",
             "45 ms", (f["early_slow_added_ms"], 45, "ms")),
        _row(f"... of one that takes {f['early_quick_alone_ms']:.0f} ms alone: added", "100 ms",
             (f["early_quick_added_ms"], 100, "ms")),
    ]  # fmt: skip


def _spare_rows(f: dict[str, float]) -> list[TableRow]:
    reach = f["new_alone_median_ms"] + 10
    return [
        _row("a further `session/new`: the agent alone, behind the bridge", "as it is",
             (f["new_alone_median_ms"], float("inf"), "ms"),
             (f["new_behind_median_ms"], float("inf"), "ms")),
        _row("... with `--spare`: the agent's own answer and 10 ms", f"{reach:.1f} ms",
             (f["new_spare_median_ms"], reach, "ms")),
    ]  # fmt: skip


def _shared_rows(f: dict[str, float]) -> list[TableRow]:
    reach = f["new_alone_median_ms"] * 1.3 + 20
    return [
        _row("... in a process that sessions share: 1.3 times alone and 20 ms", f"{reach:.1f} ms",
             (f["new_shared_median_ms"], reach, "ms")),
    ]  # fmt: skip


def _agent_rows(f: dict[str, float]) -> list[TableRow]:
    return [
        _row("built-in agent, a model that answers at once: prompt to first update, alone", "5 ms",
             (f["first_update_agent_alone_median_ms"], 5, "ms")),
        _row("... behind the bridge, which first has the prompt on disk", "as it is",
             (f["first_update_behind_median_ms"], float("inf"), "ms")),
        (
            "words a second, an update each (LiteLLM's own stream alone:"
            f" {f['words_per_s_litellm_alone']:,.0f})",
            "2,900",
            f"{f['words_per_s']:,.0f}",
            f["words_per_s"] >= 2900,
            "",
        ),
        _row("cancel while the model streams, median, max", "20 ms",
             (f["cancel_streaming_median_ms"], 20, "ms"),
             (f["cancel_streaming_max_ms"], 20, "ms")),
        _row("cancel while a command runs, its children dead: median, max", "100 ms",
             (f["cancel_shell_median_ms"], 100, "ms"), (f["cancel_shell_max_ms"], 100, "ms")),
        _row("memory of the built-in agent with LiteLLM loaded (peak)", "as it is",
             (f["agent_peak_mb"], float("inf"), "MB")),
    ]  # fmt: skip


def _plain_rows(f: dict[str, float]) -> list[TableRow]:
    return [
        _row("first prompt to the first update, of a model that is asked without LiteLLM", "150 ms",
             (f["plain_first_prompt_ms"], 150, "ms")),
    ]  # fmt: skip


def _fork_rows(f: dict[str, float]) -> list[TableRow]:
    def row(what: str, reach: str, name: str, limit: float, unit: str = "ms") -> TableRow:
        without = f"{f[f'without_forks_{name}']:g} {unit}"
        return _row(f"{what} (without forks: {without})", reach, (f[f"forks_{name}"], limit, unit))

    any_ = float("inf")
    warm, one = f["forks_warm_prompt_ms"] + 10, f["without_forks_one_session_mb"] + 15
    slowest = 2 * f["forks_streaming_one_median_ms"]
    return [
        row("built-in: first `session/new`", "as it is", "first_new_ms", any_),
        row("... its first prompt to the first update, while LiteLLM loads", "as it is",
            "first_prompt_ms", any_),
        row("second `session/new`", "25 ms", "second_new_ms", 25),
        row("... its first prompt to the first update", f"a warm one's and 10: {warm:g} ms",
            "second_prompt_ms", warm),
        row("memory (PSS) of one session: parent, guard, agent", f"{one:g} MB",
            "one_session_mb", one, "MB"),
        row("private memory of each further session, after a prompt", "15 MB",
            "further_private_mb", 15, "MB"),
        row("20 sessions stream: worst median delay of one", f"twice one alone: {slowest:g} ms",
            "streaming_worst_median_ms", slowest),
        row("... memory of all (PSS)", "700 MB", "streaming_all_mb", 700, "MB"),
        row("deaf agent, end of the drain to the next prompt's first update", "50 ms",
            "deaf_next_update_ms", 50),
        row("killed agent, its error answer to the next prompt's first update", "50 ms",
            "killed_next_update_ms", 50),
    ]  # fmt: skip


def _asleep_rows(f: dict[str, float]) -> list[TableRow]:
    reach = round(f["asleep_foreign_alone_median_ms"] + 20, 2)
    return [
        _row("a sleeping session of 1,000 messages, prompt to first update: built-in", "100 ms",
             (f["asleep_built_in_median_ms"], 100, "ms")),
        _row("... another agent: its own start and load and 20 ms", f"{reach:g} ms",
             (f["asleep_foreign_median_ms"], reach, "ms")),
    ]  # fmt: skip


def _hundred_rows(f: dict[str, float]) -> list[TableRow]:
    any_, rows = float("inf"), []
    for name, what in (
        ("awake", "100 sessions in one bridge, 5 prompts each"),
        ("asleep", "... when all sleep"),
    ):
        taken = f"hundred_{name}"
        rows.append(
            _row(
                f"{what}: descriptors of the front, processes, memory of the front, of all (PSS)",
                "as it is",
                (f[f"{taken}_descriptors"], any_, ""),
                (f[f"{taken}_processes"], any_, ""),
                (f[f"{taken}_front_mb"], any_, "MB"),
                (f[f"{taken}_all_mb"], any_, "MB"),
            )
        )
    return [
        rows[0],
        _row("... prompt accepted: median, p99", "2 ms, 10 ms",
             (f["hundred_accept_median_ms"], 2, "ms"), (f["hundred_accept_p99_ms"], 10, "ms")),
        rows[1],
        _row("... one of them is prompted: to its first update", "as it is",
             (f["hundred_woken_first_update_ms"], any_, "ms")),
    ]  # fmt: skip


def table(results: dict[str, Any]) -> str:
    figures = with_ratios(results["figures"], ratio)
    lines = ["| what | to reach | measured | times its floor | |", "|---|---|---|---|---|"]
    lines += markdown(rows(figures) + client_rows(figures))
    lines.append("")
    lines.append(
        f"Measured {results['date']} at {results['commit']} on: {results['machine']}. Raw figures:"
        " `tests/benchmarks/results.json`; the agent behind the bridge is a plain Python one"
        " (`tests/benchmarks/floor.py`), run alone in the same minutes for comparison. The floors:"
        f" {_floors(results['figures'])}."
    )
    return "\n".join(lines)


def _floors(f: Figures) -> str:
    """The floors of the run in words; results of an earlier day have none."""
    words = {
        "floor_libraries_ms": "Python with the libraries that the bridge is built on",
        "floor_guard_ms": "a guard and its agent",
        "floor_chain_ms": "a bare front, guard and agent",
        "floor_commit_ms": "a durable write",
        "floor_turn_ms": "a turn of the plain agent alone",
        "floor_stream_ms": "10,000 updates of it",
    }
    return ", ".join(f"{what} {f[name]:g} ms" for name, what in words.items() if name in f)


def write_table(results: dict[str, Any]) -> None:
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{tail}")


if __name__ == "__main__":
    write_table(json.loads(Path(__file__).with_name("results.json").read_text()))
