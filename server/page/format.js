// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, and elements. Text reaches the page as text nodes alone.

const byId = (id) => document.getElementById(id);

/** An element with attributes (functions are listeners) and children (strings are text). */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function plainButton(words, onClick, attributes = {}) {
  return element("button", { type: "button", class: "plain", click: onClick, ...attributes }, words);
}

const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function formatCount(n) {
  return wholeNumber.format(n);
}

/** Three significant digits. */
function formatShort(n) {
  const size = Math.abs(n);
  if (size >= 1e6) return `${(n / 1e6).toPrecision(3)} M`;
  if (size >= 1000) return wholeNumber.format(Number(n.toPrecision(3)));
  return size === 0 ? "0" : String(Number(n.toPrecision(3)));
}

function formatSeconds(seconds) {
  if (seconds < 1) return `${formatShort(seconds * 1000)} ms`;
  if (seconds < 120) return `${formatShort(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

function formatShare(share) {
  return `${formatShort(share * 100)} %`;
}

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; bytes >= 1024 && i + 1 < units.length; i++) bytes /= 1024;
  return `${formatShort(bytes)} ${units[i]}`;
}

async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed"; // without TLS only a loopback address may
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

// ---- what outlives a reload, in this tab ----

/** Where the server is: the page's own place, which a proxy may have put below a path of its own. */
const BASE = new URL(location.pathname.replace(/^\/+/, "/").replace(/\/?$/, "/"), location.origin);

/** Other servers may share the origin, behind other paths. */
const storeName = (name) => `longwave.${name}${BASE.pathname}`;

const unstored = new Map(); // what the browser does not keep, denied or too large: it lives until the page is left

/** False: a reload would lose it. value null: nothing. */
function keep(name, value) {
  unstored.delete(name);
  try {
    sessionStorage.removeItem(storeName(name)); // better nothing than what was there before
    if (value !== null) sessionStorage.setItem(storeName(name), JSON.stringify(value));
    return true;
  } catch {
    if (value !== null) unstored.set(name, value);
    return value === null;
  }
}

function kept(name, fallback) {
  if (unstored.has(name)) return unstored.get(name);
  try {
    return JSON.parse(sessionStorage.getItem(storeName(name))) ?? fallback;
  } catch {
    return fallback;
  }
}
