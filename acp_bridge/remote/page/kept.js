// What this tab keeps for one login: each tap and each prompt until the server says what became of
// it, and a draft for each session. It is kept over a lost line and over a reload, and is gone with
// the login. A tap has a key, and names what its user saw, so to send it twice is to send it once.
"use strict";

const KEPT = "kept";
const LATE = 2000; // ms without an answer after which a tap is shown as not sent yet
const MOST_TAPS = 20;
const NOTHING = { who: "", taps: [], drafts: {} };

let kept = structuredClone(NOTHING);
let server = ""; // the run of the server that the line leads to
let boxOf = null; // the session whose draft is in the box
let pressed = null; // the button under the finger, and what it meant when it was pressed
const sentOn = new Map(); // by a tap's key, the line over which it was sent last
const gotOn = new Map(); // by a tap's key, the line over which the server has said that it has it

try {
  kept = { ...kept, ...JSON.parse(sessionStorage.getItem(KEPT)) };
} catch {
  sessionStorage.removeItem(KEPT);
}

function keep() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(kept));
  } catch {
    say("line", "This browser has no room left: a reload loses what you typed.");
  }
}

// Another login in this tab finds nothing of the last one's.
function keepFor(who) {
  if (kept.who !== who) forgetKept();
  kept.who = who;
  keep();
}

function forgetKept() {
  const lost = kept.taps.length;
  kept = structuredClone(NOTHING);
  sessionStorage.removeItem(KEPT);
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
  if (kept.taps.length >= MOST_TAPS) {
    say("line", "Too many taps wait to be sent. Take some back first.");
    return;
  }
  kept.taps.push({ ...tap, label, title: at("title").textContent, at: Date.now(), tries: 0 });
  keep();
  setTimeout(() => keepingStill(showTaps), LATE);
  sendTaps();
}

// Sends all that was not sent over this line yet. A prompt waits for the mode chosen before it.
function sendTaps() {
  if (!welcomed()) return;
  let first = true;
  kept.taps.forEach((tap, at) => {
    const chosen = kept.taps.slice(0, at).filter((each) => each.session === tap.session);
    if (tap.do === "prompt" && chosen.some((each) => each.do === "set")) return;
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
  if (tap.tries) {
    tap.back = true;
    sentOn.delete(key);
  } else {
    dropTap(tap);
    say("line", "Taken back. It was not sent.");
  }
  const chosen = tap.do === "set" && tap.session === session() ? at(`set-${tap.kind}`) : null;
  if (chosen && tap.was !== undefined) chosen.value = tap.was;
  keep();
  sendTaps();
  showSending();
  keepingStill(showTaps);
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
  if (message.taken && tap.do === "prompt") {
    if (draft(tap.session) === tap.text) setDraft(tap.session, "");
    turnTo(boxOf);
    announce("The prompt was taken");
  }
  const line = message.line ?? (tap.back ? "It had already been carried out." : "");
  if (line && tap.session === session()) say("line", line);
  else if (line) say("link", `${tap.title}: ${line}`);
  keep();
  showSending();
  sendTaps();
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
    case "stop":
      return [at("stop"), at("stop-alone")].find(
        (each) => !each.hidden && each.dataset.prompt === tap.prompt,
      );
    case "answer":
      return of("#questions button", "question", tap.question)?.parentElement;
    case "drop":
    case "move":
      return of("#queue li button", "prompt", tap.prompt)?.parentElement.lastElementChild;
    case "set":
      return at(`set-${tap.kind}`)?.parentElement;
    case "prompt":
      return may === "all" ? at("send") : null;
    default:
      return at(tap.do);
  }
}

function showTaps() {
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

function sendPrompt() {
  const text = at("prompt").value;
  if (!text.trim() || boxOf === null || boxOf !== session() || promptOf(boxOf)) return;
  onInput();
  say("line", "");
  tapped({ do: "prompt", text }, "Message");
  showSending();
}
