// Two editors have one session of a bridge that serves elsewhere; one of them leaves and comes back.
// Exit 0: it held.

import assert from "node:assert/strict";
import { methods } from "@agentclientprotocol/sdk";
import { Editor } from "./sdk_editor.mjs";

const { agent: ask } = methods;

const first = await Editor.start();
await first.open();
assert.equal(await first.prompt("say one"), "end_turn");
assert.equal(first.text(), "one");

const second = await Editor.start();
await second.load(first.sessionId);
assert.equal(second.text(), "one");
second.decide = ({ options }) =>
  ({ outcome: "selected", optionId: options.find(({ kind }) => kind === "allow_once").optionId });
first.decide = () => new Promise(() => undefined); // nobody sits there
assert.equal(await first.prompt("permission; say two"), "end_turn");
await second.until(() => second.text().endsWith("two"));
assert.equal(second.permissions.length, 1);

first.connection.close();
const again = await Editor.start();
const { sessions } = await again.request(ask.session.list, {});
assert.deepEqual(sessions.map(({ sessionId }) => sessionId), [first.sessionId]);
await again.load(first.sessionId);
assert.equal(again.text(), second.text());
second.connection.close();
again.connection.close();
