// An editor on the TypeScript SDK's client that has a project: files on the disk, terminals that
// run, tool cards put together from their updates. It refuses updates that no editor could show.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, isAbsolute } from "node:path";
import { methods, RequestError } from "@agentclientprotocol/sdk";
import { Editor } from "./sdk_editor.mjs";

const { client: serve } = methods;
const ENDED = ["completed", "failed"];

export class Workshop extends Editor {
  /** id -> {process, output, released} */
  terminals = new Map();
  /** tool call id -> the call with its updates */
  cards = new Map();

  services() {
    return {
      ...super.services(),
      [serve.fs.readTextFile]: async ({ path }) => ({ content: await this.read(path) }),
      [serve.fs.writeTextFile]: async ({ path, content }) => {
        assert.ok(isAbsolute(path));
        await mkdir(dirname(path), { recursive: true });
        await writeFile(path, content);
        return {};
      },
      [serve.terminal.create]: (params) => ({ terminalId: this.run(params) }),
      [serve.terminal.output]: ({ terminalId }) => {
        const { output, process } = this.terminal(terminalId);
        const exitStatus = status(process);
        return { output, truncated: false, ...(exitStatus && { exitStatus }) };
      },
      [serve.terminal.waitForExit]: async ({ terminalId }) => {
        const { process } = this.terminal(terminalId);
        if (!status(process)) await once(process, "close");
        return status(process);
      },
      [serve.terminal.kill]: ({ terminalId }) => {
        kill(this.terminal(terminalId).process);
        return {};
      },
      [serve.terminal.release]: ({ terminalId }) => {
        const terminal = this.terminal(terminalId);
        kill(terminal.process);
        terminal.released = true;
        return {};
      },
    };
  }

  async read(path) {
    assert.ok(isAbsolute(path));
    try {
      return await readFile(path, "utf8");
    } catch {
      throw RequestError.resourceNotFound(path);
    }
  }

  run({ command, args, cwd, env }) {
    const more = Object.fromEntries(env.map(({ name, value }) => [name, value]));
    const child = spawn(command, args, {
      cwd, env: { ...process.env, ...more }, detached: true, stdio: ["ignore", "pipe", "pipe"],
    });
    const terminal = { process: child, output: "", released: false };
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => {
        terminal.output += data;
        this.look();
      });
    }
    const id = `terminal-${this.terminals.size + 1}`;
    this.terminals.set(id, terminal);
    return id;
  }

  terminal(id) {
    const terminal = this.terminals.get(id);
    assert.ok(terminal && !terminal.released, `there is no terminal ${id}`);
    return terminal;
  }

  show(params) {
    this.check(params.update);
    super.show(params);
  }

  /** What a schema can't say. What fails here is an unhandled rejection: the scenario fails. */
  check(update) {
    const { sessionUpdate: kind } = update;
    if (kind === "tool_call" || kind === "tool_call_update") this.checkCard(update);
    if (kind === "config_option_update") checkOptions(update.configOptions);
    if (kind === "usage_update") assert.ok(update.used <= update.size);
  }

  checkCard({ sessionUpdate, toolCallId: id, ...told }) {
    const known = this.cards.get(id);
    if (sessionUpdate === "tool_call") assert.ok(!known, `${id} is opened twice`);
    else assert.ok(known && !ENDED.includes(known.status), `${id} is not open`);
    for (const { path } of told.locations ?? []) assert.ok(isAbsolute(path), path);
    for (const item of told.content ?? []) {
      if (item.type === "diff") assert.ok(isAbsolute(item.path), item.path);
      if (item.type === "terminal") this.terminal(item.terminalId);
    }
    this.cards.set(id, { ...known, ...told });
  }

  /** The cards in the order of their opening, from the one with this number on. */
  calls(from = 0) {
    return [...this.cards.values()].slice(from);
  }
}

/** Each has a current value that is among its options. */
export function checkOptions(options) {
  for (const { currentValue, options: choices } of options) {
    assert.ok(choices.some(({ value }) => value === currentValue), currentValue);
  }
}

function status({ exitCode, signalCode }) {
  return exitCode === null && signalCode === null ? null : { exitCode, signal: signalCode };
}

function kill(process) {
  if (!status(process)) globalThis.process.kill(-process.pid, "SIGKILL");
}
