"""What `make test-times` reads and prints."""

from pathlib import Path

from tests import times


def test_the_targets_are_those_of_the_run_of_ci() -> None:
    found = times.targets((times.ROOT / ".ci" / "run").read_text("utf-8"))
    assert found["crash"] == ["make", "crash", "N=200"]
    assert {"test", "test-slow", "check", "fuzz"} <= found.keys()


def test_the_figures_of_all_workers_are_summed_by_folder(tmp_path: Path) -> None:
    (tmp_path / "1.jsons").write_text('["tests/a/b/c/test_x.py::test_1[a/b]", 1.5]\n')
    (tmp_path / "2.jsons").write_text(
        '["tests/a/b/test_x.py::test_2", 1]\n["tests/test_y.py::t", 4]\n'
    )
    read = times.read(tmp_path)
    assert times.by_folder(read) == [("tests", 4, 1), ("tests/a/b", 2.5, 2)]
    lines = list(times.table([times.Run("test", 7, 5, False, read)]))
    assert lines[1].split() == ["test", "7", "5", "3", "failed"]
    assert lines[-3].split() == ["4.00", "tests/test_y.py::t"]
