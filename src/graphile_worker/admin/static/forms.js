// Actions without leaving the page: questions come as dialogs. Every form works without this, too.
import { $, $$, closeDialogs, make, notify, on, openDialog, say, texts } from "./dom.js";
import { adopt, load } from "./fragments.js";
import { inBothZones, typed } from "./times.js";

/** Show what a request led to: a question in a dialog, an error, or the page it ends on. */
function show({ page, status, url }) {
  const sheet = $("form[data-sheet]", page);
  const heading = $("h1", page)?.textContent.trim() ?? "";
  if (sheet) {
    const dialog = openDialog(heading, ownIds(document.importNode(sheet, true)));
    sayTimes(dialog);
    $("input:not([type=hidden]), textarea, select, button:not([data-close])", dialog)?.focus();
    return;
  }
  closeDialogs();
  if (status >= 400) {
    const detail = $("main .lead p", page)?.textContent ?? "";
    notify(say("failed", { why: [heading, detail].filter(Boolean).join(". ") }), "bad");
  } else if ($("main", page)) {
    adopt(page, url);
    $("main").focus({ preventScroll: true });
  } else location.assign(url);
}

/** Give the fields of a dialog ids of their own: the page below may have fields of the same names. */
function ownIds(sheet) {
  for (const element of $$("[id], [for], [list], [aria-describedby]", sheet)) {
    for (const name of ["id", "for", "list", "aria-describedby"]) {
      if (element.hasAttribute(name)) element.setAttribute(name, `dialog-${element.getAttribute(name)}`);
    }
  }
  return sheet;
}

/** Ask before a button is pressed by a key; what follows is sent as confirmed. */
export function ask(button) {
  const label = button.textContent.trim();
  const about = button.closest("[data-bulk]") ? $("[data-selected]").textContent : $("main h1")?.firstChild.textContent.trim();
  const yes = make("button", { class: "btn primary", type: "button" }, label);
  const no = make("button", { class: "btn", type: "button", "data-close": true }, texts.cancel);
  yes.addEventListener("click", () => {
    closeDialogs();
    send(button.form, button, { confirmed: "yes" });
  });
  openDialog(`${label}?`, make("p", { class: "body" }, about), make("div", { class: "foot" }, yes, no));
  yes.focus();
}

async function send(form, submitter, more = {}) {
  const fields = new URLSearchParams(new FormData(form, submitter));
  for (const [name, value] of Object.entries(more)) fields.set(name, value);
  submitter?.setAttribute("aria-disabled", "true");
  try {
    show(await load(form.getAttribute("action"), { method: "POST", body: fields }));
  } catch {
    notify(say("failed", { why: texts.offline }), "bad");
  } finally {
    submitter?.removeAttribute("aria-disabled");
  }
}

// Selection in lists: Shift selects a range, and the bar of actions comes with the first tick.
let lastTick;

function selected() {
  const count = $$("tbody .tick input:checked").length;
  for (const bar of $$("[data-bulk]")) bar.hidden = !count;
  for (const place of $$("[data-selected]")) place.textContent = say("selected", { n: count.toLocaleString("en") });
  for (const all of $$("[data-all]")) {
    const ticks = $$("tbody .tick input", all.closest("table"));
    const checked = ticks.filter((tick) => tick.checked).length;
    all.checked = checked > 0 && checked === ticks.length;
    all.indeterminate = checked > 0 && checked < ticks.length;
  }
}

/** Tick a row, or with Shift all rows from the last one. */
export function select(tick, isRange) {
  const ticks = $$(".tick input", tick.closest("tbody"));
  const [first, last] = [ticks.indexOf(tick), ticks.indexOf(lastTick)].sort((a, b) => a - b);
  if (isRange && first >= 0) for (const other of ticks.slice(first, last + 1)) other.checked = tick.checked;
  lastTick = tick;
  selected();
}

// Completion in the filter box: data-complete is the address, which answers with a list of {value, hint}.
async function complete(input) {
  const upTo = input.value.slice(0, input.selectionStart);
  const word = upTo.match(/\S*$/)[0];
  const asked = (input.asked = word);
  if (!word) return closeOptions(input);
  const address = new URL(input.dataset.complete, location.href);
  address.searchParams.set("q", word);
  const answer = await fetch(address).catch(() => undefined);
  if (!answer?.ok || input.asked !== asked) return;
  options(input, (await answer.json()).items ?? [], word);
}

function options(input, items, word) {
  closeOptions(input);
  if (!items.length) return;
  const list = make("ul", { class: "options", role: "listbox", id: "options", "aria-label": texts.search });
  items.forEach(({ value, hint }, index) => {
    const item = make("li", { role: "option", id: `option-${index}` }, make("span", {}, value), make("span", { class: "muted small" }, hint ?? ""));
    item.addEventListener("mousedown", (event) => {
      event.preventDefault();
      take(input, value, word);
    });
    list.append(item);
  });
  input.setAttribute("aria-expanded", "true");
  input.setAttribute("aria-controls", "options");
  input.parentElement.append(list);
}

function closeOptions(input) {
  $(".options", input.parentElement)?.remove();
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

function take(input, value, word) {
  const end = input.selectionStart, start = end - word.length;
  const space = value.endsWith(":") ? "" : " ";
  input.setRangeText(value + space, start, end, "end");
  closeOptions(input);
  if (!space) complete(input);
}

/** Move the choice in a list of options; used by the filter box and the commands. */
export function moveChoice(list, input, step) {
  const items = $$("[role=option]", list);
  if (!items.length) return;
  const now = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
  const next = items[(now + step + items.length) % items.length];
  for (const item of items) item.setAttribute("aria-selected", String(item === next));
  input.setAttribute("aria-activedescendant", next.id);
  next.scrollIntoView({ block: "nearest" });
}

function keysOfBox(event, input) {
  const list = $(".options", input.parentElement);
  if (!list) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") moveChoice(list, input, event.key === "ArrowDown" ? 1 : -1);
  else if (event.key === "Escape") closeOptions(input);
  else if (event.key === "Enter" || event.key === "Tab") {
    const item = $("[aria-selected=true]", list);
    if (!item) return closeOptions(input);
    take(input, item.firstChild.textContent, input.asked);
  } else return;
  event.preventDefault();
}

/** Say which moment a time is that was typed in the viewer's zone, as the server reads it. */
function sayTime(input) {
  const hint = document.getElementById(input.getAttribute("aria-describedby"));
  if (!hint) return;
  hint.plain ??= hint.textContent;
  const at = typed(input.value);
  hint.textContent = at ? `${hint.plain} ${say("typed_time", { time: inBothZones(at) })}` : hint.plain;
}

function sayTimes(within = document) {
  for (const input of $$("input[type=datetime-local]", within)) sayTime(input);
}

/** A hint of the server names the zone; another one was chosen since. */
function renameZone({ detail: { before, now } }) {
  for (const input of $$("input[type=datetime-local]")) {
    const hint = document.getElementById(input.getAttribute("aria-describedby"));
    if (hint) hint.plain = (hint.plain ?? hint.textContent).replace(before, now);
  }
  sayTimes();
}

export function start() {
  on("submit", "form[data-act], dialog form", (event, form) => {
    if (form.getAttribute("method") !== "post") return; // form.method could be a field of that name
    event.preventDefault();
    if (event.submitter?.getAttribute("aria-disabled") !== "true") send(form, event.submitter);
  });
  on("click", "a[data-dialog]", (event, link) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    load(link.href).then(show, () => location.assign(link.href));
  });
  on("click", "dialog [data-close]", (event, button) => {
    event.preventDefault();
    button.closest("dialog").close();
  });
  on("click", "tbody .tick input", (event, tick) => select(tick, event.shiftKey));
  on("click", "[data-all]", (_, all) => {
    for (const tick of $$("tbody .tick input", all.closest("table"))) tick.checked = all.checked;
    selected();
  });
  on("input", "input[data-complete]", (_, input) => complete(input));
  on("keydown", "input[data-complete]", keysOfBox);
  on("focusout", "input[data-complete]", (_, input) => closeOptions(input));
  document.addEventListener("click", (event) => {
    for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  addEventListener("popstate", () => location.reload());
  on("input", "input[type=datetime-local]", (_, input) => sayTime(input));
  document.addEventListener("gw:zone", renameZone);
  document.addEventListener("gw:page", () => sayTimes());
  sayTimes();
  document.addEventListener("gw:refreshed", selected);
  document.addEventListener("gw:page", selected);
  selected();
}
