// Plays the scenarios that the command line names, one after the other in one bridge.

/** Seconds for one scenario: its processes start on a machine that may be busy. */
const LONGEST = 50;

/** `scenarios`: by name, what is done with the editor that `start` starts, in a session of its own. */
export async function play(scenarios, start) {
  const editor = await start();
  for (const name of process.argv.slice(2)) {
    const late = setTimeout(() => failed(name, `is not through after ${LONGEST} s`), 1000 * LONGEST);
    await scenarios[name](editor).catch((error) => failed(name, error));
    clearTimeout(late);
    editor.forget();
  }
  const { socket, process: bridge } = editor;
  if (socket || (bridge.exitCode === null && !bridge.signalCode)) await editor.close();
}

function failed(name, why) {
  console.error(`${name}:`, why);
  process.exit(1);
}
