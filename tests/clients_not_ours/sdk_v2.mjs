// Scenarios on the TypeScript SDK's client of version 2, by their names, each in a new session of one
// bridge: `node sdk_v2.mjs cancel permission`. Exit 0: they held. Nothing here knows JSON-RPC: that
// is the SDK's.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk/experimental/v2";
import { play } from "./sdk_play.mjs";

const { agent: ask, client: serve } = methods;
const given = JSON.parse(process.env.GIVEN ?? "{}");

class Editor {
  static async start() {
    const editor = new this();
    editor.agreed = await editor.request(ask.initialize, {
      protocolVersion: PROTOCOL_VERSION,
      info: { name: "editor", version: "1" },
      capabilities: { elicitation: { form: {} } },
    });
    assert.equal(editor.agreed.protocolVersion, 2);
    return editor;
  }

  constructor() {
    this.forget();
    this.waiters = [];
    const [program, ...args] = given.command;
    this.process = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    const streams = [Writable.toWeb(this.process.stdin), Readable.toWeb(this.process.stdout)];
    const app = client({ name: "editor" })
      .onNotification(serve.session.update, ({ params }) => this.show(params))
      .onRequest(serve.elicitation.create, () => ({ action: "accept", content: { name: "Ada" } }))
      .onRequest(serve.session.requestPermission, async ({ params, signal }) => {
        this.permissions.push(params);
        this.look();
        return { outcome: await this.decide(params, signal) };
      });
    this.connection = app.connect(ndJsonStream(...streams));
  }

  /** Nothing of what it was shown and asked; what it is asked from now on it cancels. */
  forget() {
    this.updates = [];
    this.permissions = [];
    this.decide = () => ({ outcome: "cancelled" });
  }

  show({ sessionId, update }) {
    if (sessionId === this.sessionId) this.updates.push(update);
    this.look();
  }

  look() {
    for (const waiter of this.waiters.splice(0)) waiter();
  }

  async until(holds) {
    while (!holds()) await new Promise((resolve) => this.waiters.push(resolve));
  }

  request(method, params, options) {
    return this.connection.agent.request(method, params, options);
  }

  async open() {
    this.opened = await this.request(ask.session.new, { cwd: given.cwd });
    this.sessionId = this.opened.sessionId;
  }

  resume(sessionId) {
    this.sessionId = sessionId;
    const replayFrom = { type: "start" };
    return this.request(ask.session.resume, { sessionId, cwd: given.cwd, replayFrom });
  }

  /** Resolves when the prompt's turn has begun. */
  prompt(text, more = {}, options) {
    const prompt = [{ type: "text", text }];
    return this.request(ask.session.prompt, { sessionId: this.sessionId, prompt, ...more }, options);
  }

  /** The stop reasons of the turns that have ended. */
  ends() {
    return this.of("state_update").flatMap(({ stopReason }) => (stopReason ? [stopReason] : []));
  }

  /** A prompt and the end of its turn. */
  async run(text) {
    const before = this.ends().length;
    await this.prompt(text);
    await this.until(() => this.ends().length > before);
    return this.ends().at(-1);
  }

  async runForEver() {
    const before = this.text().length;
    await this.prompt(given.forever);
    await this.until(() => this.text().length > before);
  }

  cancel() {
    return this.connection.agent.notify(ask.session.cancel, { sessionId: this.sessionId });
  }

  of(kind) {
    return this.updates.filter(({ sessionUpdate }) => sessionUpdate === kind);
  }

  text() {
    return this.of("agent_message_chunk").map(({ content }) => content.text).join("");
  }

  async killBridge() {
    const tape = readFileSync(given.tape, "utf8").trim().split("\n").map((line) => JSON.parse(line));
    process.kill(tape.find(({ tee, agent }) => agent && tee === this.process.pid).agent, "SIGKILL");
    await this.ended();
  }

  async close() {
    this.process.stdin.end();
    await this.ended();
    assert.equal(this.process.exitCode, 0);
  }

  async ended() {
    if (this.process.exitCode === null) await once(this.process, "exit");
    await this.connection.closed;
  }
}

const scenarios = {
  async "three-prompts-at-once"(editor) {
    await editor.open();
    const answers = ["A", "B", "C"].map((tag) => editor.prompt(given.words[tag]));
    const ids = (await Promise.all(answers)).map(({ messageId }) => messageId);
    await editor.until(() => editor.ends().length === 3);
    assert.deepEqual(editor.ends(), ["end_turn", "end_turn", "end_turn"]);
    assert.deepEqual(editor.of("user_message").map(({ messageId }) => messageId), ids);
    const tags = [...editor.text().matchAll(/([ABC])\d+/g)].map((match) => match[1]).join("");
    assert.equal(tags, "A".repeat(20) + "B".repeat(20) + "C".repeat(20));
  },

  async cancel(editor) {
    await editor.open();
    await editor.runForEver();
    const behind = editor.prompt(given.words.A);
    await editor.cancel();
    await assert.rejects(behind, { code: -32800 });
    await editor.until(() => editor.ends().length === 1);
    assert.deepEqual(editor.ends(), ["cancelled"]);
    assert.equal(await editor.run(given.words.B), "end_turn");
    assert.match(editor.text(), /B19/);
    assert.doesNotMatch(editor.text(), /A\d/);
  },

  async "cancel-of-one-request"(editor) {
    await editor.open();
    await editor.runForEver();
    const givenUp = new AbortController();
    const behind = editor.prompt(given.words.A, {}, { cancellationSignal: givenUp.signal });
    const kept = editor.prompt(given.words.B);
    givenUp.abort();
    await assert.rejects(behind, { code: -32800 });
    await editor.request("_acp_bridge/cancel", { sessionId: editor.sessionId });
    await kept;
    await editor.until(() => editor.ends().length === 2);
    assert.deepEqual(editor.ends(), ["cancelled", "end_turn"]);
  },

  async permission(editor) {
    await editor.open();
    const choose = (kind) => ({ options }) =>
      ({ outcome: "selected", optionId: options.find((option) => option.kind === kind).optionId });
    for (const kind of ["allow_once", "reject_once"]) {
      editor.decide = choose(kind);
      assert.equal(await editor.run(given.permission), "end_turn");
    }
    assert.equal(editor.permissions.length, 2);
    assert.ok(editor.permissions.every(({ title, subject }) => title && subject.toolCall.toolCallId));
    for (const word of given.decided) assert.ok(editor.text().includes(word), editor.text());
    assert.ok(editor.of("state_update").some(({ state }) => state === "requires_action"));
  },

  async options(editor) {
    await editor.open();
    const { sessionId, opened } = editor;
    const mode = opened.configOptions.find(({ category }) => category === "mode");
    assert.ok(mode.options.some(({ value }) => value === given.mode));
    const chosen = { configId: mode.configId, type: "id", value: given.mode };
    const told = await editor.request(ask.session.setConfigOption, { sessionId, ...chosen });
    const after = told.configOptions.find(({ configId }) => configId === mode.configId);
    assert.equal(after.currentValue, given.mode);
    await assert.rejects(
      editor.request(ask.session.setConfigOption, { sessionId, ...chosen, value: "no such mode" }));
    assert.equal(await editor.run(given.words.A), "end_turn");
  },

  async "load-after-the-bridge-was-killed"(first) {
    await first.open();
    const { sessionId } = first;
    assert.equal(await first.run(given.words.A), "end_turn");
    await first.runForEver();
    await first.killBridge();
    const shown = first.text();

    const second = await Editor.start();
    const listed = await second.request(ask.session.list, { cwd: given.cwd });
    assert.ok(listed.sessions.some((row) => row.sessionId === sessionId));
    await second.resume(sessionId);
    await second.until(() => second.of("state_update").length);
    assert.ok(second.text().startsWith(shown), "what was shown is shown again");
    const kinds = second.updates.map(({ sessionUpdate }) => sessionUpdate);
    assert.ok(kinds.indexOf("replay_complete") < kinds.lastIndexOf("state_update"));
    assert.equal(kinds.filter((kind) => kind === "replay_complete").length, 1);
    assert.deepEqual(second.ends(), []);
    assert.equal(await second.run(given.words.B), "end_turn");

    await second.request(ask.session.close, { sessionId });
    await second.request(ask.session.close, { sessionId });
    await assert.rejects(second.prompt(given.words.C), { code: -32002 });
    await second.request(ask.session.delete, { sessionId });
    const left = await second.request(ask.session.list, { cwd: given.cwd });
    assert.ok(!left.sessions.some((row) => row.sessionId === sessionId));
    await second.close();
  },

  async "an-agent-that-ignores-cancel"(editor) {
    await editor.open();
    assert.equal(await editor.run("say one"), "end_turn");
    await editor.runForEver();
    await editor.cancel();
    await editor.until(() => editor.ends().length === 2);
    assert.equal(editor.ends()[1], "cancelled");
    assert.equal(await editor.run("history"), "end_turn");
    assert.ok(editor.text().endsWith(`say one | ${given.forever}`), "it remembers");
  },

  async "a-session-of-another-bridge"(first) {
    await first.open();
    assert.equal(await first.run(given.words.A), "end_turn");
    await first.runForEver();
    const second = await Editor.start();
    await second.resume(first.sessionId);
    await second.until(() => second.of("state_update").length);
    assert.equal(second.of("state_update").at(-1).state, "running");
    await second.until(() => second.text().startsWith(first.text().slice(0, 40)));
    await first.cancel();
    await first.until(() => first.ends().length === 2);
    await second.until(() => second.ends().length === 1);
    assert.deepEqual(second.ends(), ["cancelled"]);
    const { messageId } = await second.prompt(given.words.B);
    await second.until(() => second.ends().length === 2);
    await first.until(() => first.ends().length === 3);
    assert.equal(first.ends().at(-1), "end_turn");
    assert.match(second.text(), /B19/);
    assert.match(first.text(), /B19/);
    assert.ok(second.of("user_message").some((said) => said.messageId === messageId));
    await second.close();
  },

  async "an-agent-that-dies"(editor) {
    await editor.open();
    assert.equal(await editor.run("say one"), "end_turn");
    await editor.prompt("exit 3");
    await editor.until(() => editor.ends().length === 2);
    assert.equal(editor.ends()[1], "error");
    assert.equal(await editor.run("say two"), "end_turn");
  },
};

await play(scenarios, () => Editor.start());
