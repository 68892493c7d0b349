// The box that questions are written in.

/**
 * Enter sends, Shift + Enter begins a new line. While an input method composes, Enter chooses a character.
 * @param {HTMLTextAreaElement} text
 * @param {() => void} send
 */
export function sendOnEnter(text, send) {
  let composing = false;
  text.addEventListener("compositionstart", () => (composing = true));
  text.addEventListener("compositionend", () => setTimeout(() => (composing = false)));
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.isComposing || composing || event.keyCode === 229) return;
    event.preventDefault();
    send();
  });
}

/**
 * Nothing of a long text is cut: it is not sent, and the reason is shown. Returns what counts again.
 * @param {HTMLTextAreaElement} text its `data-longest` is the most characters, as the server counts them
 * @param {HTMLElement} into
 */
export function countCharacters(text, into) {
  const longest = Number(text.dataset.longest);
  const count = () => {
    const written = [...text.value.trim()].length;
    into.textContent = written > 0.8 * longest ? `${written} of at most ${longest} characters` : "";
    into.classList.toggle("worse", written > longest);
    text.setAttribute("aria-invalid", String(written > longest));
    text.setCustomValidity(written > longest ? `A question here has at most ${longest} characters; this one has ${written}.` : "");
  };
  text.addEventListener("input", count);
  return count;
}

/**
 * What is not sent yet, kept in this browser. `key`: whose it is.
 * @param {string} key
 * @param {string} said
 */
export function keepDraft(key, said) {
  try {
    if (said.trim()) localStorage.setItem(key, said);
    else localStorage.removeItem(key);
  } catch {
    // a browser that keeps nothing
  }
}

/** @param {string} key */
export function fetchDraft(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}
