// The TypeScript SDK's client over its own WebSocket stream, against `acp-bridge serve`. Two editors
// have one session; one of them comes back after its line was cut. Exit 0: it held.

import assert from "node:assert/strict";
import { methods } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { Editor, given } from "./sdk_editor.mjs";

const { agent: ask } = methods;

/** Node's own WebSocket, which takes its headers elsewhere than the package `ws`. */
class WithHeaders extends WebSocket {
  constructor(url, protocols, { headers } = {}) {
    super(url, { protocols, headers });
  }
}

class Remote extends Editor {
  stream() {
    const headers = { Authorization: `Bearer ${given.token}` };
    return createWebSocketStream(given.url, { headers, WebSocket: WithHeaders });
  }
}

const first = await Remote.start();
await first.open();
assert.equal(await first.prompt("say one"), "end_turn");
assert.equal(first.text(), "one");

const second = await Remote.start();
await second.load(first.sessionId);
assert.equal(second.text(), "one");
second.decide = ({ options }) =>
  ({ outcome: "selected", optionId: options.find(({ kind }) => kind === "allow_once").optionId });
first.decide = () => new Promise(() => undefined); // nobody sits there
assert.equal(await first.prompt("permission; say two"), "end_turn");
await second.until(() => second.text().endsWith("two"));
assert.equal(second.permissions.length, 1);

first.connection.close();
const again = await Remote.start();
const { sessions } = await again.request(ask.session.list, {});
assert.deepEqual(sessions.map(({ sessionId }) => sessionId), [first.sessionId]);
await again.load(first.sessionId);
assert.equal(again.text(), second.text());
second.connection.close();
again.connection.close();
