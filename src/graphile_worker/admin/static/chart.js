// Values of a chart under the pointer, or by the arrow keys while the chart has the focus. The server draws the
// chart; its data attributes hold the values.
import { $, $$, make, on, texts } from "./dom.js";
import { clock, duration } from "./times.js";

let box, shown, at = 0;

function read(value, figure) {
  if (value === "") return texts.unknown;
  const number = Number(value);
  if (figure.dataset.kind === "duration") return duration(number);
  return `${number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 })} ${figure.dataset.unit}`;
}

function close() {
  box?.remove();
  box = shown = undefined;
}

/** Show the values of one moment. */
function show(figure, index) {
  const { start, step, count } = figure.dataset;
  const plot = $("svg", figure).getBoundingClientRect();
  at = Math.max(0, Math.min(count - 1, index));
  const time = make("b", {}, clock(new Date((Number(start) + at * Number(step)) * 1000)));
  const lines = $$("[data-values]", figure).map((line) => {
    const colour = [...line.classList].find((name) => name.startsWith("c"));
    const value = read(line.dataset.values.split(",")[at] ?? "", figure);
    return make("div", { class: "legend" }, make("span", {}, make("i", { class: colour }), line.dataset.name), make("b", {}, value));
  });
  if (!box) {
    box = make("div", { class: "reading", role: "status" });
    box.hand = make("div", { class: "hand" });
    document.body.append(box);
  }
  shown = figure;
  box.replaceChildren(box.hand, time, ...lines);
  const x = plot.left + (plot.width * at) / Math.max(1, count - 1);
  const isRight = x + box.offsetWidth + 24 > innerWidth;
  box.style.left = `${isRight ? x - box.offsetWidth - 12 : x + 12}px`;
  box.style.top = `${Math.max(56, plot.top + 8)}px`;
  box.hand.style.left = `${x}px`;
  box.hand.style.top = `${plot.top}px`;
  box.hand.style.height = `${plot.height}px`;
}

function pointed(event, figure) {
  const plot = $("svg", figure)?.getBoundingClientRect();
  if (!plot?.width) return;
  show(figure, Math.round(((event.clientX - plot.left) / plot.width) * (figure.dataset.count - 1)));
}

export function start() {
  const readable = "figure.chart[data-count]";
  on("pointermove", readable, pointed);
  document.addEventListener("pointerover", (event) => shown && !event.target.closest?.(readable) && close());
  on("focusin", readable, (event, figure) => event.target === figure && show(figure, figure.dataset.count - 1));
  on("focusout", readable, close);
  addEventListener("scroll", close, { passive: true });
  on("keydown", readable, (event, figure) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (step) show(figure, at + step);
    else if (event.key === "Home") show(figure, 0);
    else if (event.key === "End") show(figure, figure.dataset.count - 1);
    else if (event.key === "Escape") return close();
    else return;
    event.preventDefault();
  });
  const focusable = () => $$(readable).forEach((figure) => (figure.tabIndex = 0));
  document.addEventListener("gw:page", focusable);
  focusable();
}
