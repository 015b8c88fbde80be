// The keyboard: keys for pages and lists, the list of commands, and the help. Letters can be switched off.
import { $, $$, make, memory, on, openDialog, root, say, texts } from "./dom.js";
import { ask, moveChoice, select } from "./forms.js";
import { switchZone } from "./times.js";

const GO_WITHIN = 1500, RESCHEDULE = "e";
let goUntil = 0;
const isOff = () => memory.get("keys") === "off";
const isShown = (element) => element.checkVisibility?.() ?? element.offsetParent !== null;

function help() {
  const list = make("dl", { class: "keys" });
  for (const [title, keys] of JSON.parse($("#keys").textContent)) {
    list.append(make("h3", {}, title));
    for (const [key, text] of keys) list.append(make("dt", {}, make("kbd", {}, key)), make("dd", {}, text));
  }
  const box = make("input", { type: "checkbox", checked: !isOff() });
  box.addEventListener("change", () => memory.set("keys", box.checked ? "" : "off"));
  openDialog(texts.keys, list, make("div", { class: "foot" }, make("label", { class: "check" }, box, texts.keys_on)));
}

// Lists
const rows = () => $$("main tbody[data-rows] tr").filter(isShown);

function move(step) {
  const all = rows(), now = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + step))];
  if (!next) return;
  all[now]?.classList.remove("at");
  next.classList.add("at");
  ($("a", next) ?? next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function tickRow(isRange) {
  const tick = $("tr.at .tick input");
  if (!tick) return;
  tick.checked = !tick.checked;
  select(tick, isRange);
}

// A letter changes nothing by itself: it opens what would be opened, and asks where a click would act at once.
function press(key) {
  const within = [$("tr.at"), ...$$("[data-bulk]:not([hidden])"), $("main")].filter(Boolean);
  const found = within.flatMap((place) => $$(`[data-key-press="${key}"]`, place)).find(isShown);
  if (found?.matches("form[data-act] button") && key !== RESCHEDULE) ask(found);
  else found?.click();
}

// Commands
function commands(text) {
  const word = text.trim().toLowerCase();
  const found = [];
  const add = (label, hint, run) => found.push({ label, hint, run });
  const visit = (path) => () => location.assign(root + path);
  if (/^\d+$/.test(word)) add(word, texts.job, visit(`/jobs/${word}`));
  const has = (element) => element.textContent.toLowerCase().includes(word);
  for (const link of $$("nav.pages a").filter(has)) add(link.firstChild.textContent.trim(), texts.page, () => link.click());
  const acts = $$("main .actions .btn, main .actions button, main .filter a.btn").filter((act) => has(act) && !act.disabled);
  for (const act of acts) add(act.textContent.trim(), texts.action, () => act.click());
  if (word) add(text.trim(), texts.search, visit(`/jobs?q=${encodeURIComponent(text.trim())}`));
  return found;
}

/** Pages about tasks, queues, workers and schedules of this name. */
async function named(word) {
  const answer = await fetch(`${root}/api/v1/find?q=${encodeURIComponent(word)}`).catch(() => undefined);
  if (!answer?.ok) return [];
  const found = (await answer.json()).items.filter(({ kind }) => kind !== "job"); // a number is offered anyway
  return found.map(({ label, kind, path }) => ({ label, hint: texts[kind], run: () => location.assign(root + path) }));
}

function palette() {
  const input = make("input", { role: "combobox", "aria-expanded": "true", "aria-controls": "commands", "aria-label": texts.commands, placeholder: texts.commands, autocomplete: "off", maxlength: 200 });
  const list = make("ul", { id: "commands", role: "listbox", "aria-label": texts.commands });
  const dialog = openDialog(texts.commands, make("div", { class: "palette" }, input, list));
  const put = (items) => {
    list.replaceChildren(...items.slice(0, 30).map(({ label, hint, run }, index) => {
      const item = make("li", { role: "option", id: `command-${index}`, "aria-selected": String(index === 0) }, make("span", {}, label), make("span", { class: "muted small" }, hint));
      item.addEventListener("click", () => {
        dialog.close();
        run();
      });
      return item;
    }));
    if (!items.length) list.append(make("li", { class: "muted" }, texts.nothing));
  };
  input.addEventListener("input", async () => {
    const text = input.value;
    put(commands(text));
    const word = text.trim();
    if (!word) return;
    const more = await named(word);
    if (more.length && input.value === text) put([...commands(text), ...more]);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") moveChoice(list, input, event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter") $("[aria-selected=true]", list)?.click();
    else return;
    event.preventDefault();
  });
  put(commands(""));
  input.focus();
}

// Keys
const LETTERS = {
  "/": () => $("[data-search]").focus(),
  "?": help,
  t: switchZone,
  g: () => (goUntil = Date.now() + GO_WITHIN),
  j: () => move(1),
  k: () => move(-1),
  x: () => tickRow(false),
  X: () => tickRow(true),
  n: () => $("main a[rel=next]")?.click(),
  p: () => $("main a[rel=prev]")?.click(),
  r: () => press("r"),
  [RESCHEDULE]: () => press(RESCHEDULE),
  ".": () => press("."),
};

function isTyping(target) {
  return target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
}

function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return palette();
  }
  if (event.key === "Escape" && event.target.matches?.("[data-search]")) return event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || $("dialog[open]") || isOff()) return;
  if (Date.now() < goUntil) {
    goUntil = 0;
    const link = $(`nav.pages [data-go="${CSS.escape(event.key)}"]`);
    if (link) return link.click();
  }
  if (Object.hasOwn(LETTERS, event.key)) {
    event.preventDefault();
    LETTERS[event.key]();
  }
}

export function start() {
  document.addEventListener("keydown", pressed);
  on("click", "[data-keys-help]", help);
}
