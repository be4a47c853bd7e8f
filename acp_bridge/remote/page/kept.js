// What this tab keeps for one login: each tap and each prompt until the server says what became of
// it, and a draft for each session. It is kept over a lost line and over a reload, and is gone with
// the login. A tap has a key, and names what its user saw, so to send it twice is to send it once.
"use strict";

const KEPT = "kept";
const LATE = 2000; // ms without an answer after which a tap is shown as not sent yet
const MOST_TAPS = 20;
const LONGEST = 1_000_000; // bytes of a prompt; the server takes no longer message
const NOTHING = { who: "", taps: [], drafts: {} };

// What a browser stores for the page; where it stores nothing, or no more, the page has it itself.
const tab = storage("sessionStorage");
const ours = storage("localStorage");

let kept = structuredClone(NOTHING);
let server = ""; // the run of the server that the line leads to
let boxOf = null; // the session whose draft is in the box
let pressed = null; // the button under the finger, and what it meant when it was pressed
const sentOn = new Map(); // by a tap's key, the line over which it was sent last
const gotOn = new Map(); // by a tap's key, the line over which the server has said that it has it
const told = new Map(); // by session, what became of a tap: until it was read there

try {
  kept = { ...kept, ...JSON.parse(tab.get(KEPT)) };
} catch {
  tab.remove(KEPT);
}

function storage(name) {
  const own = new Map();
  let stored = null;
  try {
    stored = window[name];
  } catch {
    // the browser forbids it
  }
  return {
    get: (key) => own.get(key) ?? stored?.getItem(key) ?? null,
    // False if a reload loses it.
    set(key, value) {
      own.delete(key);
      try {
        stored.setItem(key, value);
        return true;
      } catch {
        own.set(key, value);
        return false;
      }
    },
    remove(key) {
      own.delete(key);
      stored?.removeItem(key);
    },
    clear() {
      own.clear();
      stored?.clear();
    },
  };
}

function keep() {
  if (tab.set(KEPT, JSON.stringify(kept)) || !(kept.taps.length || boxOf)) return;
  say("line", "This browser can't store more: a reload loses what you typed.");
}

// Another login in this tab finds nothing of the last one's. Returns how many taps are lost.
function keepFor(who) {
  const lost = kept.who !== who && forgetKept();
  kept.who = who;
  keep();
  return lost;
}

function forgetKept() {
  const lost = kept.taps.length;
  kept = structuredClone(NOTHING);
  told.clear();
  tab.remove(KEPT);
  turnTo(boxOf);
  return lost;
}

// -- taps

const waits = (tap) => kept.taps.includes(tap);
const about = (tap) => [tap.session, tap.do, tap.prompt ?? tap.question ?? tap.kind ?? ""].join(" ");
const choice = (tap) => tap.option ?? tap.choice ?? tap.before ?? "";

function tapped(what, label) {
  const { careful, ...wanted } = what;
  const tap = { ...wanted, session: session(), key: random() };
  for (const earlier of kept.taps.filter((each) => !each.back && about(each) === about(tap))) {
    if (choice(earlier) === choice(tap)) return;
    takeBack(earlier.key); // the user has chosen again
  }
  if (tap.do === "set") at(`set-${tap.kind}`).value = tap.choice;
  told.delete(tap.session);
  if (kept.taps.length >= MOST_TAPS) {
    say("line", "Too many taps wait to be sent. Take some back first.");
    return;
  }
  kept.taps.push({ ...tap, label, title: at("title").textContent, at: Date.now(), tries: 0 });
  keep();
  setTimeout(() => keepingStill(showTaps), LATE);
  sendTaps();
}

// Sends all that was not sent over this line yet. A prompt waits for the mode chosen before it, and
// who chooses again waits until it is known what became of the first choice.
function sendTaps() {
  if (!welcomed()) return;
  let first = true;
  kept.taps.forEach((tap, at) => {
    const chosen = kept.taps.slice(0, at).filter((each) => each.session === tap.session);
    if (tap.do === "prompt" && chosen.some((each) => each.do === "set")) return;
    if (chosen.some((each) => each.back && about(each) === about(tap))) return;
    if (sentOn.get(tap.key) === socket) return;
    sentOn.set(tap.key, socket);
    if (tap.back) {
      send({ do: "back", key: tap.key, server: tap.server });
    } else {
      tap.tries += 1;
      tap.server = server;
      keep(); // before it is sent: what may have been sent is known to be so
      const { label, title, at: since, tries, server: to, ...message } = tap;
      send(message);
    }
    if (first) expectAnswer();
    first = false;
  });
}

function takeBack(key) {
  const tap = kept.taps.find((each) => each.key === key);
  if (!tap || tap.back) return;
  const byKey = document.activeElement?.dataset.back === key;
  if (tap.tries) {
    tap.back = true;
    sentOn.delete(key);
  } else {
    dropTap(tap);
    if (tap.do === "prompt") endPrompt(tap, false);
    say("line", "Taken back. It was not sent.");
  }
  const chosen = tap.do === "set" && tap.session === session() ? at(`set-${tap.kind}`) : null;
  if (chosen && tap.was !== undefined) chosen.value = tap.was;
  keep();
  sendTaps();
  showSending();
  keepingStill(showTaps);
  if (byKey) at("main").focus({ preventScroll: true }); // its button is gone
}

function dropTap(tap) {
  kept.taps = kept.taps.filter((each) => each !== tap);
  sentOn.delete(tap.key);
  gotOn.delete(tap.key);
}

// The server has said what became of a tap.
function onOutcome(key, message) {
  const tap = kept.taps.find((each) => each.key === key);
  if (!tap) return;
  dropTap(tap);
  const done = Boolean(message.taken || message.done);
  if (tap.do === "prompt") endPrompt(tap, done);
  const later = kept.taps.find((each) => about(each) === about(tap));
  if (done && later && tap.do === "set") later.was = tap.choice;
  const line = message.line ?? (tap.back ? "It had already been carried out." : "");
  if (line && !later) told.set(tap.session, { title: tap.title, line });
  showTold();
  keep();
  showSending();
  sendTaps();
}

// Says what became of taps, each where its session is shown; here of those elsewhere.
function showTold() {
  const own = told.get(session());
  if (own && !at("session").hidden) say("line", own.line);
  const others = [...told].filter(([id]) => id !== session()).slice(-3);
  const lines = others.map(([, each]) => `${each.title}: ${each.line}`);
  if (lines.length && welcomed()) say("link", lines.join(" "));
}

function onGot(key) {
  gotOn.set(key, socket);
}

// -- what is not sent yet is shown beside what was tapped

function words(tap) {
  if (tap.back) return "taken back, but it may already have been sent";
  return socket && gotOn.get(tap.key) === socket ? "sent, not done yet" : "not sent yet";
}

function placeOf(tap) {
  const of = (selector, name, value) =>
    [...document.querySelectorAll(selector)].find((each) => each.dataset[name] === value);
  if (tap.session !== session() || at("session").hidden) return null;
  switch (tap.do) {
    case "stop": // above the buttons: what stands in the foot does not move
      return busy && stops === tap.prompt ? at("line") : null;
    case "answer":
      return of("#questions button", "question", tap.question)?.parentElement;
    case "drop":
    case "move":
      return of("#queue li button", "prompt", tap.prompt)?.parentElement.lastElementChild;
    case "set":
      return at(`set-${tap.kind}`)?.parentElement;
    case "prompt":
      return may === "all" ? at("line") : null;
    default:
      return at(tap.do);
  }
}

function showTaps() {
  const high = at("taps").offsetHeight;
  const place = high || kept.taps.length ? placeNow() : null;
  showLate();
  if (at("taps").offsetHeight !== high) goTo(place);
}

function showLate() {
  const late = kept.taps.filter((tap) => Date.now() - tap.at >= LATE);
  for (const old of document.querySelectorAll(".unsent")) {
    if (!late.some((tap) => old.id === `tap-${tap.key}`)) old.remove();
  }
  for (const tap of late) {
    const place = placeOf(tap);
    const title = place || tap.session === session() ? "" : ` (${tap.title})`;
    const line = `${tap.label}${title}: ${words(tap)}`;
    const shown = at(`tap-${tap.key}`) ?? newLine(tap);
    if (shown.firstChild.textContent !== line) shown.firstChild.textContent = line;
    const sent = words(tap).startsWith("sent");
    shown.lastChild.hidden = Boolean(tap.back) || sent;
    if (!place && shown.parentElement !== at("taps")) at("taps").append(shown);
    if (place && shown.previousElementSibling !== place && !sharesPlace(shown, place)) {
      place.after(shown);
    }
  }
}

// Several taps on one thing stand behind each other.
function sharesPlace(shown, place) {
  let before = shown.previousElementSibling;
  while (before?.classList.contains("unsent")) before = before.previousElementSibling;
  return before === place;
}

function newLine(tap) {
  const line = document.createElement("span");
  const text = document.createElement("span");
  const button = document.createElement("button");
  line.id = `tap-${tap.key}`;
  line.className = "unsent";
  button.type = "button";
  button.textContent = "Take back";
  button.setAttribute("aria-label", `Take back: ${tap.label}`);
  button.dataset.back = tap.key;
  line.append(text, button);
  announce(`${tap.label}: ${words(tap)}`);
  return line;
}

// -- drafts

const draft = (of) => kept.drafts[`s=${of}`] ?? "";

function setDraft(of, text) {
  if (text) kept.drafts[`s=${of}`] = text;
  else delete kept.drafts[`s=${of}`];
}

// Puts the draft of a session into the box; null: of none.
function turnTo(of) {
  boxOf = of;
  const text = of === null ? "" : draft(of);
  if (at("prompt").value !== text) at("prompt").value = text;
  showSending();
}

const promptOf = (of) =>
  kept.taps.find((each) => each.do === "prompt" && each.session === of && !each.back);

function showSending() {
  at("send").disabled = Boolean(promptOf(boxOf));
}

function onInput() {
  if (boxOf === null) return;
  setDraft(boxOf, at("prompt").value);
  keep();
}

// What was not taken is a draft again, before what was typed since.
function endPrompt(tap, taken) {
  const since = draft(tap.session);
  if (taken && since === tap.text) setDraft(tap.session, "");
  if (!taken && !since.includes(tap.text)) {
    setDraft(tap.session, since ? `${tap.text}\n\n${since}` : tap.text);
  }
  turnTo(boxOf);
  if (taken) announce("The prompt was taken");
}

function sendPrompt() {
  const text = at("prompt").value;
  if (!text.trim() || boxOf === null || boxOf !== session() || promptOf(boxOf)) return;
  if (new TextEncoder().encode(JSON.stringify(text)).length > LONGEST) {
    return say("line", "This prompt is too long. A prompt from this page can have 1 MB.");
  }
  onInput();
  say("line", "");
  tapped({ do: "prompt", text }, "Message");
  showSending();
}
