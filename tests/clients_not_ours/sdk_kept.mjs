// The TypeScript SDK's client on a bridge that is kept: `node sdk_kept.mjs leaves | returns`.
//
// `leaves` opens a session, sends the prompts, tells {"session": id}, and ends its bridge in the way
// that a line on its stdin names; then it tells {"exit": code or signal}. `returns` loads that
// session from another bridge, and goes through what went on meanwhile. Exit 0: it held.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { methods } from "@agentclientprotocol/sdk";
import { Editor, given } from "./sdk_editor.mjs";

const { agent: ask } = methods;
/** Seconds: between the end of the process that was started and Node's `close`. */
const CLOSES = 5;

class Leaving extends Editor {
  /** All three streams are pipes, and `close` waits for the end of each. */
  launch([program, ...args]) {
    const started = spawn(program, args, { stdio: "pipe", detached: given.detached ?? false });
    started.stderr.resume();
    return started;
  }

  services() {
    return {};
  }
}

/** How an editor ends what it has started: the waiter is all that it knows of. */
const ends = {
  group: ({ pid }) => process.kill(-pid, "SIGKILL"),
  tree: ({ pid }) => {
    for (const each of [...below(pid), pid]) process.kill(each, "SIGKILL");
  },
  SIGTERM: (started) => started.kill("SIGTERM"),
  stdin: ({ stdin }) => stdin.end(),
  "close, SIGKILL": async (started, editor) => {
    await editor.request(ask.session.close, { sessionId: editor.sessionId });
    started.kill("SIGKILL");
  },
  "close and SIGKILL": (started, editor) => {
    editor.request(ask.session.close, { sessionId: editor.sessionId }).catch(() => undefined);
    started.kill("SIGKILL");
  },
};

/** The descendants of a process, those of a child before itself. */
function below(pid) {
  const children = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).filter((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      return Number(stat.slice(stat.lastIndexOf(")")).split(" ")[2]) === pid;
    } catch {
      return false; // it has ended
    }
  });
  return children.map(Number).flatMap((child) => [...below(child), child]);
}

function tell(message) {
  console.log(JSON.stringify(message));
}

class Returning extends Editor {
  notices = [];

  /** What the bridge itself says is none of the agent's words. */
  show(params) {
    if (params._meta?.acp_bridge?.notice) this.notices.push(params.update.content.text);
    else super.show(params);
  }
}

async function leaves() {
  const editor = await Leaving.start();
  editor.decide = () => new Promise(() => undefined);
  await editor.open();
  for (const prompt of given.prompts) editor.prompt(prompt).catch(() => undefined);
  tell({ session: editor.sessionId });
  const [way] = await once(createInterface({ input: process.stdin }), "line");
  const started = editor.process;
  const exit = once(started, "exit");
  const close = once(started, "close");
  await ends[way](started, editor);
  const [code, signal] = await exit;
  const late = setTimeout(() => assert.fail("the streams are open"), 1000 * CLOSES);
  await close;
  clearTimeout(late);
  tell({ exit: code ?? signal });
  process.exit();
}

async function returns() {
  const editor = await Returning.start();
  editor.decide = ({ options }) =>
    ({ outcome: "selected", optionId: options.find(({ kind }) => kind === "allow_once").optionId });
  await editor.load(given.session);
  await editor.until(() => editor.text().includes(given.until));
  assert.equal(editor.permissions.length, 1, "the open permission is asked again, once");
  // The turn is of one who is gone: an editor shows Stop only while a prompt of its own is open.
  const carrier = editor.prompt("/queue wait");
  await editor.cancel();
  assert.equal(await carrier, "cancelled");
  assert.equal(await editor.prompt(given.last), "end_turn");
  tell({ text: editor.text(), asked: asked(editor), notices: editor.notices });
  await editor.close();
}

/** The user's prompts that were shown. */
function asked(editor) {
  return editor.of("user_message_chunk").map(({ content }) => content.text);
}

await { leaves, returns }[process.argv[2]]();
