// The code of a link stands behind its `#`, which browsers send to nobody. It goes into the form, and out of the history.
const code = decodeURIComponent(location.hash.slice(1));
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = /** @type {HTMLFormElement} */ (document.getElementById("code-form"));
  /** @type {HTMLInputElement} */ (document.getElementById("code")).value = code;
  form.requestSubmit();
}
