"""A refusal names a command, however its options are written."""

import pytest

from tests.features.rules.judging import of_command

pytestmark = pytest.mark.hazard("A1")

RULES = """
deny = [
  "Bash(rm -rf *)", "Bash(python -c *)", "Bash(chmod -R 777 /)", "Bash(git push *)",
  "Bash(git reset --hard *)",
]
allow = ["Bash"]
"""


@pytest.mark.parametrize(
    "command",
    [
        "rm -fr x",
        "rm -r -f x",
        "rm x -rf",
        "rm -Rvf x",
        "rm -r x --force",
        "rm --recursive --force x",
        "python -Bc x",
        "chmod 777 -R /",
        "git reset HEAD --hard",
        "git push origin main --force",
        # options before a subcommand
        "git -C x push",
        "git --no-pager push -f",
        "git -c a=b --git-dir=x --work-tree y push",
        "sudo git -C x push",
        "env -i git -C x push",
        "sh -c 'git -C x push'",
    ],
)
def test_a_refusal_finds_options_in_any_order_and_a_subcommand_behind_them(command: str) -> None:
    assert of_command(RULES, command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm -r x",
        "rm -f x",
        "rm -r -- -f",
        "git commit -m push",
        "git log push",
        "git stash push",
        "chmod 777 /",
        "git reset --soft HEAD",
        "git reset -- --hard",
        "chmod -R 755 /",
    ],
)
def test_a_refusal_of_some_options_or_of_a_subcommand_is_of_no_other(command: str) -> None:
    assert of_command(RULES, command) == "allow"


def test_an_allow_takes_options_as_they_are_written() -> None:
    text = 'allow = ["Bash(ls -la *)", "Bash(git status)"]'
    assert of_command(text, "ls -la x") == "allow"
    assert of_command(text, "ls -al x") == "ask"
    assert of_command(text, "git -C x status") == "ask"


REFUSED = """
default = "ask"
deny = [
  "Bash(docker compose down *)", "Bash(gh pr merge *)", "Bash(npm run deploy *)",
  "Bash(git remote add *)", "Bash(cargo publish *)", "Bash(docker run --privileged *)",
  "Bash(docker compose rm --volumes *)", "Bash(gh api -X DELETE *)", "Bash(docker run -v /:/ *)",
  "Bash(git push --force *)", "Bash(git clean --force *)", "Bash(rm --recursive *)",
  "Bash(git branch --delete *)", "Bash(npm install --global *)", "Bash(make deploy *)",
]
ask = ["Bash(git commit --amend *)"]
allow = ["Bash"]
"""


@pytest.mark.parametrize(
    "command",
    [
        # options, with their values, between the words of a command
        "docker compose -f x.yml down",
        "docker --context x compose --file=x.yml -p y down -v",
        "gh pr -R a/b merge 1",
        "npm run -s deploy",
        "npm run -- deploy",
        "git remote -v add x y",
        "cargo +nightly publish",
        "docker compose -f x.yml rm web --volumes",
        # an option with its value stands elsewhere
        "gh api repos/x -X DELETE",
        "gh api repos/x -XDELETE",
        "gh api repos/x -X=DELETE --silent",
        "docker run --name x -v /:/ image",
        # a short option for a long one
        "git push -f",
        "git push -fu origin main",
        "git push origin main -f",
        "git clean -dfx",
        "rm -R x",
        "git branch -D x",
        "npm install x -g",
        # a further target
        "make test deploy",
        "make -j4 test deploy V=1",
    ],
)
def test_a_refusal_is_found_wherever_options_and_their_values_stand(command: str) -> None:
    assert of_command(REFUSED, command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "docker compose -f x.yml up",
        "docker compose -f down.yml up",
        "gh pr view merge",
        "npm run test -- deploy",
        "git remote show add",
        "git commit -am x",
        "git push origin feature",
        "git push --follow-tags",
        "git branch -a",
        "npm install x",
        "gh api repos/x -X GET",
        "docker run -p 80:80 image",
        "rm -f x",
        "make test",
        "make test -f deploy.mk",
        "docker run -v x:/ image",
    ],
)
def test_a_refusal_is_not_of_what_only_has_its_words_or_letters(command: str) -> None:
    assert of_command(REFUSED, command) != "deny"


def test_a_refusal_is_found_behind_any_number_of_options() -> None:
    assert of_command(RULES, f"git {'-P ' * 100}push") == "deny"
    assert of_command(REFUSED, f"docker compose {'-f x ' * 100}down") == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "scripts/release.sh",
        "./scripts//release.sh now",
        "./scripts/../scripts/release.sh",
        "/elsewhere/scripts/release.sh",
        "cd scripts && ./release.sh",
        "bin/./deploy-all x",
    ],
)
def test_a_refusal_of_a_program_by_its_path_finds_it_under_every_path(command: str) -> None:
    text = """
deny = ["Bash(./scripts/release.sh *)", "Bash(./bin/deploy-* *)"]
allow = ["Bash"]
"""
    assert of_command(text, command) == "deny"
    assert of_command(text, "./scripts/other.sh") == "allow"
