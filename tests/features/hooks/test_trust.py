"""A project's hooks: off until they are trusted, and off again when anything of them changes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from acp_bridge.features.hooks import trust
from acp_bridge.features.hooks.config import parse
from acp_bridge.features.hooks.definitions import Hook, HookEvent
from acp_bridge.features.hooks.find import find, look
from acp_bridge.features.hooks.found import FoundHooks

FILE = ".acp_bridge/hooks.toml"


class Place:
    """A data folder and a project."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", Path(os.path.realpath(folder)) / "project"
        self.home.mkdir()
        self.project.mkdir()

    def write(self, name: str, text: str = "#!/bin/sh\n") -> Path:
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def hooks(self, *commands: str) -> None:
        self.write(FILE, "".join(f"[[Stop]]\ncommand = '''{each}'''\n" for each in commands))

    def trust(self) -> None:
        content = (self.project / FILE).read_bytes()
        found = trust.hashes(self.project, content, parse(content.decode(), project=True))
        trust.write_record(self.home, trust.Record(str(self.project), found))

    def find(self) -> FoundHooks | None:
        return find(self.home, str(self.project))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def named(place: Place, command: str) -> list[str]:
    return trust.named_files(place.project, [Hook(HookEvent.TURN_END, command)])


def test_without_any_file_there_are_no_hooks(place: Place) -> None:
    assert place.find() is None
    assert find(place.home, "/nowhere/at/all") is None


def test_a_projects_hooks_are_off_and_the_session_says_how_to_turn_them_on(place: Place) -> None:
    place.hooks("true")
    found = place.find()
    assert found is not None
    assert (found.hooks, found.project, found.person_asked) == ((), None, False)
    (said,) = found.notices
    assert f"acp-bridge trust {place.project}" in said


def test_trusted_they_run_behind_the_users_own(place: Place) -> None:
    place.hooks("project")
    (place.home / "hooks.toml").write_text("[[Stop]]\ncommand = 'own'\n")
    place.trust()
    found = place.find()
    assert found is not None
    assert [(hook.shown, hook.project) for hook in found.hooks] == [
        ("own", False),
        ("project", True),
    ]
    assert found.notices == ()
    assert found.project is not None
    assert found.project.changes(str(place.project)) == []


@pytest.mark.parametrize("how", ["edited", "added", "mode", "link", "removed", "hooks", "gone"])
def test_any_change_turns_them_off_again_in_a_session_and_in_the_next(
    place: Place, how: str
) -> None:
    script = place.write("tools/check.sh")
    place.hooks("sh tools/check.sh", "sh tools/later.sh")
    place.trust()
    before = place.find()
    assert before is not None
    assert before.project is not None
    match how:
        case "edited":
            script.write_text("#!/bin/sh\nrm -rf ~\n")
        case "added":
            place.write("tools/later.sh")
        case "mode":
            script.chmod(0o755)
        case "link":
            other = place.write("other.sh")
            script.unlink()
            script.symlink_to(other)
        case "removed":
            script.unlink()
        case "hooks":
            place.hooks("sh tools/check.sh")
        case "gone":
            (place.project / FILE).unlink()
    assert before.project.changes(str(place.project))
    found = place.find()
    assert found is not None
    assert (found.hooks, found.person_asked) == ((), True)
    (said,) = found.notices
    assert "are off" in said


def test_a_change_of_another_file_changes_nothing(place: Place) -> None:
    place.write("tools/check.sh")
    place.hooks("sh tools/check.sh --dir src .")
    place.write("src/a.py")
    place.trust()
    place.write("src/a.py", "changed")
    found = place.find()
    assert found is not None
    assert found.project is not None
    assert found.project.changes(str(place.project)) == []


def test_a_copy_of_the_project_elsewhere_is_not_trusted(place: Place) -> None:
    place.hooks("true")
    place.trust()
    place.project.rename(place.project.with_name("moved"))
    found = find(place.home, str(place.project.with_name("moved")))
    assert found is not None
    assert found.hooks == ()


@pytest.mark.parametrize("content", ["", "{", '{"folder": 5}', '{"folder": "/other", "files": {}}'])
def test_a_record_that_can_not_be_read_trusts_nothing_and_the_person_is_asked(
    place: Place, content: str
) -> None:
    place.hooks("true")
    place.trust()
    trust.record_path(place.home, str(place.project)).write_text(content)
    found = place.find()
    assert found is not None
    assert (found.hooks, found.person_asked) == ((), True)


@pytest.mark.hazard("C18.8")
@pytest.mark.parametrize("where", ["home", "project"])
def test_hooks_that_can_not_be_read_are_named_with_their_line_and_widen_nothing(
    place: Place, where: str
) -> None:
    place.hooks("true")
    place.trust()
    own = place.home / "hooks.toml"
    own.write_text("[[PermissionRequest]]\ncommand = 'allow'\n")
    broken = own if where == "home" else place.project / FILE
    broken.write_text("[[Stop]]\ncommand = 'x'\n\n[[Stop]\n")
    found = place.find()
    assert found is not None
    assert found.person_asked
    (said,) = found.notices
    assert "line 4" in said
    assert "hooks.toml" in said


def test_broken_hooks_of_a_project_that_nobody_trusts_are_named_and_hinder_nothing(
    place: Place,
) -> None:
    place.write(FILE, "[[")
    found = place.find()
    assert found is not None
    assert not found.person_asked


@pytest.mark.parametrize("odd", ["folder", "pipe", "bytes", "large", "link", "open"])
def test_a_file_of_hooks_that_is_odd_is_an_error_and_never_waited_for(
    place: Place, odd: str
) -> None:
    path = place.home / "hooks.toml"
    match odd:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "bytes":
            path.write_bytes(b"# good\n# \xff\n")
        case "large":
            path.write_text("#" * 2_000_000)
        case "link":
            path.symlink_to(path)
        case "open":
            path.write_text("[[Stop]]\ncommand = 'true'\n")
            path.chmod(0o666)
    found = place.find()
    assert found is not None
    assert found.person_asked
    assert found.notices
    assert found.hooks == ()


async def test_a_folder_that_does_not_answer_has_hooks_that_nobody_knows(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(*_: object) -> None:
        answers.wait(5)

    monkeypatch.setattr("acp_bridge.features.hooks.find.find", hang)
    monkeypatch.setattr("acp_bridge.core.runtime.waits.HOOKS_READ", 0.01)
    found = await look(place.home, str(place.project))
    answers.set()
    assert found is not None
    assert found.person_asked
    assert found.notices


def test_a_data_folder_that_is_the_projects_has_its_hooks_once(place: Place) -> None:
    place.hooks("once")
    found = find(place.project / ".acp_bridge", str(place.project))
    assert found is not None
    assert [hook.shown for hook in found.hooks] == ["once"]


@pytest.mark.parametrize(
    "command",
    [
        "tools/check.sh",
        "./tools/check.sh --fast",
        "sh -c 'tools/check.sh && true'",
        '"$CLAUDE_PROJECT_DIR"/tools/check.sh',
        "${CLAUDE_PROJECT_DIR}/tools/check.sh",
        "FOO=1 exec tools/check.sh>out",
        "cd tools && ./check.sh",
        "cat x|tools/check.sh;true",
        "run --script=tools/check.sh",
        "$(tools/check.sh)",
        "`tools/check.sh`",
        "sh tools/*.sh",
        "sh < tools/check.sh",
        "sh tools/../tools/check.sh",
        "echo 'open && tools/check.sh",
        # quotes, comments and lines that are joined
        "# don't\nsh too''ls/check.sh",
        "sh too\\\nls/check.sh",
        # patterns
        "cd to*s && ./check.sh",
        "sh tools/[^z]heck.sh",
        "sh tools/[[:lower:]]heck.sh",
        # right behind an option
        "env -Ctools ./check.sh",
        "bash --rcfile=x -ftools/check.sh",
        "make -kftools/check.sh",
    ],
)
def test_a_file_counts_wherever_it_stands_in_a_command(place: Place, command: str) -> None:
    place.write("tools/check.sh")
    assert "tools/check.sh" in named(place, command)


def test_names_with_blanks_absolute_ones_and_modules_count_too(place: Place) -> None:
    place.write("my tools/check it.sh")
    place.write("checks/style.py")
    place.write("checks/__init__.py")
    place.write("app/__main__.py")
    assert named(place, "'my tools/check it.sh'") == ["my tools/check it.sh"]
    assert named(place, f"sh {place.project}/checks/style.py") == ["checks/style.py"]
    assert "checks/style.py" in named(place, "python -m checks.style")
    assert "checks/style.py" in named(place, "python -mchecks.style")
    assert named(place, "python app") == ["app/__main__.py"]
    listed = Hook(HookEvent.TURN_END, ("sh", "my tools/check it.sh"))
    assert trust.named_files(place.project, [listed]) == ["my tools/check it.sh"]


def test_a_name_behind_a_link_to_the_project_counts(place: Place) -> None:
    place.write("check.sh")
    (link := place.home / "link").symlink_to(place.project)
    assert named(place, f"sh {link}/check.sh") == ["check.sh"]


def test_what_lies_outside_does_not_count(place: Place) -> None:
    (place.home / "x.sh").write_text("")
    assert named(place, f"sh {place.home}/x.sh ../home/x.sh /bin/sh ~ . ..") == []


def test_too_many_folders_to_which_a_command_may_go_can_not_be_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "MOST", 3)
    for number in range(5):
        (place.project / f"folder{number}").mkdir()
    place.hooks("cd folder* && ls")
    with pytest.raises(trust.NotTrustable, match="3 folders"):
        place.trust()


def test_what_is_too_much_to_be_looked_at_can_not_be_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "MOST", 3)
    for number in range(5):
        place.write(f"many/{number}.sh")
    place.hooks("sh many/*.sh")
    with pytest.raises(trust.NotTrustable):
        place.trust()
    monkeypatch.setattr(trust, "MOST", 100)
    place.trust()
    (place.project / "many/0.sh").write_bytes(b"#" * (trust.LARGEST + 1))
    found = place.find()
    assert found is not None
    assert found.hooks == ()


# --- files that only the shell knows -------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "piece"),
    [
        ("${x:-.}/a.sh", "${x:-.}/a.sh"),
        ("./$f.sh", "./$f.sh"),
        ("{a,b}.sh", "{a,b}.sh"),
        ("sh checks/{a,b}.sh", "checks/{a,b}.sh"),
        ("ls && ./`cat name`", "./`cat name`"),
        ('"$(cat name)" now', '"$(cat name)"'),
        ("x=$(cat name); $x", "$x"),
        ("x=checks; sh $x/a.sh", "$x/a.sh"),
        ("for f in checks/*.sh; do $f; done", "$f"),
        ("read f < name; sh ./$f", "./$f"),
        ("p=$(cat name)/a.sh; sh $p", "p=$(cat name)/a.sh"),
        ("if $(cat name); then ls; fi", "$(cat name)"),
        ("exec $1", "$1"),
        ("echo $(sh ./$f)", "./$f"),
        ("PWD=tools; $PWD/a.sh", "$PWD/a.sh"),
        ("cat < $d/x", "$d/x"),
        ("cat < ../$d", "../$d"),
        ('sh "$(cat name)"', '"$(cat name)"'),
        ("f=$(cat name); . $f", "$f"),
        ("timeout 5 $x", "$x"),
        ("nice -n 5 python3 -u $x", "$x"),
        ("2>&1 > /dev/null $x", "$x"),
        ("HOME+=x; $HOME/a.sh", "$HOME/a.sh"),
        ("mapfile HOME < name; $HOME/a.sh", "$HOME/a.sh"),
        ("select HOME in x; do $HOME/a.sh; done", "$HOME/a.sh"),
        # texts that a shell runs
        ("eval $x", "$x"),
        ('eval "$x"', "$x"),
        ("eval 'sh $f.sh'", "$f.sh"),
        ('eval "sh $f.sh"', "$f.sh"),
        ("eval sh \\$f", "$f"),
        ("eval ls \\; $x", "$x"),
        ('eval "$(cat name)"', "$(cat name)"),
        ("eval eval $x", "$x"),
        ("trap $x EXIT", "$x"),
        ("sh -c '$0' x", "$0"),
        ("bash -lc 'cat a; . $f'", "$f"),
        ('timeout 5 bash -c "sh $f"', "$f"),
        ("sh -c \"eval '$x'\"", "$x"),
        ("find . -exec $x \\;", "$x"),
        ("find . -exec sh -c '$f' \\;", "$f"),
        (". <(cat name)", "<(cat name)"),
        ("sh < $f", "$f"),
        # programs that run others
        ("builtin . $f", "$f"),
        ("builtin eval $x", "$x"),
        ("command $x", "$x"),
        ("command -p . $f", "$f"),
        ("command make -f $f", "$f"),
        ("'eval' $x", "$x"),
        ("python3.12 $x", "$x"),
        ("php $x", "$x"),
        # options that name what a program runs
        ("make -f $f", "$f"),
        ("make -kf $f test", "$f"),
        ("make -f$f", "-f$f"),
        ("make test -C $d", "$d"),
        ("make -C$d", "-C$d"),
        ("make --file=$f", "--file=$f"),
        ("make --makef $f", "$f"),
        ("gmake --directory $d", "$d"),
        ("awk -f $f x", "$f"),
        ("awk -F: -f$f x", "-f$f"),
        ("gawk --file=$f x", "--file=$f"),
        ("sed -f $f x", "$f"),
        ("sed -nf $f x", "$f"),
        ("sed --file $f x", "$f"),
        ("ls | sudo make -f $f", "$f"),
        # where a quote is only a letter
        ("# don't\nsh $f", "$f"),
        ("ls # don't\nsh $f # can't", "$f"),
        ("cat <<E\ndon't\nE\nsh $f\ncat <<E\ncan't\nE", "$f"),
        ("x=$'\\''; sh $f # '", "$f"),
        # other forms of what a shell puts in
        ("sh $'checks/\\x61.sh'", "$'checks/\\x61.sh'"),
        ("~+/checks/a.sh", "~+/checks/a.sh"),
        # a folder to which a command goes
        ("cd $d && ./a.sh", "$d"),
        ("cd -- $d && ./a.sh", "$d"),
        ('pushd "$(cat name)"; ./a.sh', '"$(cat name)"'),
        # options with values before what a program runs
        ("env -u X $f", "$f"),
        ("timeout -s KILL 5 $f", "$f"),
        ("bash -o errexit $f", "$f"),
        ("exec -a x $f", "$f"),
        ("stdbuf -o L sh $f", "$f"),
        ("sudo -u me sh $f", "$f"),
        ("python3 -W ignore $f", "$f"),
    ],
)
def test_hooks_that_name_a_file_which_only_their_shell_knows_are_not_trusted(
    place: Place, command: str, piece: str
) -> None:
    place.write("checks/a.sh")
    place.hooks(command)
    with pytest.raises(trust.NotTrustable) as refused:
        place.trust()
    assert f"names {piece}, and" in str(refused.value)
    assert "Write the file's path there" in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        '"$CLAUDE_PROJECT_DIR/checks/a.sh"',
        "$HOME/bin/check x",
        'echo "The branch is $(git branch --show-current)."',
        "notify-send 'asks' \"$(jq -r .message)\"",
        "jq -r .message | curl -s -d @- https://ntfy.sh/$USERNAME",
        'out=$(pytest -q 2>&1 | tail -20); case $out in *failed*) echo "$out" >&2; exit 2;; esac',
        'sed "s/$a/$b/" x',
        "git log origin/$b",
        "echo x > /tmp/log-$(date +%s)",
        "echo $x ${y:-z}",
        "test $? = 0 || exit $?",
        "checks/*.sh",
        "python3 -c 'print(1)' \"$x\"",
        'sh -e checks/a.sh "$x"',
        'make >&2 "$x"',
        "'./$f.sh' x",
        "sh checks/a.sh < $x > $y",
        "ls | sh > $y",
        "make -j$(nproc) $x V=$y",
        "make -n test $f",
        "awk -v x=$x -F$y '{ print $1 }' f",
        "sed -e s/a/$b/ -i$x f",
        "eval ls '$x'",
        "sh -c 'echo $x' $y",
        "sh -c 'ls \"$1\"' x $y",
        'bash -c "cd x && ls $y"',
        "diff <(ls) <(ls)",
        "find . -name $x -exec ls {} \\;",
        "grep -f $x f",
        "tar -C $x -f $y",
        "IFS=$'\\n'; echo $x",
        'cd "$CLAUDE_PROJECT_DIR/checks" && ls $x',
        "# it's\necho $x",
        "cat <<E\nit's $x\nE",
        "env -u X ls $x",
        "python3 -u checks/a.py $x",
    ],
)
def test_other_things_that_a_shell_puts_in_are_left_alone(place: Place, command: str) -> None:
    place.write("checks/a.sh")
    place.write(FILE, f"[[Stop]]\ncommand = '''\n{command}'''\n")
    place.trust()


def test_hooks_that_were_trusted_and_would_be_refused_now_are_off_and_the_session_says_why(
    place: Place,
) -> None:
    place.write("a.sh")
    place.hooks("./$f.sh")
    content = (place.project / FILE).read_bytes()
    files = {FILE: trust.digest(content)}
    trust.write_record(place.home, trust.Record(str(place.project), files))
    found = place.find()
    assert found is not None
    assert (found.hooks, found.person_asked) == ((), True)
    assert "./$f.sh" in found.notices[0]
    assert "Write the file's path there" in found.notices[0]
