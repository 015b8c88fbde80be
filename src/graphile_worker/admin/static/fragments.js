// Refresh the page in place: fetch the same address, and change only what differs inside of each data-region.
// Focus, selection, scroll positions, open details and what was typed stay, because elements stay.
import { $, $$, make, say } from "./dom.js";
import { localise } from "./times.js";

const OWN = new Set(["open", "value", "checked", "disabled", "data-off", "tabindex", "data-exact"]);
const waiting = new WeakMap(); // table body -> rows that wait behind "n new"

const noAnswer = (cause) => Object.assign(new Error("no answer", { cause }), { status: 0 });

/** The page at an address as a document; an error has `status`, which is 0 if nothing answered. */
export async function load(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { ...options, headers: { Accept: "text/html", ...options.headers } });
  } catch (error) {
    throw noAnswer(error);
  }
  const text = await answer.text().catch((error) => Promise.reject(noAnswer(error)));
  const page = new DOMParser().parseFromString(text, "text/html");
  return { page, status: answer.status, url: answer.url };
}

/** Fetch this page again and take over what has changed; `signal` ends the attempt. */
export async function refresh(signal) {
  const { page, status } = await load(location.href, { signal });
  if (status === 401 || !$("main", page)) return location.reload();
  if (status >= 500) throw Object.assign(new Error("down"), { status });
  for (const region of $$("[data-region]")) {
    const next = $$("[data-region]", page).find((other) => other.dataset.region === region.dataset.region);
    if (next && !region.parentElement.closest("[data-region]")) morph(region, next);
  }
  document.title = page.title;
  document.dispatchEvent(new Event("gw:refreshed"));
}

/** Show another page of ours without leaving this one. */
export function adopt(page, url) {
  morph($("nav.pages"), $("nav.pages", page));
  $("main").replaceChildren(...$("main", page).childNodes);
  document.title = page.title;
  document.body.dataset.topics = page.body.dataset.topics ?? "";
  if (url !== location.href) history.pushState({ adopted: true }, "", url);
  localise();
  document.dispatchEvent(new Event("gw:page"));
}

export function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.matches("[data-keep]")) return;
  attributes(from, to);
  if (from.matches("tbody[data-rows]")) rows(from, to);
  else if (!from.matches("textarea, select")) children(from, to);
  if (from.dataset.region) localise(from);
}

function attributes(from, to) {
  const marked = from.classList.contains("at");
  for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !OWN.has(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) {
    if (!OWN.has(name) && from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (marked) from.classList.add("at");
}

const keyOf = (node) => node.dataset?.key ?? node.dataset?.region ?? node.id ?? "";
const alike = (a, b) => a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

// What scripts have added is not in the page that comes, and stays.
function ours(node) {
  while (node?.classList?.contains("newer")) node = node.nextSibling;
  return node;
}

function drop(node) {
  const next = ours(node.nextSibling);
  node.remove();
  return next;
}

function children(from, to) {
  const nexts = [...to.childNodes];
  let here = ours(from.firstChild);
  nexts.forEach((next, index) => {
    while (here && !nexts.slice(index).some((other) => alike(here, other))) here = drop(here);
    if (here && alike(here, next)) {
      morph(here, next);
      here = ours(here.nextSibling);
      return;
    }
    const moved = keyOf(next) && [...from.childNodes].find((node) => alike(node, next));
    if (moved) morph(moved, next);
    from.insertBefore(moved || document.importNode(next, true), here ?? null);
  });
  while (here) here = drop(here);
}

// Rows never move under the pointer: those that are there change in place, new ones wait.
function rows(from, to) {
  const fresh = new Map([...to.rows].map((row) => [row.dataset.key, row]));
  const isBusy = from.matches(":hover") || from.contains(document.activeElement) || $(":checked", from);
  if (fresh.has(undefined) || !(isBusy || from.hasAttribute("data-defer"))) return children(from, to);
  let isBeforeKept = false;
  for (const row of [...from.rows].reverse()) {
    const next = fresh.get(row.dataset.key);
    if (next) morph(row, next);
    row.classList.toggle("gone", !next && isBeforeKept);
    isBeforeKept ||= Boolean(next);
    fresh.delete(row.dataset.key);
  }
  offer(from, to, fresh.size);
}

function offer(from, to, count) {
  const table = from.closest(".table") ?? from.closest("table");
  const old = $(".newer", table.parentElement);
  waiting.set(from, to);
  if (!count) return old?.remove();
  const text = say("new_rows", { n: count });
  if (old) return void (old.textContent !== text && (old.textContent = text));
  const button = make("button", { class: "newer", type: "button" }, text);
  button.addEventListener("click", () => {
    button.remove();
    children(from, waiting.get(from));
    localise(from);
  });
  table.before(button);
}
