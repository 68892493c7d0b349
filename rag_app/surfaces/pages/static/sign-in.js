// The code of a link stands behind its `#`, which browsers send to nobody. It goes into the form, and out of the history.
function enter() {
  const code = decodeURIComponent(location.hash.slice(1));
  if (!code) return;
  history.replaceState(null, "", location.pathname + location.search);
  const form = /** @type {HTMLFormElement} */ (document.getElementById("code-form"));
  /** @type {HTMLInputElement} */ (document.getElementById("code")).value = code;
  form.requestSubmit();
}
addEventListener("hashchange", enter); // a link that is pasted into this page loads nothing
enter();
