// Words, numbers and elements. What comes from elsewhere becomes text, never markup: nothing here, or in the other
// files, makes an element out of a string.

const SVG = 'http://www.w3.org/2000/svg';

/** Without what would turn or hide the words around it. */
const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, '\ufffd');

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  const there = children.flat().filter((child) => child !== null && child !== undefined && child !== '');
  element.append(...there.map((child) => (child instanceof Node ? child : plain(child))));
  return element;
}

/** An HTML element. Attributes are the page's own; children are elements, or strings that become text. */
export function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

/** Sets a text if it is another one. */
export function say(element, text) {
  const shown = plain(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Sets an attribute if it is another one. */
export function mark(element, name, value) {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

function scaled(number, units) {
  let at = 0;
  while (number >= 999.5 && at < units.length - 1) {
    number /= 1000;
    at += 1;
  }
  const digits = number >= 99.5 || at === 0 ? 0 : number >= 9.95 ? 1 : 2;
  return `${number.toFixed(digits)} ${units[at]}`.trim();
}

/** Bytes a second, as bits. */
export const bits = (bytes) => scaled(bytes * 8, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s']);

/** Something a second. */
export const each = (number) => `${scaled(number, ['', 'k', 'M', 'G'])}/s`;

export const count = (number) => Number(number).toLocaleString('en');

export const hex = (number, digits = 8) => number.toString(16).toUpperCase().padStart(digits, '0');

export function short(text, most) {
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}

/** vm2 comes before vm10. */
export const order = new Intl.Collator('en', { numeric: true }).compare;

const HAPPENED = {
  nic_added: 'added', nic_removed: 'removed', nic_changed: 'changed', client_connected: 'a VMM has connected', client_gone: 'its VMM has gone',
  link_up: 'link up', link_down: 'link down', nic_failed: 'its model has failed; it was taken off',
  switch_added: 'switch added', switch_removed: 'switch removed', switch_changed: 'switch changed', port_added: 'opened', port_removed: 'closed',
  loss_begins: 'begins', loss_ends: 'has ended', daemon_there: 'the daemon answers', daemon_gone: 'the daemon does not answer',
  lost: 'changes were not told one by one',
};

/** What happened, after the name of what it happened to. */
export function happened({ what, detail, more, count: times }) {
  const words = HAPPENED[what] || what;
  const all = times === undefined ? '' : `, ${count(times)} in all`;
  const others = more ? `and ${count(more)} more: ` : '';
  return what === 'daemon_gone' && detail ? `${words}: ${detail}` : `${others}${detail ? `${detail} ` : ''}${words}${all}`;
}

const BAD = new Set(['nic_failed', 'client_gone', 'link_down', 'loss_begins', 'daemon_gone', 'lost']);
export const isBad = (what) => BAD.has(what);

// The key comes behind the # of the address, which a browser sends nowhere, and does not stay there.
const KEPT = 'hypernic-key';

export function takeKey() {
  const found = /^#key=([A-Za-z0-9]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEPT, found[1]);
    history.replaceState(null, '', location.pathname);
  }
}

export const setKey = (key) => sessionStorage.setItem(KEPT, key);

/** Asks the server. Throws what there is to be read; `locked` is set if the key is missing or wrong. */
export async function ask(path, body) {
  const key = sessionStorage.getItem(KEPT);
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers['Content-Type'] = 'application/json';
  const response = await fetch(path, {
    method: body ? 'POST' : 'GET', headers, cache: 'no-store', credentials: 'omit', redirect: 'error',
    body: body ? JSON.stringify(body) : undefined, signal: AbortSignal.timeout(15000),
  });
  if (response.ok) return response.json();
  const error = new Error((await response.text()).trim() || response.statusText);
  error.locked = response.status === 401;
  throw error;
}
