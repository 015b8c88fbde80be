// Runs the search of the built site, as a browser does: `node search.cjs FOLDER QUERY…` prints the pages found for each query,
// the best first, as JSON.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, ...queries] = process.argv.slice(2);
const workers = path.join(folder, "assets/javascripts/workers");
const [name] = fs.readdirSync(workers).filter((each) => each.endsWith(".js"));
const index = JSON.parse(fs.readFileSync(path.join(folder, "search/search_index.json"), "utf8"));

let receive;
let answer;
const scope = {
  console,
  addEventListener: (_, listener) => (receive = listener),
  postMessage: (message) => answer(message),
};
scope.self = scope;
vm.runInNewContext(fs.readFileSync(path.join(workers, name), "utf8"), scope);
const ask = (message) => new Promise((resolve) => ((answer = resolve), receive({ data: message })));

(async () => {
  await ask({ type: 0, data: { ...index, options: { suggest: false } } });
  const found = {};
  for (const query of queries) {
    const { data } = await ask({ type: 2, data: query });
    found[query] = data.items.map((sections) => sections[0].location.split("#")[0]);
  }
  console.log(JSON.stringify(found));
})();
