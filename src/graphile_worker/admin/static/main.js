// The browser's part, one module per subject. Pages work without it.
import * as chart from "./chart.js";
import * as copy from "./copy.js";
import * as forms from "./forms.js";
import * as frame from "./frame.js";
import * as keys from "./keys.js";
import * as lists from "./lists.js";
import * as live from "./live.js";
import * as times from "./times.js";

document.documentElement.classList.add("js");
// The times come last: at the first visit they ask for the page again, in the viewer's zone.
for (const part of [frame, copy, forms, keys, chart, lists, live, times]) part.start();
