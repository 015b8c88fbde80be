// Theme and density: chosen in the user's menu, kept in this browser.
import { $$, memory, on, setCookie } from "./dom.js";

const html = document.documentElement;

function density() {
  html.classList.toggle("compact", memory.get("density") === "compact");
}

export function start() {
  density();
  on("click", "[data-theme-choice]", (_, button) => {
    const theme = button.dataset.themeChoice;
    if (theme) html.dataset.theme = theme;
    else delete html.dataset.theme;
    setCookie("gw_theme", theme);
    for (const other of $$("[data-theme-choice]")) other.setAttribute("aria-pressed", String(other === button));
  });
  on("click", "[data-density]", () => {
    memory.set("density", html.classList.contains("compact") ? "" : "compact");
    density();
  });
  document.querySelector("nav.pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}
