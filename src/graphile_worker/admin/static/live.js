// Live updates: one event stream while the tab is visible, or a refresh every 5 s where no stream comes through.
import { $, $$, on, root, say, texts } from "./dom.js";
import { refresh } from "./fragments.js";
import { clock } from "./times.js";

const HELLO_WITHIN = 3000, POLL_EVERY = 5000, LEAST_PAUSE = 3000;
let source, helloTimer, pollTimer, isStopped = false;
let lastGood = new Date(), soon, busy = false, again = false, took = 0;

function show(state) {
  const dot = $(".live");
  dot.hidden = false;
  dot.dataset.live = state;
  dot.setAttribute("aria-pressed", String(state !== "stopped"));
  const text = $("span", dot), word = texts[state];
  if (text.textContent !== word) text.textContent = word;
}

/** Mark the page as old, and switch its actions off; or bring it back. */
function stale(reason) {
  document.documentElement.classList.toggle("stale", Boolean(reason));
  const banner = $("[data-stale]");
  if (banner) {
    banner.hidden = !reason;
    if (reason) banner.textContent = say(reason, { time: clock(lastGood) });
  }
  for (const button of $$("main button:not([type=button]), main [data-off]")) {
    if (reason && !button.disabled) button.disabled = button.dataset.off = true;
    else if (!reason && button.dataset.off) {
      button.disabled = false;
      delete button.dataset.off;
    }
  }
}

/** Refresh now, or as soon as the last refresh is far enough away. */
export function refreshSoon(pause = Math.max(LEAST_PAUSE, 20 * took)) {
  if (isStopped || document.hidden) return;
  if (busy) again = true;
  else soon ??= setTimeout(run, Math.max(0, lastGood.getTime() + pause - Date.now()));
}

async function run() {
  soon = undefined;
  busy = true;
  const began = Date.now();
  try {
    await refresh();
    took = Math.min(Date.now() - began, 1500);
    lastGood = new Date();
    stale("");
    if (source || pollTimer) show(pollTimer ? "polling" : "live");
  } catch (error) {
    lost(error.status === 0 ? "unreachable" : "down");
  }
  busy = false;
  if (again) refreshSoon();
  again = false;
}

function lost(reason) {
  stale(reason);
  show("offline");
  poll();
}

function poll() {
  pollTimer ??= setInterval(() => refreshSoon(0), POLL_EVERY);
}

function endPolling() {
  clearInterval(pollTimer);
  pollTimer = undefined;
}

function open() {
  if (isStopped || document.hidden || source || !document.body.dataset.topics) return;
  show("connecting");
  const address = `${root}/api/v1/events?topics=${encodeURIComponent(document.body.dataset.topics)}`;
  source = new EventSource(address);
  helloTimer = setTimeout(fallBack, HELLO_WITHIN);
  source.addEventListener("hello", () => {
    clearTimeout(helloTimer);
    endPolling();
    show("live");
  });
  source.addEventListener("overview", (event) => {
    document.dispatchEvent(new CustomEvent("gw:overview", { detail: JSON.parse(event.data) }));
  });
  source.addEventListener("changed", () => refreshSoon());
  source.addEventListener("down", () => lost("down"));
  source.addEventListener("up", () => refreshSoon(0));
  source.addEventListener("error", () => source?.readyState === EventSource.CLOSED ? fallBack() : show("connecting"));
}

function fallBack() {
  close();
  show("polling");
  poll();
}

function close() {
  clearTimeout(helloTimer);
  source?.close();
  source = undefined;
}

/** Stop or continue. */
export function toggle() {
  isStopped = !isStopped;
  if (isStopped) {
    close();
    endPolling();
    show("stopped");
  } else {
    open();
    refreshSoon(0);
  }
}

export function start() {
  on("click", ".live", toggle);
  document.addEventListener("gw:zone", () => refreshSoon(0));
  document.addEventListener("gw:page", () => {
    close();
    open();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      endPolling();
    } else if (!isStopped) {
      open();
      refreshSoon(0);
    }
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
}
