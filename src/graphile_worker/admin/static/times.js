// Relative times that tick, exact times in the viewer's zone or in UTC. The rules are those of times.py.
import { $, $$, memory, on, say, setCookie } from "./dom.js";

const local = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
let zone;


function coarse(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400).toLocaleString("en")} days`;
}

function relative(at, now) {
  const seconds = (at - now) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  const words = coarse(Math.abs(seconds));
  return seconds > 0 ? `in ${words}` : `${words} ago`;
}

function parts(at, timeZone) {
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", timeZoneName: "short",
  });
  return Object.fromEntries(format.formatToParts(at).map((part) => [part.type, part.value]));
}

const exact = (p) => `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second} ${p.timeZoneName}`;

/** 03:14:07 today, 15 Nov 03:14 in this year, else 2025-11-15 03:14. */
export function clock(at, now = new Date()) {
  const p = parts(at, zone), today = parts(now, zone);
  if (p.year !== today.year) return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}`;
  if (p.month === today.month && p.day === today.day) return `${p.hour}:${p.minute}:${p.second}`;
  const month = new Intl.DateTimeFormat("en-GB", { timeZone: zone, month: "short" }).format(at).slice(0, 3);
  return `${Number(p.day)} ${month} ${p.hour}:${p.minute}`;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick() {
  const now = new Date();
  for (const element of $$("time[data-ago]")) put(element, relative(new Date(element.dateTime), now));
}

/** Write all exact times of an element in the zone of the viewer. */
export function localise(within = document) {
  const now = new Date();
  for (const element of $$("time[datetime]", within)) {
    const at = new Date(element.dateTime);
    if (isNaN(at)) continue;
    const here = exact(parts(at, zone)), universal = exact(parts(at, "UTC"));
    element.title = zone === "UTC" ? universal : `${here} · ${universal}`;
    if (element.hasAttribute("data-clock")) put(element, clock(at, now));
  }
}

function choose(name) {
  zone = name;
  setCookie("gw_zone", name);
  memory.set("zone", name === "UTC" ? "UTC" : "");
  put($("[data-zone-name]"), say("local", { zone }));
  for (const element of $$("[data-zone-switch]")) put(element, say("local", { zone: zone === "UTC" ? local : "UTC" }));
  localise();
}

/** Switch between UTC and the viewer's zone. */
export function switchZone() {
  choose(zone === "UTC" ? local : "UTC");
  document.dispatchEvent(new Event("gw:zone"));
}

export function start() {
  zone = document.body.dataset.zone;
  choose(memory.get("zone") === "UTC" ? "UTC" : local);
  if (zone !== document.body.dataset.zone) document.dispatchEvent(new Event("gw:zone"));
  on("click", "[data-zone-switch]", switchZone);
  setInterval(() => document.hidden || tick(), 1000);
}
