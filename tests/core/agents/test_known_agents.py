"""The table of known agents, and what it advises about a command."""

import pytest

from acp_bridge.core.agents.known_agents import advice_for, known_agents


@pytest.mark.parametrize(
    ("words", "missing", "advice"),
    [
        (["opencode"], False, "opencode speaks ACP with an argument: opencode acp"),
        (
            ["/opt/bin/opencode", "--quiet"],
            False,
            "opencode speaks ACP with an argument: opencode acp",
        ),
        (["opencode", "acp"], False, ""),
        (["opencode", "acp"], True, "opencode is not installed: run: npm install -g opencode-ai"),
        (
            ["gemini"],
            True,
            "Gemini CLI is not installed: run: npm install -g @google/gemini-cli; then start it"
            " with: gemini --acp",
        ),
        (
            ["codex"],
            False,
            "codex does not speak ACP; codex-acp does (run: npm install -g"
            " @agentclientprotocol/codex-acp)",
        ),
        (["my-agent"], True, ""),
    ],
)
def test_a_command_is_advised_by_the_name_of_its_program(
    words: list[str], missing: bool, advice: str
) -> None:
    assert advice_for(words, missing=missing) == advice


def test_each_known_agent_has_a_name_a_way_to_install_and_a_date_if_it_was_tried() -> None:
    agents = known_agents()
    assert len({agent.name for agent in agents}) == len(agents) >= 11
    assert all(agent.install and bool(agent.tried) == bool(agent.date) for agent in agents)
