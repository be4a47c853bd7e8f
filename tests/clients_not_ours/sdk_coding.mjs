// One conversation with the built-in agent, in which everything happens that its user can meet. It
// follows fixtures/dialogues/coding.txt. Exit 0: it held.

import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { methods } from "@agentclientprotocol/sdk";
import { given } from "./sdk_editor.mjs";
import { checkOptions, Workshop } from "./sdk_workshop.mjs";

const { agent: ask } = methods;
const ABLE = { fs: { readTextFile: true, writeTextFile: true }, terminal: true };
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
const file = (name) => join(given.cwd, name);

/** Answers the permission requests with these kinds, one after the other. */
function answering(editor, ...kinds) {
  const before = editor.permissions.length;
  editor.decide = ({ options }) => {
    const kind = kinds[editor.permissions.length - before - 1] ?? assert.fail("asked once more");
    const { optionId } = options.find((option) => option.kind === kind);
    return { outcome: "selected", optionId };
  };
  return () => assert.equal(editor.permissions.length - before, kinds.length, "asked too seldom");
}

/** The prompt's end; the updates and cards that it brought. */
async function turn(editor, said, ...kinds) {
  const [updates, cards] = [editor.updates.length, editor.cards.size];
  const asked = answering(editor, ...kinds);
  const stop = await editor.prompt(said);
  asked();
  const text = editor.of("agent_message_chunk", updates).map(({ content }) => content.text).join("");
  return { stop, text, calls: editor.calls(cards), updates };
}

const stages = {
  async "it opens with modes, options and commands"(editor, opened) {
    assert.deepEqual(opened.modes.availableModes.map(({ id }) => id), ["ask", "plan", "edit", "auto"]);
    checkOptions(opened.configOptions);
    const categories = opened.configOptions.map(({ category }) => category);
    assert.deepEqual(categories, ["model", "mode"]);
    await editor.until(() => editor.kinds().includes("available_commands_update"));
    const [{ availableCommands }] = editor.of("available_commands_update");
    assert.deepEqual(availableCommands.map(({ name }) => name), given.commands);
  },

  async "every tool is used, what changes something after a permission"(editor) {
    const done = await turn(editor, "Please mend it", "allow_once", "allow_always", "allow_once");
    assert.equal(done.stop, "end_turn");
    assert.match(done.text, /I look around\..*Now it says hello\./s);
    const thought = editor.of("agent_thought_chunk").map(({ content }) => content.text).join("");
    assert.equal(thought, "First I look around.");
    const kinds = ["search", "search", "read", "edit", "edit", "execute"]; // a plan has no card
    assert.deepEqual(done.calls.map(({ kind }) => kind), kinds);
    assert.ok(done.calls.every(({ status, rawInput, rawOutput }) =>
      status === "completed" && rawInput && rawOutput));
    const [, search, read, edit, write, shell] = done.calls;
    assert.match(search.content[0].content.text, /greeting\.py/);
    assert.deepEqual(read.locations, [{ path: file("greeting.py") }]);
    const old = "print('helo')\n";
    const diff = { type: "diff", path: file("greeting.py"), oldText: old, newText: "print('hello')\n" };
    assert.deepEqual(edit.content, [diff]);
    assert.equal(write.content[0].oldText ?? null, null);
    const [terminalId] = editor.terminals.keys();
    assert.deepEqual(shell.content, [{ type: "terminal", terminalId }]);
    assert.equal(shell.rawOutput.exitCode, 0);
    assert.ok(editor.terminals.get(terminalId).released);
    assert.equal(readFileSync(file("greeting.py"), "utf8"), diff.newText);
  },

  async "the user saw the diffs before they allowed them, and the plan, the window and a title"(editor) {
    const [edit, write] = editor.permissions;
    assert.equal(edit.toolCall.content[0].type, "diff");
    assert.match(write.options.find(({ kind }) => kind === "allow_always").name, /docs/);
    const plans = editor.of("plan").map(({ entries }) => entries.map(({ status }) => status));
    assert.deepEqual(plans, [["in_progress", "pending"], ["completed", "completed"]]);
    const usage = editor.of("usage_update");
    assert.equal(usage.length, 5);
    assert.ok(usage.every(({ used, size }) => size === 50000 && used > 0));
    await editor.until(() => editor.of("session_info_update").some(({ title }) => title));
  },

  async "always holds for its folder, and a rejection ends the answer"(editor) {
    const note = await turn(editor, "Write a note");
    assert.match(note.text, /docs\/note\.txt/);
    const refused = await turn(editor, "Now remove it", "reject_once");
    assert.deepEqual(refused.calls.map(({ status }) => status), ["failed", "failed"]);
    await turn(editor, "Now remove it", "reject_always");
    await turn(editor, "Now remove it");
    assert.ok(existsSync(file("docs/note.txt")));
  },

  async "modes and options change what is asked, and each is told of the other"(editor) {
    const { sessionId } = editor;
    await editor.request(ask.session.setMode, { sessionId, modeId: "plan" });
    await editor.until(() => editor.of("config_option_update").some(({ configOptions }) =>
      configOptions.find(({ id }) => id === "mode").currentValue === "plan"));
    const planned = await turn(editor, "Write a note");
    assert.equal(planned.calls[0].status, "failed");
    for (const [configId, value] of [["mode", "auto"], ["model", "demo"], ["model", given.model]]) {
      const params = { sessionId, configId, value };
      const { configOptions } = await editor.request(ask.session.setConfigOption, params);
      checkOptions(configOptions);
      assert.equal(configOptions.find(({ id }) => id === configId).currentValue, value);
    }
    await editor.until(() => editor.of("current_mode_update").some(({ currentModeId }) =>
      currentModeId === "auto"));
    const failed = await turn(editor, "Let it fail");
    assert.deepEqual(failed.calls.map(({ status }) => status), Array(4).fill("failed"));
    assert.equal(failed.stop, "end_turn");
  },

  async "images and files are part of a prompt, and of a card"(editor) {
    writeFileSync(file("picture.png"), Buffer.from(PIXEL, "base64"));
    const uri = `file://${file("greeting.py")}`;
    const { calls, text } = await turn(editor, [
      { type: "text", text: "What is in this picture?" },
      { type: "image", data: PIXEL, mimeType: "image/png" },
      { type: "resource_link", name: "greeting.py", uri },
      { type: "resource", resource: { uri, text: "print()\n", mimeType: "text/x-python" } },
    ]);
    assert.equal(text, "I see it.");
    const [{ content: image }] = calls[0].content;
    assert.deepEqual(image, { type: "image", data: PIXEL, mimeType: "image/png" });
  },

  async "a cancel kills the command in the terminal, and the session goes on"(editor) {
    const [cards, terminals] = [editor.cards.size, editor.terminals.size];
    const answer = editor.prompt("Now watch it");
    const begun = () => [...editor.terminals.values()].slice(terminals)
      .find(({ output }) => output === "begun\n");
    await editor.until(begun);
    const terminal = begun();
    await editor.cancel();
    assert.equal(await answer, "cancelled");
    assert.ok(terminal.released);
    if (!terminal.process.signalCode) await new Promise((end) => terminal.process.on("close", end));
    assert.equal(terminal.process.signalCode, "SIGKILL");
    assert.equal(editor.calls(cards)[0].status, "failed");
  },

  async "/compact makes a summary, and the answers go on from it"(editor) {
    const before = editor.of("usage_update").at(-1);
    const { stop, text, updates } = await turn(editor, "/compact");
    assert.equal(stop, "end_turn");
    assert.match(text, /was summarised/);
    assert.equal(editor.of("usage_update", updates).length, 1);
    const next = await turn(editor, "Write a note");
    assert.match(next.text, /docs\/note\.txt/);
    const [after] = editor.of("usage_update", next.updates);
    assert.ok(after.used < before.used, `${after.used} tokens, before ${before.used}`);
  },
};

/** What stays of a card when its session is loaded: no terminal, which is gone by then. */
function kept({ content = [], rawInput, title, kind, status, locations }) {
  const files = content.filter(({ type }) => type === "diff");
  return { files, rawInput, title, kind, status, locations };
}

async function loadAgain(first) {
  const { sessionId } = first;
  const { answer } = await first.promptForEver();
  await first.killBridge();
  await assert.rejects(answer);
  const second = await Workshop.start(ABLE);
  const loaded = await second.load(sessionId);
  assert.equal(loaded.modes.currentModeId, given.mode, "what the user chose is kept");
  checkOptions(loaded.configOptions);
  assert.ok(second.calls().every(({ status, content }) =>
    ["completed", "failed"].includes(status) && content.every(({ type }) => type !== "terminal")));
  assert.deepEqual(second.calls().map(kept), first.calls().map(kept));
  assert.deepEqual(second.of("plan").at(-1), first.of("plan").at(-1));
  const blocks = second.of("user_message_chunk").map(({ content }) => content.type);
  assert.ok(["text", "image", "resource_link", "resource"].every((type) => blocks.includes(type)));
  const [said, again] = [first, second].map((editor) => editor.text().match(/X\d+@\d+/g));
  assert.deepEqual(again.slice(0, said.length), said);
  await second.request(ask.session.setMode, { sessionId, modeId: "ask" });
  rmSync(file("docs/note.txt"));
  await second.until(() => second.of("usage_update").length > 0);
  // What was always allowed is kept too, so nothing is asked.
  assert.match((await turn(second, "Write a note")).text, /docs\/note\.txt/);
  await second.close();
}

writeFileSync(file("greeting.py"), "print('helo')\n");
const editor = await Workshop.start(ABLE);
const opened = await editor.open();
for (const [name, stage] of Object.entries(stages)) {
  console.log(name);
  await stage(editor, opened);
}
console.log("what was shown is shown again after a kill");
await loadAgain(editor);
