// Where one reads, what the page has of a session, and what is new below. Pieces are articles whose
// id is "p" and a number; numbers below zero are notices that only this page was told.
"use strict";

const SINGLE = 32; // the last pieces, of which the server is told each digest
const BLOCKS = 64; // the most blocks of earlier pieces, of which it is told one digest each
const PLACES = 30; // sessions of which the reading place is kept in this tab

const digests = new Map(); // by the number of a piece, the digest of what stands on the page
const opened = new Set(); // the outputs that are open: "p7/0" is the first one of the piece p7
const fresh = new Set(); // the ids of pieces that have come below the reading place
let shownSession = null; // the session whose pieces are on the page
let seeking = null; // the reading place while earlier pieces are fetched up to it
let listTop = 0; // how far the list was scrolled when it was left

const pieceOf = (element) => element?.closest?.("#pieces > *");
const numberOf = (id) => Number(/^p(\d+)$/.exec(id)?.[1] ?? 0);

// -- the reading place

function atBottom() {
  const page = document.documentElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 80;
}

function toBottom() {
  const page = document.documentElement;
  if (!at("session").hidden) window.scrollTo({ top: page.scrollHeight, behavior: "instant" });
}

// The first piece, or row of the list, that is to be seen below the header, and where it is.
function placeNow() {
  const rows = at(at("session").hidden ? "sessions" : "pieces").children;
  const edge = document.querySelector("header").getBoundingClientRect().bottom;
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].getBoundingClientRect().bottom > edge) high = middle;
    else low = middle + 1;
  }
  const found = rows[low];
  return found?.id ? { id: found.id, top: found.getBoundingClientRect().top } : null;
}

function goTo(place) {
  const there = place && (at(place.id) ?? after(numberOf(place.id)));
  if (!there) return;
  const by = there.getBoundingClientRect().top - place.top;
  if (Math.abs(by) >= 0.5) window.scrollBy({ top: by, behavior: "instant" });
}

// The first piece behind a number, for a place whose own piece is gone.
function after(number) {
  if (!number) return null;
  return [...at("pieces").children].find((each) => numberOf(each.id) >= number);
}

// Make a change of the page; what is read stays where it is, or the newest stays to be seen.
function keepingPlace(change) {
  const list = at("session").hidden;
  const stay = !list && atBottom();
  if (!list) followed = stay;
  const place = stay || (list && document.documentElement.scrollTop < 40) ? null : placeNow();
  const went = change(stay);
  if (!went && stay) toBottom();
  else if (!went && list === at("session").hidden) goTo(place);
  showJump();
}

// -- what has come below

function showJump() {
  const below = !at("session").hidden && !atBottom();
  if (!below) fresh.clear();
  const asks = at("questions").childElementCount > 0;
  const news = fresh.size ? `${fresh.size} new` : "Newest";
  at("jump").hidden = !below;
  at("jump").textContent = `${asks ? "The agent asks" : news} ↓`;
}

// -- what the page has, and what the server makes of it

// A view begins: of a session that is on the page, or of another one.
function beginView(message) {
  if (message.view !== "session" || message.session === shownSession) return;
  forget();
  shownSession = message.session;
}

function forget() {
  for (const each of ["pieces", "earlier"]) at(each).replaceChildren();
  for (const each of [digests, opened, fresh]) each.clear();
  shownSession = seeking = null;
}

function noteDigests(found) {
  for (const [number, digest] of Object.entries(found)) digests.set(Number(number), digest);
}

// Only pieces from `first` to `last` stay; what else there was is told again, or was for once.
function keepRange([first, last]) {
  for (const each of [...at("pieces").children]) {
    const number = numberOf(each.id);
    if (number >= first && number <= last) continue;
    digests.delete(number);
    each.remove();
  }
}

// What the page has of the session that it shows; null if that is nothing.
function have() {
  const id = session();
  if (!id) return null;
  const numbers = shownSession === id ? [...digests.keys()].sort((a, b) => a - b) : [];
  if (!numbers.length) return keptPlace(id);
  const single = numbers.slice(-SINGLE);
  const rest = numbers.slice(0, -SINGLE);
  let step = SINGLE;
  while (rest.length > step * (BLOCKS - 1)) step *= 2;
  return {
    session: id,
    first: numbers[0],
    last: numbers[numbers.length - 1],
    step,
    blocks: blocksOf(rest, step),
    single: Object.fromEntries(single.map((each) => [each, digests.get(each)])),
    follows: atBottom(),
  };
}

function blocksOf(numbers, step) {
  const blocks = {};
  for (const number of numbers) {
    const digest = digests.get(number);
    const block = (blocks[Math.floor(number / step)] ??= [0, 0]);
    block[0] ^= parseInt(digest.slice(0, 6), 16);
    block[1] ^= parseInt(digest.slice(6), 16);
  }
  const hex = (half) => half.toString(16).padStart(6, "0");
  return Object.fromEntries(
    Object.entries(blocks).map(([number, halves]) => [number, halves.map(hex).join("")]),
  );
}

// -- the place over a reload of the page: it is kept in this tab

function places() {
  try {
    return JSON.parse(tab.get("places")) ?? {};
  } catch {
    return {};
  }
}

function keepPlace() {
  if (!at("list").hidden) listTop = document.documentElement.scrollTop;
  if (!shownSession || !digests.size || at("session").hidden) return;
  const { [shownSession]: _, ...others } = places();
  const newest = Object.entries(others).slice(1 - PLACES);
  const mine = atBottom() ? null : { ...placeNow(), first: Math.min(...digests.keys()) };
  const all = Object.fromEntries(newest);
  if (mine) all[shownSession] = { ...mine, opened: [...opened] };
  tab.set("places", JSON.stringify(all));
}

function keptPlace(id) {
  const place = places()[id];
  return place ? { session: id, first: place.first } : null;
}

// The session is whole on the page: go where its reader was, or to its end.
function arrive(id) {
  const place = places()[id];
  if (!place) return toBottom();
  place.opened.forEach((each) => opened.add(each));
  reopen(at("pieces"));
  goTo(place);
  seeking = { ...place, first: numberOf(place.id) };
  seek();
}

// A place above the pieces on the page: earlier ones are asked for until it is there. True when it
// has gone there.
function seek() {
  const there = seeking.first >= Math.min(...digests.keys());
  if (!there && at("earlier").querySelector("button")) {
    send({ do: "earlier" });
    return false;
  }
  goTo(seeking);
  seeking = null;
  return true;
}

for (const each of ["wheel", "touchmove", "keydown", "pointerdown"]) {
  document.addEventListener(each, () => (seeking = null), { passive: true }); // the reader goes
}

// -- outputs that were opened stay open

const key = (details) => {
  const piece = pieceOf(details);
  return piece && `${piece.id}/${[...piece.querySelectorAll("details")].indexOf(details)}`;
};

// What is open now, before it is replaced: the event that tells of it may be on its way.
function noteOpened(element) {
  for (const each of element.querySelectorAll("#pieces details")) {
    opened[each.open ? "add" : "delete"](key(each));
  }
}

function reopen(element) {
  const inside = element.id === "pieces" ? element : pieceOf(element);
  inside?.querySelectorAll("details").forEach((each) => (each.open = opened.has(key(each))));
}

at("pieces").addEventListener(
  "toggle",
  (event) => {
    const name = key(event.target);
    if (name && event.target.isConnected) opened[event.target.open ? "add" : "delete"](name);
    followed &&= atBottom();
  },
  true,
);

// -- pieces and rows come in

// Where a piece belongs: before the first one with a higher number, or at the end.
function insertPiece(container, id, html) {
  const number = numberOf(id);
  let next = null;
  for (let each = container.lastElementChild; number && each; each = each.previousElementSibling) {
    const other = numberOf(each.id);
    if (other && other < number) break;
    if (other) next = each;
  }
  if (next) next.insertAdjacentHTML("beforebegin", markup(html));
  else container.insertAdjacentHTML("beforeend", markup(html));
}

function addEarlier(container, html) {
  noteOpened(container);
  container.insertAdjacentHTML("afterbegin", markup(html));
  reopen(container);
}

// Rows of the list take their order; one that has the focus keeps it.
function order(container, ids) {
  keepingFocus(() => {
    let before = null;
    for (const id of ids) {
      const row = at(id);
      const next = before ? before.nextElementSibling : container.firstElementChild;
      if (row && row !== next) container.insertBefore(row, next);
      before = row ?? before;
    }
  });
}

let ticking = false;
window.addEventListener(
  "scroll",
  () => {
    if (ticking) return;
    ticking = true;
    requestAnimationFrame(() => {
      ticking = false;
      const edge = window.innerHeight;
      for (const id of fresh) {
        const top = at(id)?.getBoundingClientRect().top ?? -1;
        if (top < edge / 2) fresh.delete(id);
      }
      showJump();
      wantMore();
    });
  },
  { passive: true },
);
window.addEventListener("pagehide", keepPlace);
document.addEventListener("visibilitychange", keepPlace);
at("jump").addEventListener("click", () => {
  fresh.clear();
  toBottom();
  showJump();
});

// -- the list: further rows come as one scrolls, and a search as one types

let asked = 0; // the rows that were asked for

const wish = () => ({ find: at("find").value, rows: Math.max(asked, 50) });

function wantMore() {
  const button = at("more").querySelector("button");
  if (at("list").hidden || !button) return;
  const shown = Number(button.dataset.rows);
  if (asked > shown || button.getBoundingClientRect().top > window.innerHeight + 600) return;
  asked = shown + 50;
  send({ do: "more", ...wish() });
}

function forgetList() {
  for (const each of ["sessions", "more"]) at(each).replaceChildren();
  at("find").value = "";
  asked = listTop = 0;
}

let typing = 0;
at("find").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    asked = 0;
    send({ do: "find", ...wish() });
    tab.set("find", at("find").value);
  }, 40);
});
at("find-form").addEventListener("submit", (event) => event.preventDefault());
at("find").value = tab.get("find") ?? "";

// -- the screen: what is at its bottom stays above a keyboard, and covers nothing that has the focus

function fitScreen() {
  const seen = window.visualViewport;
  const under = seen ? Math.max(0, window.innerHeight - seen.height - seen.offsetTop) : 0;
  const root = document.documentElement.style;
  root.setProperty("--under", `${Math.round(under)}px`);
  root.setProperty("--foot", `${at("foot").offsetHeight}px`);
  root.setProperty("--head", `${document.querySelector("header").offsetHeight}px`);
}

new ResizeObserver(() => keepFoot()).observe(at("foot"));
window.visualViewport?.addEventListener("resize", () => keepFoot());
window.addEventListener("resize", () => keepFoot());
history.scrollRestoration = "manual";

// A foot that grows, by a line of the prompt or a keyboard, hides nothing of the newest.
let followed = true;
window.addEventListener("scroll", () => (followed = atBottom()), { passive: true });
function keepFoot() {
  fitScreen();
  if (followed) toBottom();
}
