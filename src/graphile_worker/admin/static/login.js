// Signs in with the secret of a one-time link, which is in the fragment so that it reaches no log.
const form = document.querySelector("[data-one-time-link]");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (form && token) {
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.token.value = token;
  form.requestSubmit();
}
