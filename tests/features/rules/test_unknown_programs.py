"""Programs of which it is not known what they run or write: the person is asked."""

from pathlib import Path

import pytest

from acp_bridge.features.rules import decide
from acp_bridge.features.rules.definitions import Tool
from tests.features.rules.judging import judged, of_command, of_path, place

pytestmark = pytest.mark.hazard("A1")

DENY = 'deny = ["Bash(rm *)"]\nallow = ["Bash"]'
DATA = place("/project", "/home/me/.local/share/acp-bridge")

PERHAPS = [
    "runs-it rm x",
    "./mine --with /bin/rm x",
    "runs-it -- 'rm x'",
    "runs-it --exec='rm x'",
    "docker run -v a:b image rm x",
    "docker compose exec it rm x",
    "kubectl exec pod -- rm x",
    "vim -c '!rm x'",
    "sed '1e rm x' f",
    "script /dev/null rm x",
    "sudo -u me runs-it rm x",
    "npx runs-it 'rm x'",
    "socat - EXEC:'rm x'",
    "cargo watch -s 'rm x'",
    "nix run nixpkgs#x -- rm x",
    "ln -s /bin/rm mine && ./mine x",
    "cp /bin/rm mine && ./mine x",
    # code that is no shell's
    "python -c \"import os; os.system('rm x')\"",
    'python -c \'subprocess.run(["rm", "x"])\'',
    "perl -e 'system(\"rm x\")'",
    "awk 'BEGIN { system(\"rm x\") }'",
    "python <<E\nos.system('rm x')\nE",
    "make -f /dev/stdin <<< 'all: ; rm x'",
    "echo 'os.system(\"rm x\")' | python3",
    "PAGER='rm x' man ls",
    "export EDITOR='rm x'",
    "echo rm x | xargs env",
    "echo rm | xargs -I@ @ x",
]


@pytest.mark.hazard("A1.7")
@pytest.mark.parametrize("command", PERHAPS, ids=lambda command: command[:40])
def test_a_program_that_is_not_known_may_run_what_a_rule_refuses(command: str) -> None:
    judgement = judged(DENY, decide.example(Tool.BASH, command))
    assert judgement.action == "ask"
    assert judgement.protected, "only a person may allow it"
    assert judgement.ask is not None
    assert judgement.ask.pattern == "rm *"


def test_a_program_that_is_not_known_may_run_what_a_rule_asks_about() -> None:
    text = 'ask = ["Bash(git push *)"]\nallow = ["Bash"]'
    judgement = judged(text, decide.example(Tool.BASH, "runs-it git push"))
    assert judgement.action == "ask"
    assert not judgement.protected
    assert of_command(text, "runs-it git pull") == "allow"


@pytest.mark.hazard("A1.5")
@pytest.mark.parametrize(
    "command",
    [
        "bundle exec rm x",
        "gosu me rm x",
        "eatmydata rm x",
        "cross-env A=1 rm x",
        "pipx run rm x",
        "time ! rm x",
        "time { rm x; }",
        "! { rm x; }",
        "sh <<< $'rm\\tx'",
        "timeout --foreground 5 rm x",
        "timeout -s KILL -- 5 rm x",
        "env -i env -0 rm x",
        "ls | xargs -I{} {} x <<< rm",
        "split --filter='rm x' f",
        "man -P 'rm x' ls",
        # git
        "git grep -O'rm' x",
        "git rebase -x'rm x' main",
        "git config core.pager 'rm x'",
        "git config --global alias.y '!rm x'",
        # a disk may take no notice of upper and lower case
        "RM x",
        "/BIN/Rm x",
    ],
)
def test_a_refusal_finds_what_a_known_program_runs(command: str) -> None:
    assert of_command('deny = ["Bash(rm *)", "Bash(rm)"]\nallow = ["Bash"]', command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "docker rm x",
        "which rm",
        "command -v rm",
        "npm install rm",
        "git rm x",
        "cp rm x",
        "git commit -m 'rm x'",
        "git log --grep='rm x'",
        "git log -Sabc",
        "git log --author='Bob Rm'",
        "gh pr create --title 'rm x' --body \"don't\"",
        "rg 'rm x' src",
        "pytest -k rm",
        "sed -n 1,20p x",
        "npm test && make all",
        "xargs -0 grep rm",
        "timeout 5 grep rm x",
    ],
)
def test_a_word_that_is_known_to_be_data_is_nothing_to_refuse(command: str) -> None:
    text = DENY.replace('["Bash"]', '["Bash", "Bash(xargs -0 grep rm)"]')
    assert of_command(text, command) == "allow"


def test_a_variable_that_says_how_long_is_not_what_runs() -> None:
    assert of_command(DENY, "timeout $T git rm x") == "ask"
    assert of_command(DENY, "timeout --foreground 5 git rm x") == "ask"
    assert of_command(DENY, "timeout $T rm x") == "deny"


# --- what guards the user ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "cp -r evil/acp-bridge ~/.local/share",
        "cp -r evil/share ~/.local",
        "cp -rt ~/.local evil/share",
        "cp -rt/home/me/.local evil/share",
        "cp -r --target-directory=/home/me/.local evil/share",
        "cp -r evil/. ~/.local/share",
        "cp -rT evil ~/.local",
        "rsync -a evil/ ~/.local/",
        "mv ~/.local x",
        "mv -T ~/.local x",
        "rm -r ~/.local",
        "rm -rf ~",
        "chmod -R 777 /",
        "ln -s ~/.local x",
        "tar xf x -C ~/.local",
        "unzip x -d ~/.local/share",
        "cd ~/.local && cp -r evil/share .",
        "cd ~ && mv .local x",
        "cp -r evil/. .",
        "rsync -a evil/ .",
        "tee ~/.LOCAL/share/ACP-bridge/permissions.toml",
    ],
)
def test_a_folder_above_what_guards_the_user_is_changed_by_no_rule(command: str) -> None:
    judgement = judged('allow = ["Bash", "Edit"]', decide.example(Tool.BASH, command), DATA)
    assert judgement.action == "ask"
    assert judgement.protected


@pytest.mark.parametrize(
    "command",
    [
        "cp -r a/. b",
        "rsync -a a/ b",
        "cp x ~",
        "ls ~",
        "cat ~/.profile",
        "find / -name x",
        "cp -r a b",
        "pip install .",
        "mv a b/",
    ],
)
def test_a_folder_above_what_guards_the_user_is_read_and_added_to_as_rules_say(
    command: str,
) -> None:
    assert of_command('allow = ["Bash", "Edit"]', command, DATA) == "allow"


def test_all_that_a_folder_has_is_copied_over_no_git_folder_by_a_rule(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    text, deny = 'allow = ["Bash"]', 'deny = ["Edit(**/.git/**)"]\nallow = ["Bash"]'
    for command in ("cp -r a/. sub", "cp -rT a sub", "rsync -a a/ sub", "rsync -a a/ ."):
        assert of_command(text, command, place(tmp_path)) == "ask"
        assert of_command(deny, command, place(tmp_path)) == "deny"
    assert of_command(deny, "cp -r a/. other", place(tmp_path)) == "allow"


def test_a_refusal_of_a_path_is_found_behind_any_letters_of_options() -> None:
    text = 'deny = ["Edit(secret/**)", "Read(**/.env)"]\nallow = ["Bash"]'
    assert of_command(text, "cp -atsecret x") == "deny"
    assert of_command(text, f"cp -{'a' * 300}tsecret x") == "deny"
    assert of_command(text, "cp -r x/secret .") == "deny"
    assert of_command(text, "ls -la") == "allow"


def test_a_refusal_of_a_path_takes_no_notice_of_upper_and_lower_case() -> None:
    assert of_path('deny = ["Read(**/.env)"]\nallow = ["Read"]', Tool.READ, "/x/.ENV") == "deny"
    assert of_path('allow = ["Read(src/**)"]', Tool.READ, "/project/SRC/x") == "ask"
