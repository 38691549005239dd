// SPDX-License-Identifier: Apache-2.0
// What holds the page together: the server's state, the model and its policies, the key, settings, keyboard.

const SETTINGS = ["system", "budget", "max-tokens", "temperature", "top-p", "seed"];
const RETRY_SECONDS = 3;

function setState(kind, words) {
  byId("state").dataset.state = kind;
  byId("state").textContent = words;
  byId("state").title = words;
}

/** error: null for none. */
function showError(error) {
  byId("notice").hidden = !error;
  if (!error) return;
  const wait = error.retryAfter ? ` The server asks to wait ${formatSeconds(error.retryAfter)}.` : "";
  byId("notice").firstElementChild.textContent = error.message.replace(/([^.?!])$/, "$1.") + wait;
  if (error.status === 401) askKey();
  if (error.status === 503 || error.status === 0) connect();
}

// ---- model and policies ----

const policyWords = ({ preset, roles }) => (roles ? `${preset}, roles ${roles}` : preset);

function fillPolicies({ default: fallback, policies, certified_tokens }) {
  const certified = certified_tokens ? ` up to ${formatCount(certified_tokens)} tokens` : "";
  const auto = element("option", { value: "{}" }, `auto: ${policyWords(fallback)}${certified}`);
  byId("policy").replaceChildren(auto, ...policies.map((policy) => {
    const wish = policy.roles ? policy : { preset: policy.preset };
    return element("option", { value: JSON.stringify(wish) }, policyWords(policy));
  }));
  byId("policy").value = kept("policy", "{}");
  if (!byId("policy").value) byId("policy").value = "{}";
  byId("policy").disabled = false;
}

function fillModels(models) {
  byId("model").replaceChildren(...models.map(({ id }) => element("option", {}, id)));
  byId("model").value = kept("model", models[0].id);
  if (!byId("model").value) byId("model").value = models[0].id;
  byId("model").disabled = false;
  const { architecture, size_bytes: bytes, max_model_len: context } = models[0].longwave;
  byId("model").title = `${architecture}, ${formatBytes(bytes)}, context ${formatCount(context)} tokens`;
  document.title = `${byId("model").value} · longwave`;
  fillPolicies(models[0].longwave.attention);
}

let connectTimer = 0;

/** Asks for the models until the server has told them. */
async function connect() {
  clearTimeout(connectTimer);
  chat.setReady(false);
  try {
    fillModels((await (await callServer("v1/models")).json()).data);
    setState("ready", "ready");
    chat.setReady(true);
  } catch (error) {
    if (error.status === 401) {
      setState("wrong", "key wanted");
      askKey();
    } else if (error.code === "forbidden") {
      setState("wrong", "this key may only watch");
    } else {
      setState(error.status === 503 ? "waiting" : "wrong", error.message);
      connectTimer = setTimeout(connect, Math.min(error.retryAfter || RETRY_SECONDS, RETRY_SECONDS) * 1000);
    }
  }
}

// ---- the key ----

function askKey(isWanted = true) {
  if (byId("key-dialog").open) return;
  const why = kept("key", "") ? "The server does not know this key." : "The server wants a key.";
  const whereTo = "It is sent as Bearer with each request, and kept until this tab is closed.";
  byId("key-why").textContent = isWanted ? `${why} ${whereTo}` : whereTo;
  byId("key").value = kept("key", "");
  byId("key-forget").hidden = !kept("key", "");
  byId("key-dialog").showModal();
  byId("key").select();
}

function useKey(key) {
  keep("key", key || null);
  byId("key-dialog").close();
  showError(null);
  connect();
  panel.watch();
  byId("message").focus();
}

// ---- wiring ----

const chat = new Chat(showError);
const panel = new Panel(() => {
  if (chat.isReady) connect();
});

byId("key-open").addEventListener("click", () => askKey(false));
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
byId("key-forget").addEventListener("click", () => useKey(""));
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  if (isSendable(key)) useKey(key);
  else byId("key-why").textContent = "This key has a control character, which no request can carry.";
});
byId("notice").lastElementChild.addEventListener("click", () => showError(null));
byId("new-chat").addEventListener("click", () => {
  showError(null);
  chat.clear();
});
byId("panel-toggle").addEventListener("click", () => {
  const shows = document.body.classList.toggle("shows-panel");
  byId("panel-toggle").setAttribute("aria-pressed", shows);
});
byId("settings-toggle").addEventListener("click", () => {
  byId("settings").hidden = !byId("settings").hidden;
  byId("settings-toggle").setAttribute("aria-expanded", !byId("settings").hidden);
});
byId("policy").addEventListener("change", () => keep("policy", byId("policy").value));
byId("model").addEventListener("change", () => {
  keep("model", byId("model").value);
  document.title = `${byId("model").value} · longwave`;
});
for (const id of SETTINGS) {
  byId(id).value = kept("settings", {})[id] ?? "";
  byId(id).addEventListener("change", () => {
    keep("settings", Object.fromEntries(SETTINGS.map((each) => [each, byId(each).value])));
  });
}
document.addEventListener("keydown", (event) => {
  if (byId("key-dialog").open) return;
  if (event.key === "Escape" && chat.abort) chat.stop();
  if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    byId("message").focus();
  }
});
// A reload loses nothing, or asks before it does.
window.addEventListener("beforeunload", (event) => {
  if (!chat.save()) event.preventDefault();
});
window.addEventListener("pagehide", () => chat.leave());
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // out of the browser's memory, without the streams that it had
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) chat.save();
});
connect();
byId("message").focus();
