"""The pictures in docs/pictures: how a recording becomes one, and that they are up to date."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.pictures import cast, record, svg
from tests.pictures.__main__ import CHAT, EXAMPLE, PICTURES, PROMPT, RECORDINGS
from tests.pictures.cast import END, LONGEST, Cast
from tests.pictures.screen import PLAIN, ColourTerminal, Run, Style, styled

SVG = "{http://www.w3.org/2000/svg}"


def recorded(*written: tuple[float, str]) -> Cast:
    return Cast(20, 3, "a <title>", written)


def texts(given: Cast) -> list[list[str]]:
    """The texts on the screen, frame by frame."""
    shown, _ = cast.frames(given)
    return [[run.text for row in frame.rows for run in row] for frame in shown]


def test_a_row_is_told_as_runs_of_equal_style_without_its_blanks() -> None:
    terminal = ColourTerminal(20, 3)
    terminal.write("a \x1b[1;31m bold\x1b[0m 漢 \x1b[7m \x1b[27m")
    assert terminal.look() == (
        (
            Run(0, "a", PLAIN, 1),
            Run(3, "bold", Style(colour=1, bold=True), 4),
            Run(8, "漢", PLAIN, 2),
            Run(11, " ", Style(reverse=True), 1),
        ),
    )


@pytest.mark.parametrize(
    ("numbers", "style"),
    [
        ("1;2;3;4", Style(bold=True, dim=True, italic=True, underlined=True)),
        ("92;44", Style(colour=10, background=4)),
        ("31;39", PLAIN),
        ("41;49", PLAIN),
        ("7;1;", PLAIN),
        ("1;22;3;23;4;24;7;27", PLAIN),
    ],
)
def test_a_style_is_what_its_numbers_say(numbers: str, style: Style) -> None:
    assert styled(PLAIN, numbers) == style


def test_a_style_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="38;5;1"):
        styled(PLAIN, "38;5;1")


def test_what_changes_faster_than_a_person_sees_is_one_frame() -> None:
    assert texts(recorded((0, "a"), (0.01, "b"), (0.02, "c"), (1, "d"))) == [["abc"], ["abcd"]]


def test_what_changes_without_a_rest_is_shown_all_the_same() -> None:
    steady = [(0.05 * number, str(number)) for number in range(1, 5)]
    assert texts(recorded(*steady)) == [["123"], ["1234"]]


def test_what_is_written_and_changes_nothing_is_no_frame() -> None:
    assert texts(recorded((0, "a"), (1, "\ra"), (2, "b"))) == [["a"], ["ab"]]


def test_a_long_rest_is_cut_and_the_last_frame_stays() -> None:
    shown, length = cast.frames(recorded((0, "a"), (100, "b")))
    assert [frame.start for frame in shown] == [0, LONGEST]
    assert length == LONGEST + END


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = recorded((0.25, "a\x1b[1mü\r\n"), (1.5, "b"))
    cast.write(given, tmp_path / "file")
    assert cast.read(tmp_path / "file") == given


def test_a_row_is_drawn_once_for_each_time_that_it_stays_the_same() -> None:
    drawn = svg.draw(recorded((0, "one & two\r\n"), (1, "gone"), (2, "\r\x1b[Klast")))
    root = ElementTree.fromstring(drawn)
    rows = {
        group[0].text: group.get("class")
        for group in root.iter(f"{SVG}g")
        if len(group) and group[0].text and group.get("class")
    }
    assert rows == {"gone": "k1250_2500 o", "last": "k2500_10000"}
    always = [text.text for text in root.findall(f"{SVG}g/{SVG}text")]
    assert always == ["one & two"]
    assert "k1250_2500{0%{visibility:hidden}12.5%{visibility:visible}25%{visibility:hidden}}" in (
        drawn
    )


def test_where_nothing_plays_the_last_frame_is_seen() -> None:
    drawn = svg.draw(recorded((0, "first"), (1, "\r\x1b[Klast")))
    groups = ElementTree.fromstring(drawn).iter(f"{SVG}g")
    hidden = {group[0].text: "o" in (group.get("class") or "").split() for group in groups}
    assert (hidden["first"], hidden["last"]) == (True, False)
    assert ".o{visibility:hidden}" in drawn


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_picture_is_what_its_recording_gives_and_small(name: str) -> None:
    drawn = (PICTURES / f"{name}.svg").read_text("utf-8")
    assert drawn == svg.draw(cast.read(PICTURES / f"{name}.cast"))
    assert len(drawn.encode()) < 200_000


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_names_no_place_of_the_machine_that_it_was_made_on(name: str) -> None:
    text = (PICTURES / f"{name}.cast").read_text("utf-8")
    assert not any(place in text for place in ("/tmp", "/home", "/root", "/usr"))


@pytest.mark.process
def test_what_the_picture_of_chat_shows_can_be_repeated_in_a_clone(tmp_path: Path) -> None:
    readme = (record.ROOT / "README.md").read_text("utf-8")
    for said in (f"acp-bridge {' '.join(CHAT)}", PROMPT, str(EXAMPLE.relative_to(record.ROOT))):
        assert said in readme
    project = tmp_path / "example"
    shutil.copytree(EXAMPLE, project)
    words = ["run", *CHAT[1:], "--permissions", "allow", PROMPT]
    done = subprocess.run(
        [sys.executable, "-m", "acp_bridge", *words],
        cwd=project,
        env={
            **os.environ,
            "ACP_BRIDGE_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(record.ROOT),
        },
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "if line and line[0]" in (project / "parser.py").read_text()
