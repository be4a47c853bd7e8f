// An editor on the TypeScript SDK's client: starts the bridge, collects what it is shown, answers
// what it is asked. Nothing here knows JSON-RPC: that is the SDK's.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const { agent: ask, client: serve } = methods;

/** What the test says: {command or url with token, tape, cwd, ...} */
export const given = JSON.parse(process.env.GIVEN ?? "{}");

export class Editor {
  /** The bridge, initialized. */
  static async start(capabilities = {}) {
    const editor = new this();
    const params = { protocolVersion: PROTOCOL_VERSION, clientCapabilities: capabilities };
    editor.agreed = await editor.request(ask.initialize, params);
    assert.equal(editor.agreed.protocolVersion, PROTOCOL_VERSION);
    return editor;
  }

  constructor() {
    this.forget();
    this.waiters = [];
    this.connection = this.app().connect(given.url ? this.far(given) : this.near());
  }

  /** Nothing of what it was shown and asked; what it is asked from now on it cancels. */
  forget() {
    this.updates = [];
    this.permissions = [];
    /** Answers a permission request: its params and its abort signal -> an outcome. */
    this.decide = () => ({ outcome: "cancelled" });
    this.served = [];
  }

  /** The streams of a bridge that is started here. */
  near() {
    this.process = this.launch(given.command);
    return ndJsonStream(Writable.toWeb(this.process.stdin), Readable.toWeb(this.process.stdout));
  }

  /** Those of one that serves elsewhere. */
  far({ url, token }) {
    this.socket = createWebSocketStream(url, {
      WebSocket,
      headers: { Authorization: `Bearer ${token}` },
    });
    return this.socket;
  }

  launch([program, ...args]) {
    return spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
  }

  app() {
    const app = client({ name: "editor" })
      .onNotification(serve.session.update, ({ params }) => this.show(params))
      .onRequest(serve.session.requestPermission, async ({ params, signal }) => {
        this.permissions.push(params);
        this.look();
        return { outcome: await this.decide(params, signal) };
      });
    for (const [method, answer] of Object.entries(this.services())) {
      app.onRequest(method, ({ params }) => {
        this.served.push([method, params]);
        return answer(params);
      });
    }
    return app;
  }

  /** What it does for the agent: a method's params -> its result. */
  services() {
    return {
      [serve.fs.readTextFile]: ({ path }) => ({ content: `content of ${path}` }),
      [serve.fs.writeTextFile]: () => ({}),
      [serve.terminal.create]: () => ({ terminalId: "terminal-1" }),
      [serve.terminal.output]: () => ({ output: "hi\n", truncated: false }),
      [serve.terminal.waitForExit]: () => ({ exitCode: 0 }),
      [serve.terminal.kill]: () => ({}),
      [serve.terminal.release]: () => ({}),
      [serve.elicitation.create]: () => ({ action: "accept", content: { name: "Ada" } }),
    };
  }

  show(params) {
    this.updates.push(params);
    this.look();
  }

  look() {
    for (const waiter of this.waiters.splice(0)) waiter();
  }

  /** Until this holds of what was shown and asked; the test as a whole has a time limit. */
  async until(holds) {
    while (!holds()) await new Promise((resolve) => this.waiters.push(resolve));
  }

  request(method, params, options) {
    return this.connection.agent.request(method, params, options);
  }

  async open() {
    const session = await this.request(ask.session.new, { cwd: given.cwd, mcpServers: [] });
    this.sessionId = session.sessionId;
    return session;
  }

  load(sessionId) {
    this.sessionId = sessionId;
    return this.request(ask.session.load, { sessionId, cwd: given.cwd, mcpServers: [] });
  }

  /** The stop reason, when the prompt is answered. `said`: a text, or content blocks. */
  async prompt(said, options) {
    const prompt = typeof said === "string" ? [{ type: "text", text: said }] : said;
    const params = { sessionId: this.sessionId, prompt };
    return (await this.request(ask.session.prompt, params, options)).stopReason;
  }

  cancel() {
    return this.connection.agent.notify(ask.session.cancel, { sessionId: this.sessionId });
  }

  /** A prompt that goes on for ever: its answer to come, when it has begun to be shown. */
  async promptForEver() {
    const before = this.text().length;
    const answer = this.prompt(given.forever);
    answer.catch(() => undefined); // it may be looked at only after the bridge was killed
    await this.until(() => this.text().length > before);
    return { answer };
  }

  /** All that the agent said in the session. */
  text() {
    return this.updates
      .filter(({ sessionId, update }) =>
        sessionId === this.sessionId && update.sessionUpdate === "agent_message_chunk")
      .map(({ update }) => update.content.text)
      .join("");
  }

  /** All updates of a kind, from the one with this number on. */
  of(kind, from = 0) {
    return this.updates.slice(from).map(({ update }) => update)
      .filter(({ sessionUpdate }) => sessionUpdate === kind);
  }

  kinds() {
    return this.updates.map(({ update }) => update.sessionUpdate);
  }

  /** SIGKILL to the bridge itself, behind the tee. */
  async killBridge() {
    const tape = readFileSync(given.tape, "utf8").trim().split("\n").map((line) => JSON.parse(line));
    process.kill(tape.find(({ tee, agent }) => agent && tee === this.process.pid).agent, "SIGKILL");
    await this.ended();
  }

  /** Closes the bridge's stdin, as an editor does that is closed; the bridge exits with 0. */
  async close() {
    if (this.socket) return this.connection.close();
    this.process.stdin.end();
    await this.ended();
    assert.equal(this.process.exitCode, 0);
  }

  async ended() {
    if (this.process.exitCode === null) await once(this.process, "exit");
    await this.connection.closed;
  }
}
