// At the beginning of the site's search worker: leaves small words out of a question. The search looks for every word as the
// beginning of others, so the "a" of "pause a queue" would find whatever begins with an a.
{
  const QUERY = 2; // the type of a message, as the theme numbers them
  const SMALL =
    /(?<![\w"+~^-])(?:an?|and|are|at|be|by|can|do|does|for|from|how|i|in|is|it|its|my|not|of|on|or|our|so|that|the|this|to|we|what|when|where|which|why|will|with)(?![\w"-])/gi;
  const listen = self.addEventListener.bind(self);
  self.addEventListener = (kind, listener) =>
    listen(kind, (event) => {
      const { type, data } = event.data;
      const rest = type === QUERY ? data.replace(/\?/g, " ").replace(SMALL, " ").trim() : "";
      return listener(rest ? { data: { type, data: rest } } : event);
    });
}
