"""The help of the commands on live sessions."""

from typing import Final

_HOME: Final = "  --home FOLDER    where sessions are kept (ACP_BRIDGE_HOME)\n"
_ID: Final = "ID is the session's id; its first characters are enough."

PS: Final = f"""\
usage: acp-bridge ps [--json]

List the sessions that are live: those that an editor, 'acp-bridge chat' or 'acp-bridge run' has
open now. Shown are the state and for how long, how many prompts wait, and how many clients have the
session. What an agent asks stands below, with the command that answers.

  acp-bridge ps
  watch -n 2 acp-bridge ps

  --json           one line of JSON for each session, and for each bridge that does not answer
{_HOME}\
  --help           show this

exit code: 0 done, 2 wrong usage.
"""
SEND: Final = f"""\
usage: acp-bridge send ID "PROMPT" [--wait] [--interrupt] [--json]

Put a prompt onto the queue of a session; it is done when the prompt is on the disk. It runs when
those before it have ended, and it runs though this command has left. PROMPT may be - to be read
from stdin. {_ID}

To a session that is not live, the prompt is recorded and held: nothing runs it until somebody opens
the session and says /queue run.

  acp-bridge send 3f2a "When you are done, update the changelog"
  acp-bridge send --wait 3f2a - < prompt.txt

  --wait           stay, and write the answer to stdout, as 'acp-bridge run' does
  --interrupt      cancel the turn that runs; this prompt is next
  --json           with --wait: each update as one line of JSON, the outcome as the last one
{_HOME}\
  --help           show this

exit code: 0 the prompt is in the queue, or held; 1 no such session, or nobody answers; 2 wrong
usage; 130 interrupted: the prompt stays in the queue. With --wait those of 'acp-bridge run'.
"""
CANCEL: Final = f"""\
usage: acp-bridge cancel ID

Cancel the turn that runs in a session, whoever asked for it. Prompts that wait run after it.
{_ID}

  acp-bridge cancel 3f2a

{_HOME}\
  --help           show this

exit code: 0 it was cancelled, 1 nothing runs there, no such session, or nobody answers, 2 wrong
usage.
"""
APPROVE: Final = f"""\
usage: acp-bridge approve ID [--option OPTION]

Show what the agent asks for in a session, and allow it, once, after a yes. The answer is for what
was shown alone: if it was settled elsewhere meanwhile, this is said, and nothing else is answered.
An agent can't use this command. {_ID}

  acp-bridge approve 3f2a
  acp-bridge approve 3f2a --option allow_once

  --option OPTION  choose this option, by its id, its kind or its name, without a yes
{_HOME}\
  --help           show this

exit code: 0 allowed, 1 not: nothing is asked, it was settled elsewhere, the answer was no, no such
session, or nobody answers, 2 wrong usage, 130 interrupted.
"""
DENY: Final = f"""\
usage: acp-bridge deny ID [--option OPTION]

Show what the agent asks for in a session, and deny it, once.
{_ID}

  acp-bridge deny 3f2a

  --option OPTION  choose this option, by its id, its kind or its name
{_HOME}\
  --help           show this

exit code: 0 denied, 1 not: nothing is asked, it was settled elsewhere, no such session, or nobody
answers, 2 wrong usage, 130 interrupted.
"""
CLOSE: Final = f"""\
usage: acp-bridge close ID

Close a live session for all clients that have it: its turn is cancelled and its agent ends. It is
kept, and can be loaded again. {_ID}

  acp-bridge close 3f2a

{_HOME}\
  --help           show this

exit code: 0 closed, 1 no such live session, or nobody answers, 2 wrong usage.
"""
DELETE: Final = f"""\
usage: acp-bridge delete ID [-- COMMAND ARGS...]

Delete a session for good, here and at its agent, also one that is live.
One that is not live needs its agent for that: its command stands after --, but for the built-in
agent. {_ID}

  acp-bridge delete 3f2a
  acp-bridge delete 3f2a -- codex-acp

{_HOME}\
  --help           show this

exit code: 0 deleted, 1 not: no such session, or nobody answers, 2 wrong usage.
"""
