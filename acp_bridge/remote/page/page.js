// Puts what the server sends in its place, and sends back what the user does. All that is shown,
// and all that is known of a session, is made by the server; nothing is kept here but the login,
// what kept.js keeps for it, and where one reads (place.js).
"use strict";

const STORED = "acp-bridge-login";
const SETTLED = 600; // ms in which a button has stood still, and nobody typed or came, to act
const SILENT = 15000; // ms without a word from the server after which it is asked for one
const ANSWERED = 4000; // ms in which it answers
const RETRY = [500, 1000, 2000, 4000, 8000, 15000];
const NEVER = "What was not sent yet is never sent.";
const ACTS = new Set(["stop", "answer", "drop", "move", "run"]); // kept until they are confirmed

const policy = window.trustedTypes?.createPolicy("pieces", { createHTML: (text) => text });
const markup = (text) => (policy ? policy.createHTML(text) : text);
const at = (id) => document.getElementById(id);
const now = () => performance.now();

let socket = null;
let tries = 0;
let timer = 0;
let may = "look";
let typed = -SETTLED;
let focused = -SETTLED; // a window that lay over the page may have gone under the finger
let heard = 0;
const inbox = []; // what the server has sent, in order, and the timer after which it is shown
let due = 0;
let busy = false;
let stops = ""; // what a Stop ends: the server's name for the turn that runs
let welcomedOn = null; // the line over which the server has taken the login
let viewed; // the session that the server shows, null for the list; what is for another is late
let name = "";
let refusal = "";
const stands = new WeakMap(); // since when a button that allows or denies stands where it is

// -- the server

function connect(code) {
  clearTimeout(timer);
  if (socket) socket.onclose = null;
  socket?.close();
  const login = myLogin();
  if (!login && !code) return showLogin();
  const asked = tries;
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const mine = (socket = new WebSocket(`${scheme}//${location.host}/page`));
  say("link", "Connecting…");
  // one that does not come about, as when nothing is refused and nothing comes, is tried again
  const patience = ANSWERED + 2 * RETRY[Math.min(asked, RETRY.length - 1)];
  setTimeout(() => {
    if (mine !== socket || welcomedOn === mine || !visible() || !myLogin()) return;
    tries++;
    connect();
  }, patience);
  mine.onopen = () => {
    const first = { client: client(), visible: visible(), session: session(), ...wish() };
    first.have = have();
    mine.send(JSON.stringify(code ? { ...first, code } : { ...first, login }));
  };
  mine.onmessage = (event) => {
    heard = now();
    if (mine !== socket) return;
    const message = JSON.parse(event.data);
    // A page elsewhere can lead here with any code: that is not to end a login.
    if (code && login && message.login === null) {
      refusal = message.line;
      return connect();
    }
    take(message);
  };
  mine.onclose = () => {
    if (mine !== socket) return;
    socket = null;
    if (!myLogin()) {
      say("link", "No connection.");
      return showLogin();
    }
    say("link", "No connection. It is tried again.");
    keepingStill(showTaps);
    timer = setTimeout(connect, RETRY[Math.min(tries++, RETRY.length - 1)]);
  };
}

const welcomed = () => socket?.readyState === WebSocket.OPEN && welcomedOn === socket;

function send(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

// A line that was cut without a word looks open: the server answers, or another one is tried.
function expectAnswer() {
  const asked = socket;
  const since = now();
  setTimeout(() => {
    if (asked && asked === socket && heard < since && visible()) connect();
  }, ANSWERED);
}

setInterval(() => {
  if (!visible() || socket?.readyState !== WebSocket.OPEN || now() - heard < SILENT) return;
  expectAnswer();
  send({ do: "here" });
}, SILENT / 3);

function take(message) {
  const begins = "login" in message || message.may;
  if (begins) changeAll();
  if ("login" in message) return onLogin(message);
  if (begins) return onWelcome(message);
  inbox.push(message);
  due ||= setTimeout(changeAll);
}

// Makes all changes that have come at once, and then looks once where things are.
function changeAll() {
  clearTimeout(due);
  due = 0;
  const these = inbox.splice(0);
  if (!these.length) return;
  keepingStill(() =>
    keepingPlace((stay) => {
      const went = these.map((each) => change(each, stay)).some(Boolean);
      showTaps();
      return went;
    }),
  );
}

// Notes which buttons that act for good have moved in a change.
function keepingStill(change) {
  const stood = buttons();
  change();
  for (const [button, top] of stood) {
    if (Math.abs(button.getBoundingClientRect().top - top) > 2) stands.set(button, now());
  }
}

// Makes the change that a message asks for. What is for another view is late, and is dropped.
function change(message, stay) {
  if (message.view) viewed = message.session ?? null;
  const went = viewed === session() && showPart(message, stay);
  if (message.got) onGot(message.got);
  const key = message.taken ?? message.refused ?? message.undone;
  if (key) onOutcome(key, message);
  else if ("line" in message) say("line", message.line);
  return went;
}

// Puts a part of the view in its place; true if the page has gone to another place with it.
function showPart(message, stay) {
  if ("put" in message) put(at(message.put), message.html);
  if ("busy" in message) setBusy(message.busy, message.stop);
  if (message.add) add(at(message.add), message.id, message.html, stay);
  if (message.before) addEarlier(at(message.before), message.html);
  if (message.order) order(at(message.order), message.ids);
  if (message.append) at(message.append)?.insertAdjacentHTML("beforeend", markup(message.html));
  if (message.gone) at(message.gone)?.remove();
  if (message.remove) at(message.remove)?.remove();
  if (message.range) keepRange(message.range);
  if (message.digests) noteDigests(message.digests);
  if (message.view) show(message);
  if (message.say) announce(message.say);
  if (message.put === "earlier" && seeking) return seek();
  return Boolean(message.opened) && onOpened(message.opened);
}

// True if the page has gone to the place where its reader was: in a session that was not open.
function onOpened(id) {
  const again = document.documentElement.dataset.opened === id;
  document.documentElement.dataset.opened = id;
  if (!again) arrive(id);
  return !again;
}

// Where the buttons are that act for good: one that has moved must stand still again first.
function buttons() {
  return [...document.querySelectorAll("[data-careful]")].map((each) => [
    each,
    each.getBoundingClientRect().top,
  ]);
}

// -- the login

// A tab keeps the login with which it came in, whichever came to the browser since.
const myLogin = () => tab.get(STORED) ?? ours.get(STORED);

function forgetLogin() {
  const mine = myLogin();
  tab.clear();
  if (ours.get(STORED) === mine) ours.remove(STORED);
  clearTimeout(timer);
  if (socket) socket.onclose = null;
  socket?.close();
  socket = null;
  return forgetKept();
}

function onLogin(message) {
  if (message.login) {
    const stored = ours.set(STORED, message.login);
    tab.set(STORED, message.login);
    if (!stored) refusal = "This browser can't store the login: a reload of the page loses it.";
  } else {
    const lost = forgetLogin();
    showLogin();
    say("link", (message.line ?? "") + (lost ? ` ${NEVER}` : ""));
  }
}

function onWelcome(message) {
  tries = 0;
  may = message.may;
  name = message.name;
  server = message.server;
  welcomedOn = socket;
  viewed = undefined;
  tab.set(STORED, myLogin());
  if (keepFor(message.id)) refusal ||= NEVER;
  say("link", refusal);
  refusal = "";
  showTold();
  at("prompt-form").hidden = may !== "all";
  setBusy(false);
  turnTo(session());
  sendTaps();
}

// The next one who logs in here is shown nothing of this login's.
function showLogin() {
  forget();
  forgetList();
  show({ view: "login" });
  for (const each of ["questions", "queue", "settings", "say"]) at(each).replaceChildren();
  turnTo(null);
}

// Ends the login in this browser. The server may not have heard of it.
function leaveHere() {
  forgetLogin();
  showLogin();
  say(
    "link",
    "You are logged out in this browser. The server has not confirmed it:" +
      ` to end the login there, run acp-bridge serve revoke ${name}.`,
  );
}

// A name for this tab, under which it takes its place again after a reload.
function client() {
  let name = tab.get("client");
  if (!name) tab.set("client", (name = random()));
  return name;
}

// A tab that was made as a copy of another one has its name, and takes one of its own.
async function takeName() {
  for (const wait of [50, 200, 0]) {
    if (await isAlone(client())) return;
    await new Promise((done) => setTimeout(done, wait)); // this tab before a reload may still end
  }
  tab.remove("client");
  await isAlone(client());
}

// True if no other tab has the name; from now on this one has it.
function isAlone(name) {
  return new Promise((done) => {
    const how = { ifAvailable: true };
    const held = (lock) => {
      done(Boolean(lock));
      return lock && new Promise(() => {});
    };
    if (navigator.locks) navigator.locks.request(`acp-bridge ${name}`, how, held).catch(done);
    else done(true);
  });
}

function random() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// -- what is shown

function put(element, html) {
  if (!element) return;
  keepingFocus(() => {
    const pieces = element.id === "pieces";
    const last = pieces ? Math.max(0, ...digests.keys()) : 0;
    const open = [...element.querySelectorAll("details")].map((each) => each.open);
    noteOpened(element);
    element.innerHTML = markup(html);
    if (pieceOf(element) || pieces) reopen(element);
    else element.querySelectorAll("details").forEach((each, n) => (each.open = open[n] ?? false));
    if (pieces) digests.clear();
    for (const each of pieces && last ? element.children : []) {
      if (numberOf(each.id) > last) fresh.add(each.id);
    }
    if (element.id === "more") wantMore();
    settle(element);
  });
}

function add(container, id, html, stay) {
  const old = at(id);
  if (!old) {
    insertPiece(container, id, html);
    if (container?.id === "pieces" && !stay && numberOf(id)) fresh.add(id);
    settle(at(id));
    return;
  }
  keepingFocus(() => {
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    noteOpened(old);
    old.outerHTML = markup(html);
    if (pieceOf(at(id))) reopen(at(id));
    else at(id)?.querySelectorAll("details").forEach((each, n) => (each.open = open[n] ?? false));
    settle(at(id));
  });
}

// What replaces the element that has the focus gets it, if it is the same one; nothing else does.
function keepingFocus(change) {
  const id = document.activeElement?.id;
  change();
  if (id && document.activeElement?.id !== id) at(id)?.focus({ preventScroll: true });
}

function settle(element) {
  element?.querySelectorAll("[data-careful]").forEach((each) => stands.set(each, now()));
}

function show(message) {
  const view = message.view;
  const came = at("list").hidden && view === "list";
  for (const each of ["login", "list", "session"]) at(each).hidden = each !== view;
  at("back").hidden = view !== "session";
  for (const each of ["state", "line"]) say(each, "");
  if (view !== "session") delete document.documentElement.dataset.opened;
  at("logout").hidden = view !== "list";
  if (view === "list") say("title", "Sessions");
  if (view === "login") say("title", "acp-bridge");
  if (view === "session" && message.session !== shownSession) {
    for (const each of ["queue", "settings"]) at(each).replaceChildren();
    say("title", "Session");
  }
  beginView(message);
  at("questions").replaceChildren();
  showTold();
  if (came) window.scrollTo({ top: listTop, behavior: "instant" });
}

// A line that comes or goes in the header moves nothing that is read.
function say(id, text) {
  if (at(id).textContent !== text) keepingPlace(() => void (at(id).textContent = text));
}

function announce(text) {
  const line = document.createElement("p");
  line.textContent = text;
  at("say").append(line);
  while (at("say").childElementCount > 20) at("say").firstElementChild.remove();
}

function setBusy(is, what = "") {
  busy = is;
  stops = what;
  for (const each of [at("stop"), at("stop-alone")]) each.dataset.prompt = what;
  at("stop").hidden = !busy || may !== "all";
  at("stop-alone").hidden = !busy || may !== "approve";
}

// -- what the user does

// No session has so long an id that the rest would matter, and the server takes no longer message.
const session = () => /^#s=(.{1,500})/.exec(location.hash)?.[1] ?? null;
const visible = () => document.visibilityState === "visible";

function mayAct(button) {
  if (!("careful" in button.dataset)) return true;
  const since = Math.max(stands.get(button) ?? now(), typed, focused);
  return now() - since >= SETTLED;
}

// What a button means when the finger comes down counts, whatever it means when it is lifted.
document.addEventListener("pointerdown", (event) => {
  const button = event.target.closest?.("[data-do]");
  pressed = button ? { button, what: { ...button.dataset } } : null;
});
document.addEventListener("click", (event) => {
  const back = event.target.closest?.("[data-back]");
  if (back) takeBack(back.dataset.back);
  const button = event.target.closest?.("[data-do]");
  if (button?.dataset.do === "more") return wantMore();
  if (!button || !mayAct(button)) return;
  const byFinger = event.detail > 0 && pressed?.button === button;
  const what = byFinger ? pressed.what : { ...button.dataset };
  pressed = null;
  if (!ACTS.has(what.do)) return send(what);
  if (what.do === "answer") what.turn = stops;
  tapped(what, button.getAttribute("aria-label") ?? button.textContent);
});
document.addEventListener("change", (event) => {
  const chosen = event.target;
  const kind = chosen.dataset?.set;
  const label = `${kind}: ${chosen.selectedOptions?.[0]?.textContent}`;
  if (kind) tapped({ do: "set", kind, choice: chosen.value, was: chosen.dataset.was }, label);
});
document.addEventListener("visibilitychange", () => {
  if (socket?.readyState === WebSocket.OPEN) {
    expectAnswer();
    send({ do: "visible", visible: visible(), have: have(), ...wish() });
  } else if (visible()) connect();
});
window.addEventListener("online", () => connect());
window.addEventListener("focus", () => (focused = now()));
window.addEventListener("hashchange", () => takeCode() || go());
at("back").addEventListener("click", (event) => {
  event.preventDefault(); // the browser would scroll, before the place is kept
  history.pushState(null, "", "/");
  go();
});

// Goes to the view that the address names, at once: what is typed now is for this session.
function go() {
  keepPlace();
  if (boxOf !== session()) told.delete(boxOf);
  if (myLogin()) {
    if (welcomed()) say("link", "");
    show(session() ? { view: "session", session: session() } : { view: "list" });
    setBusy(false);
    turnTo(session());
    keepingStill(showTaps);
    const where = session() ? { do: "open", session: session(), have: have() } : { do: "list" };
    send({ ...where, ...wish() });
    if (welcomed()) expectAnswer();
  }
  at("main").focus({ preventScroll: true });
}
at("skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("main").focus();
});
window.addEventListener("storage", (event) => {
  if (event.key !== STORED || event.newValue || event.oldValue !== myLogin()) return;
  forgetLogin(); // another tab has logged out
  showLogin();
});
at("prompt").addEventListener("input", () => {
  typed = now();
  onInput();
});
at("prompt").addEventListener("keydown", (event) => {
  typed = now();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) sendPrompt();
});
at("prompt-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sendPrompt();
});
at("code-form").addEventListener("submit", (event) => {
  event.preventDefault();
  connect(at("code").value);
  at("code").value = "";
});
at("logout").addEventListener("click", () => {
  forgetKept();
  if (!welcomed()) return leaveHere();
  const mine = socket;
  mine.onclose = leaveHere; // no new line comes in with a login that was ended here
  send({ do: "leave" });
  setTimeout(() => mine === socket && leaveHere(), LATE);
});

// A code in the fragment was never sent to any server, and is not kept in the history.
function takeCode() {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (!code) return false;
  history.replaceState(null, "", "/");
  connect(code);
  return true;
}

// All scripts of the page have been read then.
document.addEventListener("DOMContentLoaded", async () => {
  showTaps();
  await takeName();
  if (!takeCode()) connect();
});
