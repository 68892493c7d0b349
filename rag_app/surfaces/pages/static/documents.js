// Puts files in by the public route, one request a file, with progress of each and the reason where one is refused.

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);
const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute("content") ?? "";
const AT_ONCE = 2;
/** @type {(() => void)[]} */
const waiting = [];
let running = 0;
let done = 0;
let failed = 0;

/** @param {File} file */
function line(file) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  name.textContent = file.name;
  const progress = document.createElement("progress");
  progress.max = 100;
  progress.setAttribute("aria-label", `Upload of ${file.name}`);
  const said = document.createElement("span");
  said.className = "small faint";
  said.textContent = "waiting";
  item.append(name, progress, said);
  by("uploads").append(item);
  return { progress, said };
}

/** @param {XMLHttpRequest} request */
function outcome(request) {
  let body = null;
  try {
    body = JSON.parse(request.responseText);
  } catch {
    // no JSON: a proxy speaks
  }
  const one = body?.documents?.[0];
  if (request.status >= 200 && request.status < 300 && one && one.status !== "failed") {
    const more = one.problems?.length ? `; ${one.problems.join("; ")}` : "";
    return { good: true, text: `${one.status}${more}` };
  }
  const reason = one?.problems?.join("; ") || body?.error?.message || body?.error?.code;
  return { good: false, text: reason || (request.status ? `refused (${request.status})` : "the server cannot be reached") };
}

/** @param {string} path @returns {Promise<any>} null where it cannot be read now */
async function read(path) {
  try {
    const response = await fetch(path, { headers: { Accept: "application/json" } });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Asks for the job that a file has become until it has ended. @param {string} link */
async function ended(link) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const job = await read(link);
    if (job && job.state !== "waiting" && job.state !== "running") {
      const file = (await read(`${link}/files`))?.files[0];
      const good = job.state === "done" && job.failed === 0;
      return { good, text: file?.problems.join("; ") || job.error || job.state };
    }
  }
}

/** @param {File} file @param {{progress: HTMLProgressElement, said: HTMLElement}} shown */
function send(file, { progress, said }) {
  running += 1;
  said.textContent = "sending";
  const form = new FormData();
  form.set("index", by("into").value);
  if (by("for")) form.set("organization", by("for").value);
  const whom = by("whom").value;
  if (whom) form.set(whom === "user" ? "visibility" : "groups", whom);
  form.append("file", file, file.name);
  const request = new XMLHttpRequest();
  request.open("POST", "/api/v1/sources");
  request.setRequestHeader("Accept", "application/json");
  request.setRequestHeader("X-CSRF-Token", csrf);
  request.upload.addEventListener("progress", (event) => {
    if (!event.lengthComputable) return;
    progress.value = (90 * event.loaded) / event.total;
    if (event.loaded === event.total) said.textContent = "being read";
  });
  request.addEventListener("loadend", () => {
    const link = request.status === 202 ? request.getResponseHeader("Location") : null;
    const show = (/** @type {{good: boolean, text: string}} */ how) => settle(how, { progress, said });
    running -= 1;
    if (link) {
      said.textContent = "waiting to be read; you may leave this page";
      ended(link).then(show);
    } else show(outcome(request));
    waiting.shift()?.();
  });
  request.send(form);
}

/** @param {{good: boolean, text: string}} how @param {{progress: HTMLProgressElement, said: HTMLElement}} shown */
function settle({ good, text }, { progress, said }) {
  progress.value = 100;
  if (!good) progress.replaceWith(document.createElement("span"));
  said.textContent = text;
  said.className = good ? "small" : "small worse";
  done += 1;
  failed += good ? 0 : 1;
  by("status").textContent = `${done - failed} of ${done} files done${failed ? `, ${failed} refused` : ""}`;
  if (!running && !waiting.length) finish();
}

function finish() {
  if (by("show-new") || done === failed) return;
  const link = document.createElement("a");
  link.id = "show-new";
  link.className = "button";
  link.href = location.href;
  link.textContent = "Show them in the list";
  by("uploads").after(link);
}

/** @param {Iterable<File>} files */
function take(files) {
  for (const file of files) {
    const shown = line(file);
    if (running < AT_ONCE) send(file, shown);
    else waiting.push(() => send(file, shown));
  }
}

/** Offers the groups of the organization that the files are for, alone. */
function offerGroups() {
  for (const each of by("whom").options) each.hidden = each.disabled = ![undefined, by("for").value].includes(each.dataset.of);
  if (by("whom").selectedOptions[0].disabled) by("whom").value = "";
}
if (by("for")) {
  by("for").addEventListener("change", offerGroups);
  offerGroups();
}

const drop = by("drop");
drop.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
by("files").addEventListener("change", () => {
  take([...by("files").files]);
  by("files").value = "";
});
for (const name of ["dragenter", "dragover"])
  addEventListener(name, (event) => {
    event.preventDefault();
    by("upload").open = true;
    drop.classList.add("over");
  });
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) drop.classList.remove("over");
});
addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  take([...(event.dataTransfer?.files ?? [])]);
});
