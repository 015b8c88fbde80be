// Relative times that tick, exact times in the viewer's zone or in UTC. The rules are those of times.py.
import { $, $$, memory, on, say, setCookie } from "./dom.js";

const local = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
let zone = document.body.dataset.zone;

const short = (value) => (value < 9.95 ? value.toFixed(1).replace(".0", "") : value.toFixed(0));

/** 850 ms, 1.5 s, 2 min 5 s, 3 h, 2 days; as `duration` in values/text.py. */
export function duration(seconds, units = 2) {
  if (!seconds) return "0 s";
  if (seconds < 0.9995) return `${short(Math.max(1000 * seconds, 0.1))} ms`;
  if (seconds < 59.5) return `${short(seconds)} s`;
  const whole = Math.round(seconds);
  const [size, unit, partSize, partUnit] = whole >= 172800 ? [86400, "days", 3600, "h"]
    : whole >= 3600 ? [3600, "h", 60, "min"] : [60, "min", 1, "s"];
  const number = Math.floor(whole / size), part = units > 1 && number < 100 ? Math.floor((whole % size) / partSize) : 0;
  return `${number.toLocaleString("en")} ${unit}${part ? ` ${part} ${partUnit}` : ""}`;
}

function relative(at, now) {
  const seconds = (at - now) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  const words = duration(Math.floor(Math.abs(seconds)), 1);
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

/** The exact time in the zone of the viewer, and in UTC if that is another one. */
export function inBothZones(at) {
  const here = exact(parts(at, zone)), universal = exact(parts(at, "UTC"));
  return zone === "UTC" ? universal : `${here} · ${universal}`;
}

const HOUR = 3600000;

/** How far the clocks of the viewer's zone are ahead of UTC, in milliseconds. */
function ahead(at) {
  const p = parts(at, zone);
  return Date.UTC(p.year, p.month - 1, p.day, p.hour, p.minute, p.second) - Math.floor(at / 1000) * 1000;
}

/** The moment of a time that was typed in the viewer's zone; undefined if it is not complete.
 *  As Python reads it: of a time that occurs twice the first one, and one that is skipped as before the change. */
export function typed(text) {
  const wall = Date.parse(`${text}Z`);
  if (isNaN(wall)) return undefined;
  const before = ahead(wall - 24 * HOUR), after = ahead(wall + 24 * HOUR);
  const isLater = ahead(wall - before) !== before && ahead(wall - after) === after;
  return new Date(wall - (isLater ? after : before));
}

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
  for (const element of $$("time[data-ago]")) {
    const at = new Date(element.dateTime);
    put(element, element.hasAttribute("data-exact") ? exact(parts(at, zone)) : relative(at, now));
  }
}

/** Write all exact times of an element in the zone of the viewer. */
export function localise(within = document) {
  const now = new Date();
  for (const element of $$("time[datetime]", within)) {
    const at = new Date(element.dateTime);
    if (isNaN(at)) continue;
    element.title = inBothZones(at);
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
  change(zone === "UTC" ? local : "UTC");
}

function change(name) {
  const before = zone;
  choose(name);
  if (name !== before) document.dispatchEvent(new CustomEvent("gw:zone", { detail: { before, now: name } }));
}

export function start() {
  change(memory.get("zone") === "UTC" ? "UTC" : local);
  on("click", "[data-zone-switch]", switchZone);
  on("click", "time[data-ago]", (_, element) => {
    element.toggleAttribute("data-exact");
    tick();
  });
  setInterval(() => document.hidden || tick(), 1000);
}
