// Live updates: one event stream while the tab is visible, or a refresh every 5 s where no stream comes through.
// The server sends an event at least every 5 s; without any for some time, the page says that it is old.
import { $, $$, on, root, say, texts } from "./dom.js";
import { refresh } from "./fragments.js";
import { clock } from "./times.js";

const HELLO_WITHIN = 3000, POLL_EVERY = 5000, LEAST_PAUSE = 3000;
let source, helloTimer, pollTimer, silenceTimer, isConnected = false, isStopped = false, isStale = false;
let lastGood = new Date(), took = 0, isBusy = false, next = Infinity, timer;

const hasTopics = () => Boolean(document.body.dataset.topics);
const patience = () => 1000 * Number(document.body.dataset.staleAfter);

/** The server was heard: it counts as gone if nothing follows. */
function heard() {
  clearTimeout(silenceTimer);
  silenceTimer = setTimeout(() => {
    close();
    stale("unreachable");
    refreshSoon(0);
  }, patience());
}

/** Show how the page is kept up to date, and poll if the stream does not do it. */
function settle() {
  const state = isStopped ? "stopped" : isStale ? "offline" : isConnected ? "live" : source ? "connecting" : "polling";
  const dot = $(".live"), text = $("span", dot);
  dot.hidden = !hasTopics() && !isStale;
  dot.dataset.live = state;
  dot.setAttribute("aria-pressed", String(!isStopped));
  if (text.textContent !== texts[state]) text.textContent = texts[state];
  const needsPolling = !isStopped && !document.hidden && (isStale || (hasTopics() && !source));
  if (needsPolling) pollTimer ??= setInterval(() => refreshSoon(0), POLL_EVERY);
  else pollTimer = clearInterval(pollTimer);
}

/** Mark the page as old, and switch its actions off; or bring it back. */
function stale(reason) {
  isStale = Boolean(reason);
  document.documentElement.classList.toggle("stale", isStale);
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
  settle();
}

/** Refresh as soon as the last refresh is far enough away. The earliest of several requests counts. */
export function refreshSoon(pause = Math.max(LEAST_PAUSE, 20 * took)) {
  next = Math.min(next, lastGood.getTime() + pause);
  plan();
}

function plan() {
  clearTimeout(timer);
  if (isBusy || isStopped || document.hidden || next === Infinity) return;
  timer = setTimeout(run, Math.max(0, next - Date.now()));
}

async function run() {
  next = Infinity;
  isBusy = true;
  const began = Date.now();
  try {
    await refresh(AbortSignal.timeout(patience()));
    took = Math.min(Date.now() - began, 1500);
    lastGood = new Date();
    const isBack = isStale;
    stale("");
    if (isBack) open();
  } catch (error) {
    if (!isStopped) stale(error.status === 0 ? "unreachable" : "down");
  }
  isBusy = false;
  plan();
}

function open() {
  if (isStopped || document.hidden || source || !hasTopics()) return settle();
  const address = `${root}/api/v1/events?topics=${encodeURIComponent(document.body.dataset.topics)}`;
  source = new EventSource(address);
  helloTimer = setTimeout(close, HELLO_WITHIN);
  heard();
  for (const name of ["hello", "overview", "changed", "down", "up", "alive"]) source.addEventListener(name, heard);
  source.addEventListener("hello", () => {
    clearTimeout(helloTimer);
    isConnected = true;
    settle();
  });
  source.addEventListener("overview", (event) => {
    document.dispatchEvent(new CustomEvent("gw:overview", { detail: JSON.parse(event.data) }));
  });
  source.addEventListener("changed", () => refreshSoon());
  source.addEventListener("down", () => stale("down"));
  source.addEventListener("up", () => refreshSoon(0));
  source.addEventListener("error", () => {
    isConnected = false;
    if (source?.readyState === EventSource.CLOSED) close();
    else settle();
  });
  settle();
}

function close() {
  clearTimeout(helloTimer);
  clearTimeout(silenceTimer);
  source?.close();
  source = undefined;
  isConnected = false;
  settle();
}

/** Stop or continue. */
function toggle() {
  isStopped = !isStopped;
  if (isStopped) close();
  else proceed();
}

function proceed() {
  open();
  refreshSoon(0);
}

export function start() {
  on("click", ".live", toggle);
  document.addEventListener("gw:zone", () => refreshSoon(0));
  document.addEventListener("gw:page", () => {
    lastGood = new Date();
    stale("");
    close();
    open();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (!isStopped) proceed();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && !isStopped && proceed());
  open();
}
