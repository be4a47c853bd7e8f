// A client on the TypeScript SDK that comes over WebSocket, looks at a session, and prints all that
// the agent has said in it when that has the words which it is to wait for.

import { Editor, given } from "../clients_not_ours/sdk_editor.mjs";

const editor = await Editor.start();
editor.decide = () => new Promise(() => undefined); // it leaves that to others
await editor.load(given.session);
console.log(JSON.stringify({ loaded: editor.text() }));
await editor.until(() => editor.text().includes(given.words));
console.log(JSON.stringify({ text: editor.text() }));
await editor.close();
