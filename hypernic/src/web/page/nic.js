// One NIC, opened.

import { ask, bits, count, each, hex, html, mark, order, say, svg } from './words.js';

const SECONDS = 60;

/** Rows of a table that stay the same elements while their words change, so that nothing jumps. */
class Table {
  constructor(columns, numbers, caption) {
    this.numbers = numbers;
    this.body = html('tbody');
    const head = columns.map((name, at) => html('th', { scope: 'col', class: at >= numbers ? 'number' : null }, name));
    this.element = html('table', { 'aria-label': caption }, html('thead', {}, html('tr', {}, head)), this.body);
    this.rows = new Map();
  }

  /** `rows`: a key, words, and attributes of each. */
  show(rows) {
    const gone = new Set(this.rows.keys());
    rows.forEach(({ key, words, title, fresh }, at) => {
      gone.delete(key);
      let row = this.rows.get(key);
      if (!row) {
        const cells = words.map((_, n) => html(n ? 'td' : 'th', { scope: n ? null : 'row', class: n >= this.numbers ? 'number' : null }));
        row = html('tr', {}, cells);
        this.rows.set(key, row);
      }
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] || null);
      words.forEach((word, n) => say(row.children[n], word));
      if (title) mark(row, 'title', title);
      row.classList.toggle('fresh', Boolean(fresh));
    });
    for (const key of gone) {
      this.rows.get(key).remove();
      this.rows.delete(key);
    }
    this.element.hidden = !rows.length;
  }
}

/** The last minute of a number, as a line. */
class Trace {
  constructor(title) {
    this.values = [];
    this.number = html('b');
    this.line = svg('polyline');
    this.area = svg('polygon');
    this.most = html('span', { class: 'quiet' });
    this.element = html('figure', { class: 'trace' }, html('figcaption', {}, title, ' ', this.number, ' ', this.most),
      svg('svg', { viewBox: `0 0 ${SECONDS - 1} 40`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, this.area, this.line));
  }

  add(value, packets) {
    this.values.push(value);
    if (this.values.length > SECONDS) this.values.shift();
    const most = Math.max(1, ...this.values);
    const points = this.values.map((one, at) => `${at + SECONDS - this.values.length},${(39 - (36 * one) / most).toFixed(1)}`);
    mark(this.line, 'points', points.join(' '));
    mark(this.area, 'points', `${SECONDS - this.values.length},40 ${points.join(' ')} ${SECONDS - 1},40`);
    say(this.number, `${bits(value)}, ${each(packets)}`);
    say(this.most, `most ${bits(most > 1 ? most : 0)}`);
  }
}

function part(title, ...children) {
  return html('section', { class: 'part' }, html('h3', {}, title), ...children);
}

/** Rings as the registers have them: heads and tails of Intel's chips. */
function rings(rows) {
  const found = new Map();
  for (const [name, element, , value] of rows) {
    const match = /^([RT])D(H|T|LEN)(?:_?Q?\d+)?$/.exec(name);
    if (!match) continue;
    const key = `${match[1] === 'R' ? 'receive' : 'transmit'} ${element ?? 0}`;
    if (!found.has(key)) found.set(key, { H: 0, T: 0, LEN: 0 });
    found.get(key)[match[2]] = value;
  }
  return [...found].filter(([, ring]) => ring.LEN >= 16).map(([key, ring]) => {
    const size = Math.floor(ring.LEN / 16);
    return { key, size, head: ring.H, tail: ring.T, has: (((ring.T - ring.H) % size) + size) % size };
  }).sort((a, b) => order(a.key, b.key));
}

export class Nic {
  constructor(place, { reasons, close, change }) {
    this.place = place;
    this.reasons = reasons;
    this.close = close;
    this.change = change;
    this.name = null;
  }

  show(name) {
    this.name = name;
    this.before = null;
    this.registers = new Map();
    this.shownFacts = this.shownChanges = this.lossKeys = '';
    this.filter = '';
    this.place.hidden = false;
    this.title = html('h2', { id: 'nic-title', tabindex: -1 }, name);
    this.state = html('p', { class: 'quiet' }, 'asking');
    this.facts = html('dl', { class: 'facts' });
    this.received = new Trace('Received');
    this.sent = new Trace('Sent');
    this.numbers = html('p', { class: 'quiet' });
    this.losses = html('div');
    this.queues = html('div');
    this.vectors = new Table(['Interrupt', 'State', 'Signalled', 'Held', 'Merged'], 2, 'Interrupts');
    this.vf = html('div');
    this.changes = html('p', { class: 'buttons' });
    this.addresses = html('p');
    this.registerTable = new Table(['Register', 'Offset', 'Value', 'Access', 'Section'], 5, 'Registers');
    this.registerNote = html('p', { class: 'quiet' });
    const filter = html('input', { type: 'search', placeholder: 'RCTL', spellcheck: 'false', autocomplete: 'off',
      input: (event) => { this.filter = event.target.value.trim().toUpperCase(); this.showRegisters(); } });
    this.counters = new Table(['Counter', 'A second', 'All'], 1, 'Counters');
    const close = html('button', { type: 'button', class: 'close', 'aria-label': `Close ${name}`, click: this.close }, 'Close');
    this.partVf = part('Virtual function', this.vf);
    this.partChanges = part('Change', this.changes);
    this.partQueues = part('Queues', this.queues, this.vectors.element);
    this.partAddresses = part('Addresses seen', this.addresses);
    this.place.replaceChildren(html('div', { class: 'head' }, this.title, close), this.state,
      html('div', { class: 'traces' }, this.received.element, this.sent.element), this.numbers,
      part('Lost and refused', this.losses), this.partVf, this.partChanges, this.partQueues,
      part('Facts', this.facts), this.partAddresses,
      part('Registers', html('label', {}, 'Name begins with ', filter), this.registerNote,
        html('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Registers' }, this.registerTable.element)),
      part('Counters', html('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Counters' }, this.counters.element)));
    this.title.focus({ preventScroll: innerWidth > 1100 });
  }

  hide() {
    this.name = null;
    this.place.hidden = true;
    this.place.replaceChildren();
  }

  async update(rates, now) {
    const name = this.name;
    if (!name) return;
    const told = await ask(`/api/nic?name=${encodeURIComponent(name)}`);
    if (name !== this.name) return;
    if (told.why) {
      say(this.state, told.why);
      this.partChanges.hidden = true;
      return;
    }
    const at = performance.now();
    this.told = told;
    const [receivedPackets, received, sentPackets, sent, , accesses, interrupts, work] = rates;
    const config = told.nic.config;
    say(this.state, `${config.model}, ${told.nic.failed ? 'failed' : !told.nic.connected ? 'no VMM' : told.nic.link ? 'up' : 'no link'}`);
    this.received.add(received, receivedPackets);
    this.sent.add(sent, sentPackets);
    say(this.numbers, `${each(accesses)} register accesses, ${each(interrupts)} interrupts, ${(work / 100).toFixed(2)} % of its worker`);
    this.showFacts(config);
    this.showCounters(told, at);
    this.showQueues(told);
    this.showVf(told);
    this.showChanges(told, now);
    const addresses = (told.addresses || []).map((one) => one.mac + (one.vlan ? ` (VLAN ${one.vlan})` : ''));
    this.partAddresses.hidden = !addresses.length;
    say(this.addresses, addresses.join(', '));
    this.readRegisters(told.registers);
    this.showRegisters();
  }

  showFacts(config) {
    const text = (value) => (typeof value === 'object' ? JSON.stringify(value) : String(value));
    const words = Object.entries(config).filter(([name]) => name !== 'name').map(([name, value]) => [name.replaceAll('_', '-'), text(value)]);
    const shown = JSON.stringify(words);
    if (shown === this.shownFacts) return;
    this.shownFacts = shown;
    this.facts.replaceChildren(...words.map(([name, value]) => html('div', {}, html('dt', {}, name), html('dd', {}, value))));
  }

  showCounters(told, at) {
    const before = this.before;
    const seconds = before ? (at - before.at) / 1000 : 0;
    const values = new Map(told.counters.map(([kind, thing, name, value]) => [`${kind} ${thing} ${name}`, value]));
    const rate = (key, value) => (before ? Math.max(0, value - (before.values.get(key) || 0)) / seconds : 0);
    const rows = told.counters.map(([kind, thing, name, value]) => {
      const key = `${kind} ${thing} ${name}`;
      const [kindOf, meaning, rule, cause, cure] = this.reasons[`${kind} ${name}`] || ['count', '', '', '', ''];
      return { key, kind, thing, name, value, rate: rate(key, value), kindOf, meaning, rule, cause, cure };
    });
    this.before = { at, values };
    this.counters.show(rows.map((row) => ({ key: row.key, title: row.meaning, fresh: row.rate > 0 && row.kindOf !== 'gauge',
      words: [row.kind === 'nic' ? row.name : `${row.kind}: ${row.name}`, row.kindOf === 'gauge' ? '' : each(row.rate), count(row.value)] })));
    this.showLosses(rows.filter((row) => !['count', 'gauge'].includes(row.kindOf)));
  }

  showLosses(rows) {
    const keys = rows.map((row) => row.key).join('\n');
    if (keys !== this.lossKeys || !this.losses.firstChild) {
      this.lossKeys = keys;
      const open = new Set([...this.losses.querySelectorAll('details[open]')].map((one) => one.dataset.key));
      this.lossNumbers = new Map();
      const fact = (name, text) => (text ? [html('dt', {}, name), html('dd', {}, text)] : []);
      const item = (row) => {
        const number = html('span', { class: 'number' });
        this.lossNumbers.set(row.key, number);
        return html('details', { 'data-key': row.key, open: open.has(row.key) },
          html('summary', {}, html('span', { class: `class ${row.kindOf}` }, row.kindOf), ' ', html('b', {}, row.name),
            row.kind === 'nic' ? '' : ` (${row.kind})`, ' ', number),
          html('p', {}, row.meaning),
          html('dl', {}, fact('Usual cause', row.cause), fact('What to do', row.cure), fact('Rule', row.rule)));
      };
      this.losses.replaceChildren(...(rows.length ? rows.map(item) : [html('p', { class: 'quiet' }, 'Nothing so far.')]));
    }
    for (const row of rows) say(this.lossNumbers.get(row.key), `${each(row.rate)}, ${count(row.value)} in all`);
  }

  showQueues(told) {
    const all = rings(told.registers.rows || []);
    this.queues.replaceChildren(...all.map(({ key, size, head, tail, has }) => html('div', { class: 'ring' },
      html('span', {}, key), html('meter', { min: 0, max: size, value: has, 'aria-label': `${key}: ${has} of ${size}` }),
      html('span', { class: 'quiet' }, `${has} of ${size} with the NIC; head ${head}, tail ${tail}`))));
    const vectors = (told.vectors || []).filter((one) => one.armed || one.signalled || one.held || one.merged);
    this.vectors.show(vectors.map((one) => ({ key: `${one.kind}${one.vector}`, words: [
      one.kind === 'intx' ? 'INTx' : `${one.kind} ${one.vector}`,
      [one.armed ? 'armed' : 'no eventfd', one.masked ? 'masked' : '', one.pending ? 'pending' : ''].filter(Boolean).join(', '),
      count(one.signalled), count(one.held), count(one.merged)] })));
    this.partQueues.hidden = !all.length && !vectors.length;
  }

  showVf(told) {
    const vf = told.vf;
    this.partVf.hidden = !vf;
    if (!vf) return;
    const words = Object.entries(vf.policy || {}).map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`);
    const lines = [`VF ${vf.index} of ${vf.chip}, address ${vf.address}, ${vf.down || (vf.ready ? 'ready' : 'no driver')}`, words.join(', ')];
    for (const refusal of vf.refused || []) {
      lines.push(`${refusal.seconds_ago} s ago it ${refusal.what}, ${refusal.count} times${refusal.shut_down ? '; it was shut down for this' : ''}`);
    }
    this.vf.replaceChildren(...lines.filter(Boolean).map((line) => html('p', {}, line)));
  }

  showChanges(told, now) {
    const vf = told.vf;
    const may = { operate: ['operate', 'owner'].includes(now.role), owner: now.role === 'owner' };
    const wishes = [];
    const nic = this.name;
    if (vf && may.operate) {
      const state = vf.policy?.state || 'auto';
      for (const [word, label] of [['auto', 'Link as the port’s'], ['enable', 'Link up'], ['disable', 'Link down']]) {
        wishes.push({ label, pressed: word === state, wish: { what: 'vf_link', nic, state: word } });
      }
      if (vf.down) wishes.push({ label: 'Let it try again', wish: { what: 'vf_revive', nic } });
      wishes.push({ label: 'Announce its removal', wish: { what: 'vf_leave', nic },
        sure: `The guest is told that ${nic} will go: its link goes down, and its frames are dropped.` });
    }
    if (!told.nic.chip && may.owner) {
      wishes.push({ label: 'Remove this NIC', wish: { what: 'nic_remove', nic }, danger: true,
        sure: `${nic} is taken away now${told.nic.connected ? ', and its VMM is disconnected: its guest loses the NIC for good' : ''}.` });
    }
    this.partChanges.hidden = !now.changes || !wishes.length;
    const shown = JSON.stringify(wishes);
    if (shown === this.shownChanges) return;
    this.shownChanges = shown;
    this.changes.replaceChildren(...wishes.map(({ label, wish, pressed, sure, danger }) => html('button', { type: 'button',
      'aria-pressed': pressed === undefined ? null : String(pressed), class: danger ? 'danger' : null,
      click: () => this.change(label, wish, sure) }, label)));
  }

  readRegisters(registers) {
    say(this.registerNote, registers.why || 'As a read would find them; the look has no effect. Changed ones are marked. Those that are 0 are left out.');
    if (!registers.rows) return;
    const now = new Map(registers.rows.map((row) => [row[2], row]));
    for (const [offset, had] of this.registers) {
      if (!now.has(offset)) now.set(offset, [...had.row.slice(0, 3), 0, ...had.row.slice(4)]);
    }
    const first = !this.registers.size;
    const next = new Map();
    for (const [offset, row] of now) {
      const had = this.registers.get(offset);
      const fresh = first ? false : !had || had.row[3] !== row[3];
      next.set(offset, { row, fresh });
    }
    this.registers = next;
  }

  showRegisters() {
    const all = [...this.registers.values()].filter(({ row }) => row[0].toUpperCase().startsWith(this.filter));
    all.sort((a, b) => a.row[2] - b.row[2]);
    this.registerTable.show(all.map(({ row: [name, element, offset, value, access, section], fresh }) => ({ key: offset, fresh,
      words: [element === null ? name : `${name}[${element}]`, hex(offset, 5), hex(value), access, section] })));
  }
}
