// Asks once a second, and shows what is answered.

import { ask, bits, byId, count, each, happened, html, isBad, say, setKey, takeKey } from './words.js';
import { Nic } from './nic.js';
import { Picture } from './picture.js';

const PAUSE = 1000;
const LOG = 200;
const LOSSES = 30;

const picture = new Picture(byId('picture'), open, closePort);
const reasons = {};
const nic = new Nic(byId('nic'), { reasons, close, change });
let shape = null;
let shapeId = '';
let since = 0;
let now = { role: 'monitor', changes: false, generation: 0 };
let running = false;

function open(name) {
  history.replaceState(null, '', `#nic=${encodeURIComponent(name)}`);
  nic.show(name);
  picture.select(name);
  byId('main').classList.add('opened');
  refresh().catch(() => {});
}

function close() {
  const name = nic.name;
  history.replaceState(null, '', location.pathname);
  nic.hide();
  picture.select(null);
  byId('main').classList.remove('opened');
  if (name) byId('picture').querySelector(`[data-nic="${CSS.escape(name)}"]`)?.focus();
}

function refresh() {
  const at = shape ? shape.nics.findIndex((one) => one.name === nic.name) : -1;
  const rates = (at >= 0 && picture.rates.get(at)) || [0, 0, 0, 0, 0, 0, 0, 0];
  return nic.update(rates, now);
}

function closePort(ofSwitch, port) {
  change('Close this port', { what: 'port_remove', switch: ofSwitch, port }, `${port} is taken off the switch ${ofSwitch} now.`);
}

function alarm(text) {
  byId('alarm').hidden = !text;
  say(byId('alarm'), text);
}

function sum(title, value, note, bad) {
  return html('div', { class: bad ? 'bad' : null }, html('dt', {}, title), html('dd', {}, value, ' ', html('small', {}, note)));
}

function showSums(told) {
  const states = new Map();
  for (const one of shape.nics) states.set(one.state, (states.get(one.state) || 0) + 1);
  const total = (at) => told.nics.reduce((all, [, rates]) => all + rates[at], 0);
  const others = [...states].filter(([state]) => state !== 'up').map(([state, n]) => `${count(n)} ${state}`);
  const lost = total(4) + told.ports.reduce((all, [, rates]) => all + rates[4], 0);
  const busy = told.workers.reduce((all, worker) => all + worker.work, 0);
  byId('sums').replaceChildren(
    sum('NICs', `${count(states.get('up') || 0)} up`, others.join(', ') || `of ${count(shape.nics.length)}`, states.has('failed')),
    sum('To guests', bits(total(1)), each(total(0))),
    sum('From guests', bits(total(3)), each(total(2))),
    sum('Lost', each(lost), 'frames', lost > 0),
    sum('Workers', `${(100 * busy).toFixed(0)} %`, `of ${told.workers.length} processor${told.workers.length === 1 ? '' : 's'}`, busy > 0.9 * told.workers.length));
}

let lossRows = '';
function showLosses(told) {
  const list = byId('losses-list');
  const losses = told.losses.slice(0, LOSSES);
  const keys = losses.map((loss) => loss.slice(0, 2).join(' ')).join('\n');
  if (keys !== lossRows || !list.firstChild) {
    lossRows = keys;
    const openKeys = new Set([...list.querySelectorAll('details[open]')].map((one) => one.dataset.key));
    const item = ([kind, reason]) => {
      const [kindOf, meaning, , cause, cure] = reasons[`${kind} ${reason}`] || ['', '', '', '', ''];
      const key = `${kind} ${reason}`;
      return html('details', { 'data-key': key, open: openKeys.has(key) },
        html('summary', {}, html('span', { class: `class ${kindOf}` }, kindOf), ' ', html('b', {}, reason), ' ', html('span', { class: 'number' })),
        html('p', {}, meaning), html('dl', {}, html('dt', {}, 'Usual cause'), html('dd', {}, cause), html('dt', {}, 'What to do'), html('dd', {}, cure),
          html('dt', {}, 'Counted by'), html('dd', { class: 'losers' })));
    };
    list.replaceChildren(...(losses.length ? losses.map(item) : [html('p', { class: 'quiet' }, 'Nothing so far.')]));
  }
  losses.forEach(([kind, , rate, all, many, some], at) => {
    const item = list.children[at];
    const who = many === 1 ? some[0][0] : `${count(many)} of kind ${kind}`;
    say(item.querySelector('.number'), `${who}: ${each(rate)}, ${count(all)} in all`);
    const rest = many > some.length ? `, and ${count(many - some.length)} more` : '';
    say(item.querySelector('.losers'), some.map(([name, now, sofar]) => `${name} ${each(now)}, ${count(sofar)} in all`).join('; ') + rest);
    item.classList.toggle('now', rate > 0);
  });
}

function showLog(entries) {
  const list = byId('log-list');
  for (const entry of entries) {
    since = entry.number;
    const time = new Date(entry.at);
    const words = happened(entry);
    list.prepend(html('li', { class: isBad(entry.what) ? 'bad' : null },
      html('time', { datetime: time.toISOString() }, time.toTimeString().slice(0, 8)), ' ', entry.name ? html('b', {}, entry.name) : '', ' ', words));
  }
  while (list.children.length > LOG) list.lastChild.remove();
  if (!list.firstChild) list.append(html('li', { class: 'quiet' }, 'Nothing so far.'));
}

function showWorkers(workers) {
  const list = byId('workers-list');
  const bar = (worker) => {
    const late = worker.replies_99_seconds ? `; 99 of 100 replies within ${count(Math.round(worker.replies_99_seconds * 1e6))} µs` : '';
    return html('div', { class: 'ring' }, html('span', {}, `worker ${worker.name}`),
      html('meter', { min: 0, max: 1, value: Math.min(1, worker.work), 'aria-label': `worker ${worker.name}: work` }),
      html('span', { class: 'quiet' }, `${(100 * worker.work).toFixed(1)} % work, ${(100 * worker.looking).toFixed(1)} % looking; ${count(worker.nics)} NICs; ${each(worker.replies)} replies${late}`));
  };
  list.replaceChildren(...workers.map(bar));
}

function show(told) {
  showLog(told.log);
  if (!told.up) {
    alarm(`The daemon does not answer: ${told.why}`);
    say(byId('state'), 'no daemon');
    return;
  }
  alarm('');
  if (told.shape) {
    shape = told.shape;
    shapeId = told.shape_id;
    picture.rates = new Map(told.nics);
    picture.closable = told.changes && shape.role === 'owner';
    picture.setShape(shape);
  }
  now = { role: shape.role, changes: told.changes, generation: told.generation };
  say(byId('state'), `hypernic ${shape.version}, role ${shape.role}, ${told.changes ? 'changes allowed' : 'only shows'}`);
  picture.update(told);
  showSums(told);
  showLosses(told);
  showWorkers(told.workers);
  byId('main').dataset.looks = String(Number(byId('main').dataset.looks || 0) + 1);
}

async function look() {
  if (!Object.keys(reasons).length) Object.assign(reasons, await ask('/api/reasons'));
  const told = await ask(`/api/now?shape=${shapeId}&since=${since}`);
  byId('main').hidden = false;
  show(told);
  if (told.up) await refresh();
}

async function run() {
  if (running) return;
  running = true;
  for (;;) {
    const begun = performance.now();
    if (!document.hidden) {
      try {
        await look();
      } catch (error) {
        if (error.locked) break;
        alarm(`hypernic web does not answer: ${error.message}`);
      }
    }
    await new Promise((done) => setTimeout(done, Math.max(200, PAUSE - (performance.now() - begun))));
  }
  running = false;
  byId('main').hidden = true;
  byId('locked').hidden = false;
  alarm('');
  say(byId('state'), 'locked');
  byId('key').focus();
}

function sure(title, text, label) {
  const dialog = byId('ask');
  say(byId('ask-title'), title);
  say(byId('ask-text'), text);
  say(byId('ask-yes'), label);
  dialog.showModal();
  return new Promise((done) => {
    byId('ask-yes').onclick = () => { done(true); dialog.close(); };
    byId('ask-no').onclick = () => dialog.close();
    dialog.onclose = () => done(false);
  });
}

async function change(label, wish, warning) {
  if (warning && !await sure(label, warning, label)) return;
  try {
    const made = await ask('/api/change', { ...wish, generation: now.generation });
    now.generation = made.generation ?? now.generation;
    alarm('');
  } catch (error) {
    alarm(`${label}: ${error.message}`);
  }
  look().catch(() => {});
}

function unlock() {
  setKey(byId('key').value.trim());
  byId('key').value = '';
  byId('locked').hidden = true;
  run();
}

byId('unlock').addEventListener('click', unlock);
byId('key').addEventListener('keydown', (event) => { if (event.key === 'Enter') unlock(); });
byId('filter').addEventListener('input', (event) => picture.setFilter(event.target.value));
document.addEventListener('keydown', (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === 'Escape' && nic.name && !byId('ask').open) close();
  if (event.key === '/' && !typing) {
    event.preventDefault();
    byId('filter').focus();
  }
});
byId('legend').append('Lines are as wide as their traffic. ', html('span', { class: 'key up' }, 'up'), ' ', html('span', { class: 'key no-link' }, 'no link'),
  ' ', html('span', { class: 'key no-VMM' }, 'no VMM'), ' ', html('span', { class: 'key failed' }, 'failed'), ' ', html('span', { class: 'key losing' }, 'loses frames'));
takeKey();
const named = /^#nic=([^&]+)$/.exec(location.hash);
if (named) {
  try {
    nic.show(decodeURIComponent(named[1]));
    byId('main').classList.add('opened');
  } catch { /* It is no name. */ }
}
run();
