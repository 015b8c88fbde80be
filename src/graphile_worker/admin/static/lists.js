// What this browser remembers about lists: which columns to show, and filters that were saved.
import { $, $$, make, memory, openDialog, texts } from "./dom.js";

const sheet = new CSSStyleSheet();
document.adoptedStyleSheets.push(sheet);

const read = (name) => {
  try { return JSON.parse(memory.get(name)) ?? []; } catch { return []; }
};

// Columns are hidden by a rule of our own, so that rows which come later obey it, too.
function hideColumns() {
  const rules = $$("table[data-columns]").flatMap((table) => {
    const names = $$("thead th", table).map((cell) => cell.textContent.trim());
    const hidden = read(`columns-${table.dataset.columns}`);
    const at = names.flatMap((name, index) => (hidden.includes(name) ? [index + 1] : []));
    return at.map((index) => `table[data-columns="${CSS.escape(table.dataset.columns)}"] tr > :nth-child(${index}) { display: none; }`);
  });
  sheet.replaceSync(rules.join("\n"));
}

function columnMenu(place) {
  const table = $(`table[data-columns="${CSS.escape(place.dataset.columnsFor)}"]`);
  if (!table) return;
  const name = `columns-${table.dataset.columns}`;
  const boxes = $$("thead th:not(.tick)", table).map((cell) => {
    const column = cell.textContent.trim();
    const box = make("input", { type: "checkbox", checked: !read(name).includes(column) });
    box.addEventListener("change", () => {
      const others = read(name).filter((other) => other !== column);
      memory.set(name, JSON.stringify(box.checked ? others : [...others, column]));
      hideColumns();
    });
    return make("label", { class: "check" }, box, column);
  });
  place.replaceChildren(menu(texts.columns, boxes));
}

const menu = (label, content) =>
  make("details", { class: "menu" }, make("summary", { class: "btn" }, label), make("div", { class: "sheet" }, ...content));

function savedMenu(place) {
  const saved = read("filters");
  const entries = saved.map(({ name, query }) => make("a", { href: `${location.pathname}?${query}` }, name));
  const save = make("button", { type: "button" }, texts.save_filter);
  save.addEventListener("click", () => saveFilter(place));
  const forget = make("button", { type: "button", class: "danger" }, texts.forget_filter);
  const query = location.search.slice(1);
  const known = saved.find((filter) => filter.query === query);
  forget.addEventListener("click", () => keep(place, saved.filter((filter) => filter !== known)));
  place.replaceChildren(menu(texts.saved_filters, [...entries, ...(known ? [forget] : query ? [save] : []), ...(entries.length || query ? [] : [make("p", { class: "muted small" }, texts.no_filters)])]));
}

function keep(place, filters) {
  memory.set("filters", JSON.stringify(filters));
  savedMenu(place);
}

function saveFilter(place) {
  const input = make("input", { id: "filter-name", maxlength: 60, required: true, autocomplete: "off" });
  const field = make("div", { class: "field" }, make("label", { for: "filter-name" }, texts.filter_name), input);
  const form = make("form", { method: "dialog" }, make("div", { class: "palette" }, field), make("div", { class: "foot" }, make("button", { class: "btn primary" }, texts.save)));
  form.addEventListener("submit", () => {
    keep(place, [...read("filters"), { name: input.value.trim(), query: location.search.slice(1) }]);
  });
  openDialog(texts.save_filter, form);
  input.focus();
}

function build() {
  hideColumns();
  $$("[data-columns-for]").forEach(columnMenu);
  $$("[data-saved-filters]").forEach(savedMenu);
}

export function start() {
  document.addEventListener("gw:page", build);
  build();
}
