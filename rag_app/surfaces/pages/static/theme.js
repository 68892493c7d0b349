// Light or dark: as the system has it, until somebody chooses. Runs before the first paint, so it is no module.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try {
    kept = localStorage.getItem("theme");
  } catch {
    // a browser that keeps nothing
  }
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  // on a phone the menus are wider than the screen
  addEventListener("DOMContentLoaded", () => {
    for (const here of document.querySelectorAll(".menu [aria-current], .tabs [aria-current]")) {
      here.scrollIntoView({ block: "nearest", inline: "center" });
    }
  });
  addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("[data-theme-toggle]")) return;
    const now = root.dataset.theme ?? (system.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // it holds for this page
    }
  });
})();
