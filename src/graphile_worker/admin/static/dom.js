// Small helpers that all modules share.
export const root = document.body.dataset.root;
export const texts = JSON.parse(document.getElementById("texts").textContent);
export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** A text of texts.py with its values filled in. */
export const say = (name, values = {}) => texts[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);

/** Make an element. Children are elements or text, never markup. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Listen on the document for events of elements that match, also of those that come later. */
export function on(type, selector, handler) {
  document.addEventListener(type, (event) => {
    const found = event.target.closest?.(selector);
    if (found) handler(event, found);
  });
}

/** Show a line above the page; screen readers read it out. */
export function notify(text, tone = "") {
  $("[data-notices]").replaceChildren(make("div", { class: `notice ${tone}` }, text));
}

export function setCookie(name, value) {
  const age = value ? 31536000 : 0;
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `${name}=${encodeURIComponent(value)}; path=${root || "/"}; max-age=${age}; samesite=lax${secure}`;
}

/** What this browser remembers; a browser that refuses remembers nothing. */
export const memory = {
  get(name) {
    try { return localStorage.getItem(`gw-${name}`); } catch { return null; }
  },
  set(name, value) {
    try { localStorage.setItem(`gw-${name}`, value); } catch { /* private mode */ }
  },
};

/** Close whatever dialog is open, and remove it now: its close event comes later. */
export function closeDialogs() {
  for (const dialog of $$("dialog")) {
    dialog.close();
    dialog.remove();
  }
}

/** Open a dialog with a title and content; it is removed when it closes. */
export function openDialog(title, ...content) {
  const close = make("button", { class: "btn small", type: "button", "data-close": true }, "Close");
  const heading = make("h2", { class: "grow", id: "dialog-title" }, title);
  const dialog = make("dialog", { "aria-labelledby": "dialog-title" }, make("header", {}, heading, close), ...content);
  closeDialogs();
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.showModal();
  return dialog;
}
