// Copy to the clipboard, also over plain HTTP, where browsers offer no clipboard object.
import { $, on, make, notify, texts } from "./dom.js";

async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = make("textarea", { class: "hidden", readonly: true });
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("refused");
}

/** The text that a button copies: its own, or that of the block it stands in. */
function textOf(button) {
  if (button.dataset.copy === "link") return location.href;
  if (button.dataset.copy) return button.dataset.copy;
  const block = $("pre, textarea, code", button.closest(".code, .panel"));
  return block.dataset.text ?? block.value ?? block.textContent;
}

export function start() {
  on("click", "[data-copy]", async (_, button) => {
    const label = button.textContent;
    try {
      await copy(textOf(button));
      button.textContent = texts.copied;
      setTimeout(() => (button.textContent = label), 1500);
    } catch {
      notify(texts.copy_failed, "warn");
    }
  });
}
