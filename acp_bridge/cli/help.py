"""The help text of `acp-bridge`."""

HELP = """\
usage: acp-bridge [OPTIONS] [-- COMMAND ARGS...]
       acp-bridge COMMAND ...

Start this instead of an ACP agent: it never loses a prompt, stops when told to, and outlives
the agent behind it. It speaks the Agent Client Protocol (version 1) on stdin and stdout.

Set up (each command has its own --help; docs/commands.md says more):
  acp-bridge doctor                 look if all is well, and say what to do if not
  acp-bridge key [NAME]             keep a key for the built-in agent, without showing it
  acp-bridge setup EDITOR           make an editor start this: what goes where, or written there
  acp-bridge completion SHELL       complete commands and options in bash, zsh or fish
  acp-bridge trust FOLDER           let the hooks of a project run (docs/hooks.md)
  acp-bridge demo                   show it working, offline, in under 20 seconds

Work with sessions:
 a new one, or one that is kept
  acp-bridge chat                   talk with an agent in this terminal
  acp-bridge run "PROMPT"           one prompt from a script: the answer on stdout, exit codes
  acp-bridge sessions               list them
  acp-bridge show [ID]              the transcript of one
 one that is live, in an editor or elsewhere
  acp-bridge ps                     list them: what each does, what waits, what is asked
  acp-bridge attach [ID]            see one in this terminal, and take part in it
  acp-bridge send ID "PROMPT"       put a prompt onto the queue of one
  acp-bridge cancel ID              stop the turn that runs
  acp-bridge approve|deny ID        answer what the agent asks
  acp-bridge close ID               end it; it is kept
  acp-bridge delete ID              delete it for good

Serve an editor, which starts one of these:
  acp-bridge                        the built-in agent
  acp-bridge -- codex-acp           any other ACP agent

Options for serving (and the environment variables that set them):
 prompts and cancels
  --delivery queue|interrupt        a prompt that comes during a turn waits for its end, or
                                    cancels it (ACP_BRIDGE_DELIVERY; default queue)
  --on-cancel keep|clear            a cancel leaves the prompts that wait, or cancels them
                                    too (ACP_BRIDGE_ON_CANCEL; default keep)
  --drain-timeout SECONDS           how long an agent may take to stop before it is killed
                                    and restarted (ACP_BRIDGE_DRAIN_TIMEOUT; default 2, with
                                    --openhands 7)
  --reload-after-cancel unclean|always
                                    restart the agent only after a cancel that went wrong, or
                                    after each (ACP_BRIDGE_RELOAD_AFTER_CANCEL; default unclean)
 the agent
  --model MODEL                     the built-in agent's model as LiteLLM names it, such as
                                    anthropic/claude-sonnet-5-5; or demo, or scripted:FILE
                                    (ACP_BRIDGE_MODEL; default the first whose key is there,
                                    else demo)
  --openhands URL                   instead of the built-in agent, one that drives a running
                                    OpenHands agent-server, such as http://127.0.0.1:8000; the
                                    key is OPENHANDS_SESSION_API_KEY (ACP_BRIDGE_OPENHANDS)
  --openhands-profile NAME          the agent profile of its new conversations
                                    (ACP_BRIDGE_OPENHANDS_PROFILE; default the active one)
  --agent-name NAME                 the name under which the agent's sessions are kept and found
                                    again (ACP_BRIDGE_AGENT_NAME; default: from the command)
  --request-timeout SECONDS         how long an agent may take to open a session, or to take a
                                    setting (ACP_BRIDGE_REQUEST_TIMEOUT; default 60)
  --sleep-after MINUTES             end the agent of a session that was at rest for so long; it
                                    is started again when it is needed; 0: never
                                    (ACP_BRIDGE_SLEEP_AFTER; default 0, built-in agent 60)
  --spare [on|off]                  keep one more process of the agent ready, so that the next
                                    session opens at once; ended when unused for 10 minutes
                                    (ACP_BRIDGE_SPARE; default off)
 the bridge
  --keep DURATION                   when the client ends, go on with what runs and waits for so
                                    long, such as 30m or 8h: another client can load the
                                    session meanwhile (ACP_BRIDGE_KEEP; default: end as well)
  --no-listen                       let no other client of yours join over a socket in the home
                                    folder (ACP_BRIDGE_LISTEN=off)
  --home FOLDER                     where sessions are kept (ACP_BRIDGE_HOME)
  --log-file FILE                   the log; without it, stderr (ACP_BRIDGE_LOG_FILE)
  --log-level debug|info|warning|error
                                    the least that the log has (ACP_BRIDGE_LOG_LEVEL; default
                                    warning on stderr, info in a file)
  --version, --help

The built-in agent takes keys from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...) or
from keys.env in its data folder, where 'acp-bridge key' keeps them; 'python -m agent --help' says
more.

In a session, /queue shows what waits; /queue run and /queue drop decide about prompts that
were held when a bridge was killed; /queue memory about an agent that won't load its session.

exit code: 0 the client ended the session, 2 wrong usage.
"""
