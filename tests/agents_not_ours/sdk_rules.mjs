// The TypeScript SDK's client in front of a bridge: prompts one after the other, and allows whatever
// it is asked. Prints how often it was asked in each.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const { agent: ask, client: serve } = methods;
const { command, cwd, orders } = JSON.parse(process.env.GIVEN);
const bridge = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
let asked = 0;
const connection = client({ name: "rules" })
  .onNotification(serve.session.update, () => undefined)
  .onRequest(serve.session.requestPermission, ({ params: { options } }) => {
    asked += 1;
    const { optionId } = options.find(({ kind }) => kind === "allow_once");
    return { outcome: { outcome: "selected", optionId } };
  })
  .connect(ndJsonStream(Writable.toWeb(bridge.stdin), Readable.toWeb(bridge.stdout)));
const request = (method, params) => connection.agent.request(method, params);

await request(ask.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
const { sessionId } = await request(ask.session.new, { cwd, mcpServers: [] });
const counts = [];
for (const text of orders) {
  const before = asked;
  await request(ask.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  counts.push(asked - before);
}
console.log(JSON.stringify(counts));
bridge.stdin.end();
