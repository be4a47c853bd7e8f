// Scenarios by their names, each in a new session: `node sdk_scenarios.mjs cancel-mid-stream ...`.
// They have one bridge, or one connection to a server that is elsewhere. Exit 0: they held.

import assert from "node:assert/strict";
import { methods } from "@agentclientprotocol/sdk";
import { Editor, given } from "./sdk_editor.mjs";
import { play } from "./sdk_play.mjs";

const { agent: ask } = methods;
const ALL = {
  fs: { readTextFile: true, writeTextFile: true },
  terminal: true,
  elicitation: { form: {} },
};

const scenarios = {
  async "three-prompts-at-once"(editor) {
    await editor.open();
    const answers = ["A", "B", "C"].map((tag) => editor.prompt(given.words[tag]));
    assert.deepEqual(await Promise.all(answers), ["end_turn", "end_turn", "end_turn"]);
    // One turn after the other, in the order of sending, nothing lost between them.
    const tags = [...editor.text().matchAll(/([ABC])\d+/g)].map((match) => match[1]).join("");
    assert.equal(tags, "A".repeat(20) + "B".repeat(20) + "C".repeat(20));
  },

  async "cancel-mid-stream"(editor) {
    await editor.open();
    const { answer } = await editor.promptForEver();
    const queued = editor.prompt(given.words.A);
    await editor.cancel();
    assert.equal(await answer, "cancelled");
    assert.equal(await queued, "end_turn");
    assert.match(editor.text(), /A19/);
  },

  async "cancel-of-one-request"(editor) {
    await editor.open();
    const { answer } = await editor.promptForEver();
    const given_up = new AbortController();
    const queued = editor.prompt(given.words.A, { cancellationSignal: given_up.signal });
    const kept = editor.prompt(given.words.B);
    given_up.abort();
    assert.equal(await queued, "cancelled");
    await editor.cancel();
    assert.equal(await answer, "cancelled");
    assert.equal(await kept, "end_turn");
    assert.match(editor.text(), /B19/);
    assert.doesNotMatch(editor.text(), /A\d/);
  },

  async "permission-round-trip"(editor) {
    await editor.open();
    const choose = (kind) => ({ options }) =>
      ({ outcome: "selected", optionId: options.find((option) => option.kind === kind).optionId });
    for (const kind of ["allow_once", "reject_once"]) {
      editor.decide = choose(kind);
      assert.equal(await editor.prompt(given.permission), "end_turn");
    }
    assert.equal(editor.permissions.length, 2);
    assert.ok(editor.permissions.every(({ sessionId }) => sessionId === editor.sessionId));
    for (const word of given.decided) assert.ok(editor.text().includes(word), editor.text());

    let withdrawn = false;
    editor.decide = (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => {
      withdrawn = true;
      resolve({ outcome: "cancelled" });
    }));
    const answer = editor.prompt(given.permission);
    await editor.until(() => editor.permissions.length === 3);
    await editor.cancel();
    assert.equal(await answer, "cancelled");
    assert.ok(withdrawn, "the open request was called back");
  },

  async "your-rules"(editor) {
    await editor.open();
    for (const [command, decision] of given.decisions) {
      const [asked, since] = [editor.permissions.length, editor.updates.length];
      const rawInput = { command };
      const toolCall = { toolCallId: `c${asked}-${since}`, title: command, kind: "execute", rawInput };
      const options = ["allow", "reject"]
        .map((name) => ({ optionId: name, name, kind: `${name}_once` }));
      editor.decide = () => ({ outcome: "selected", optionId: "allow" });
      const words = `ask session/request_permission ${JSON.stringify({ toolCall, options })}`;
      assert.equal(await editor.prompt(words), "end_turn");
      assert.equal(editor.permissions.length - asked, decision === "ask" ? 1 : 0, command);
      const said = editor.of("agent_message_chunk", since).map(({ content }) => content.text).join("");
      assert.ok(said.includes(decision === "deny" ? "reject" : "allow"), `${command}: ${said}`);
    }
  },

  async "mode-and-options"(editor) {
    const session = await editor.open();
    const { sessionId } = editor;
    assert.ok(session.modes.availableModes.some(({ id }) => id === given.mode));
    await editor.request(ask.session.setMode, { sessionId, modeId: given.mode });
    const { configOptions } = await editor.request(ask.session.setConfigOption,
      { sessionId, ...given.option });
    const changed = configOptions.find(({ id }) => id === given.option.configId);
    assert.equal(changed.currentValue, given.option.value);
    await assert.rejects(
      editor.request(ask.session.setMode, { sessionId, modeId: "no such mode" }));
    assert.equal(await editor.prompt(given.words.A), "end_turn");
  },

  async "load-after-the-bridge-was-killed"(first) {
    await first.open();
    const { sessionId } = first;
    assert.equal(await first.prompt(given.words.A), "end_turn");
    const { answer } = await first.promptForEver();
    await first.killBridge();
    await assert.rejects(answer);
    const shown = first.text();

    const second = await Editor.start();
    const listed = await second.request(ask.session.list, { cwd: given.cwd });
    assert.ok(listed.sessions.some((row) => row.sessionId === sessionId));
    await second.load(sessionId);
    assert.ok(second.text().startsWith(shown), "what was shown is shown again");
    assert.ok(second.kinds().includes("user_message_chunk"));
    assert.equal(await second.prompt(given.words.B), "end_turn");
    assert.match(second.text(), /B19/);

    await second.request(ask.session.close, { sessionId });
    await assert.rejects(second.prompt(given.words.C), { code: -32002 });
    const before = second.updates.length;
    await second.request(ask.session.resume, { sessionId, cwd: given.cwd, mcpServers: [] });
    assert.ok(!second.kinds().slice(before).some((kind) => kind.endsWith("_message_chunk")));
    await second.request(ask.session.delete, { sessionId });
    const left = await second.request(ask.session.list, { cwd: given.cwd });
    assert.ok(!left.sessions.some((row) => row.sessionId === sessionId));
    await assert.rejects(second.load(sessionId), { code: -32002 });
    await second.close();
  },

  async "an-agent-that-ignores-cancel"(editor) {
    await editor.open();
    assert.equal(await editor.prompt("say one"), "end_turn");
    const { answer } = await editor.promptForEver();
    const next = editor.prompt("history");
    await editor.cancel();
    assert.equal(await answer, "cancelled");
    assert.equal(await next, "end_turn");
    assert.ok(editor.text().endsWith(`say one | ${given.forever}`), "it remembers");
  },

  async "files-terminals-and-questions"(editor) {
    await editor.open();
    const terminal = "terminal echo hi; terminal-output; terminal-kill; terminal-wait; terminal-release";
    assert.equal(await editor.prompt(`write /w/f; read /w/f; elicit; ${terminal}`), "end_turn");
    assert.ok(editor.text().startsWith("[write ok][read content of /w/f][elicit accept]"));
    assert.ok(editor.text().endsWith("[kill ok][wait_for_exit ok][release ok]"), editor.text());
    assert.equal(editor.served.length, 8);
    assert.ok(editor.served.every(([, params]) => params.sessionId === editor.sessionId));
    const params = { sessionId: editor.sessionId, deep: [{ er: null }] };
    const { echo } = await editor.request("_fixture/echo", params);
    assert.deepEqual(echo.deep, params.deep);
  },

  async "authentication"(editor) {
    assert.deepEqual(editor.agreed.authMethods.map(({ id }) => id), ["token", "browser"]);
    await assert.rejects(editor.open(), { code: -32000 });
    await editor.request(ask.authenticate, { methodId: "browser" });
    await editor.open();
    assert.equal(await editor.prompt("say one"), "end_turn");
    await editor.request(ask.logout, {});
  },
};

await play(scenarios, () => Editor.start(ALL));
