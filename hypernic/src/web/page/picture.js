// The host as a picture: whose NICs there are, the NICs, and where their frames go. Lines are as wide as their traffic.

import { bits, each, html, mark, order, say, short, svg } from './words.js';

// With more NICs, the busiest have a row and the others a tile each.
const ROWS = 60;
const BUSIEST = 16;
// How often it is looked again which are the busiest.
const AGAIN = 10000;
const TILE = 13;

const width = (bytes) => (bytes > 0 ? Math.min(14, 1.5 + 2.2 * Math.log10(1 + bytes / 1e4)) : 1);
const level = (bytes) => (bytes > 0 ? Math.min(4, 1 + Math.floor(Math.max(0, Math.log10(bytes / 1e3)) / 1.5)) : 0);
const NOTHING = [0, 0, 0, 0, 0, 0, 0, 0];
const traffic = (rates) => rates[1] + rates[3];
const stateClass = (state) => state.replace(' ', '-');

function curve(x1, y1, x2, y2) {
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

function told(nic, rates) {
  const lost = rates[4] ? `, loses ${each(rates[4])}` : '';
  const goes = nic.state === 'up' ? `receives ${bits(rates[1])}, sends ${bits(rates[3])}${lost}` : nic.state;
  return `${nic.name}, ${nic.model}, ${goes}`;
}

/** What a click does, and so keys. */
function pressed(does) {
  const act = (event) => {
    if (event.type === 'click' || event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      does();
    }
  };
  return { click: act, keydown: act };
}

/** Where a NIC's frames go. */
function goal(nic) {
  if (nic.chip) return `chip ${nic.chip}`;
  return nic.port.startsWith('switch:') ? `switch ${nic.port.slice(7)}` : `port ${nic.port} ${nic.name}`;
}

export class Picture {
  constructor(place, open, closePort) {
    this.place = place;
    this.open = open;
    this.closePort = closePort;
    // Whether ports may be closed.
    this.closable = false;
    this.shape = null;
    this.rates = new Map();
    this.ports = new Map();
    this.filter = '';
    this.drawn = 0;
    this.moving = false;
    this.current = null;
    let last = 0;
    new ResizeObserver(() => {
      if (this.place.clientWidth !== last && this.shape) {
        last = this.place.clientWidth;
        this.draw();
      }
    }).observe(place);
  }

  setShape(shape) {
    this.shape = shape;
    this.index = new Map(shape.nics.map((nic, at) => [nic.name, at]));
    const chips = new Set(shape.nics.map((nic) => nic.chip).filter(Boolean));
    const place = new Map();
    for (const nic of shape.nics) if (!place.has(nic.tenant)) place.set(nic.tenant, goal(nic));
    const key = (nic) => [place.get(nic.tenant), nic.tenant, goal(nic), nic.name];
    const keys = new Map(shape.nics.map((nic) => [nic, key(nic)]));
    this.sorted = [...shape.nics].sort((a, b) => {
      const [left, right] = [keys.get(a), keys.get(b)];
      const at = left.findIndex((word, n) => word !== right[n]);
      return at < 0 ? 0 : order(left[at], right[at]);
    });
    this.chips = [...chips].sort(order);
    this.draw();
  }

  setFilter(filter) {
    this.filter = filter.trim().toLowerCase();
    if (this.shape) this.draw();
  }

  update(now) {
    this.rates = new Map(now.nics);
    this.ports = new Map(now.ports);
    // The first look has no rates yet.
    const first = !this.moving && now.seconds > 0;
    this.moving ||= first;
    if (this.tiles?.length && (first || Date.now() - this.drawn > AGAIN) && !this.place.contains(document.activeElement)) this.draw();
    else this.move();
  }

  of(nic) {
    return this.rates.get(this.index.get(nic.name)) || NOTHING;
  }

  select(name) {
    this.current = name;
    for (const row of [...(this.rows || []), ...(this.tiles || [])]) mark(row.element, 'aria-pressed', row.nic.name === name);
  }

  wanted() {
    const words = this.filter.split(/\s+/).filter(Boolean);
    return this.sorted.filter((nic) => {
      const text = `${nic.name} ${nic.model} ${nic.tenant} ${nic.port} ${nic.chip || ''} ${nic.state} ${nic.mac}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  draw() {
    const had = document.activeElement?.dataset?.nic;
    const all = this.wanted();
    let rows = all;
    let rest = [];
    if (all.length > ROWS) {
      const busiest = [...all].sort((a, b) => traffic(this.of(b)) - traffic(this.of(a))).slice(0, BUSIEST);
      const chosen = new Set(busiest.filter((nic) => traffic(this.of(nic)) > 0 || nic.name === this.current));
      rows = all.filter((nic) => chosen.has(nic));
      rest = all.filter((nic) => !chosen.has(nic));
    }
    this.drawn = Date.now();
    this.rows = [];
    this.tiles = [];
    this.lines = [];
    if (!all.length) {
      this.place.replaceChildren(html('p', { class: 'quiet' }, this.shape.nics.length ? 'No NIC matches the filter.'
        : 'No NIC runs yet. hypernic nic add makes one.'));
      return;
    }
    this.layOut(rows, rest);
    this.move();
    if (had) this.place.querySelector(`[data-nic="${CSS.escape(had)}"]`)?.focus({ preventScroll: true });
  }

  layOut(rows, rest) {
    const wide = this.place.clientWidth >= 620;
    const total = Math.max(330, this.place.clientWidth);
    const height = wide && rows.length > 12 ? 34 : 46;
    const owner = wide ? Math.min(170, total * 0.18) : 0;
    const nicAt = wide ? owner + Math.min(70, total * 0.08) : 0;
    const nicWide = wide ? Math.min(230, total * 0.27) : total * 0.5;
    const portWide = Math.min(190, total * (wide ? 0.19 : 0.17));
    const portAt = total - portWide - 1;
    const goalWide = Math.min(170, total * (wide ? 0.17 : 0.18));
    const goalAt = nicAt + nicWide + (portAt - nicAt - nicWide) * 0.62 - goalWide / 2;
    const box = { total, wide, height, owner, nicAt, nicWide, goalAt, goalWide, portAt, portWide };
    const lines = svg('g', { class: 'lines' });
    const boxes = svg('g');
    let y = 4;
    const ends = new Map();
    const end = (nic, from) => {
      const key = goal(nic);
      if (!ends.has(key)) ends.set(key, []);
      ends.get(key).push(from);
    };
    let group = null;
    for (const nic of rows) {
      if (group && group.tenant !== nic.tenant) y += 6;
      const middle = y + height / 2 - 2;
      boxes.append(this.row(nic, box, y));
      end(nic, { y: middle, nics: [nic] });
      if (!group || group.tenant !== nic.tenant) {
        group = { tenant: nic.tenant, from: y, nics: [] };
        if (wide) this.owner(group, boxes, box);
      }
      group.nics.push(nic);
      if (wide) {
        const line = svg('path', { d: curve(owner, middle, nicAt, middle) });
        lines.append(line);
        this.lines.push({ line, nics: [nic] });
        mark(group.box, 'height', y + height - 4 - group.from);
      }
      y += height;
    }
    if (rest.length) y = this.grid(rest, box, y + 8, boxes, end);
    const bottom = this.goals(ends, box, y, lines, boxes);
    const picture = svg('svg', { width: total, height: Math.max(y, bottom) + 4, viewBox: `0 0 ${total} ${Math.max(y, bottom) + 4}`,
      role: 'group', 'aria-label': 'NICs and where their frames go' }, lines, boxes);
    this.place.replaceChildren(picture);
  }

  owner(group, boxes, { owner, height }) {
    group.box = svg('rect', { class: 'owner', x: 1, y: group.from, width: owner - 1, height: height - 4, rx: 5 });
    const most = Math.floor((owner - 16) / 7.4);
    boxes.append(svg('g', {}, svg('title', {}, `the NICs of ${group.tenant}`), group.box,
      svg('text', { x: 10, y: group.from + height / 2 + 2, class: 'name' }, short(group.tenant, most))));
  }

  /** What opens a NIC. */
  button(nic, attributes, ...children) {
    return svg('g', { role: 'button', 'data-nic': nic.name, 'aria-pressed': nic.name === this.current ? 'true' : 'false',
      ...pressed(() => this.open(nic.name)), ...attributes }, ...children);
  }

  row(nic, { nicAt, nicWide, height, wide }, y) {
    const flat = height < 40;
    const most = Math.floor((nicWide - 16) / 7.6);
    const model = nic.vf === undefined ? nic.model : `VF ${nic.vf}`;
    const shown = wide || nic.tenant === nic.name ? nic.name : `${nic.tenant} · ${nic.name}`;
    const name = short(shown, flat ? Math.floor(most * 0.45) : Math.max(6, most - model.length - 1));
    const goes = svg('text', flat ? { x: nicAt + nicWide - 8, y: y + 19, class: 'goes', 'text-anchor': 'end' }
      : { x: nicAt + 10, y: y + 34, class: 'goes' });
    const title = svg('title');
    const element = this.button(nic, { tabindex: 0, class: `nic ${stateClass(nic.state)}` }, title,
      svg('rect', { x: nicAt, y, width: nicWide, height: height - 4, rx: 5 }),
      svg('rect', { class: 'edge', x: nicAt, y, width: 4, height: height - 4, rx: 2 }),
      svg('text', { x: nicAt + 10, y: y + (flat ? 19 : 17), class: 'name' }, name),
      flat ? '' : svg('text', { x: nicAt + nicWide - 8, y: y + 17, class: 'model', 'text-anchor': 'end' }, model), goes);
    this.rows.push({ nic, element, goes, title, brief: flat || !wide });
    return element;
  }

  grid(rest, { nicAt, nicWide }, y, boxes, end) {
    const across = Math.max(8, Math.floor((nicAt + nicWide) / TILE));
    boxes.append(svg('text', { x: 1, y: y + 11, class: 'model' },
      `${rest.length} ${this.rows.length ? 'more' : 'NICs'}, one tile each`));
    y += 20;
    const by = new Map();
    rest.forEach((nic, at) => {
      const [column, line] = [at % across, Math.floor(at / across)];
      const title = svg('title');
      const element = this.button(nic, { tabindex: at ? -1 : 0, class: `tile ${stateClass(nic.state)}`,
        focus: () => mark(element, 'aria-label', told(nic, this.of(nic))) }, title,
      svg('rect', { x: column * TILE + 1, y: y + line * TILE, width: TILE - 2, height: TILE - 2, rx: 2 }));
      element.addEventListener('mouseenter', () => say(title, told(nic, this.of(nic))));
      element.addEventListener('keydown', (event) => this.walk(event, at, across));
      boxes.append(element);
      this.tiles.push({ nic, element });
      const key = nic.chip || nic.port.startsWith('switch:') ? goal(nic) : 'port';
      if (!by.has(key)) by.set(key, []);
      by.get(key).push(nic);
    });
    const lines = Math.ceil(rest.length / across);
    let at = 0;
    for (const [key, nics] of by) {
      at += 1;
      // NICs with ports of their own have no line here: each has its own goal.
      if (key !== 'port') end(nics[0], { y: y + (lines * TILE * at) / (by.size + 1), nics, x: across * TILE + 4 });
    }
    return y + lines * TILE;
  }

  walk(event, at, across) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    const next = step && this.tiles[at + step];
    if (!next) return;
    event.preventDefault();
    mark(this.tiles[at].element, 'tabindex', -1);
    mark(next.element, 'tabindex', 0);
    next.element.focus();
  }

  /** Switches, chips and ports of NICs, each near the NICs that use it. */
  goals(ends, box, height, lines, boxes) {
    const { nicAt, nicWide, goalAt, goalWide, portAt, portWide } = box;
    const all = [...ends].map(([key, from]) => ({ key, from, y: from.reduce((sum, one) => sum + one.y, 0) / from.length }));
    for (const { name } of this.shape.switches) {
      const key = `switch ${name}`;
      if (!this.filter && !ends.has(key)) all.push({ key, from: [], y: height });
    }
    all.sort((a, b) => a.y - b.y);
    const free = { goal: 4, port: 4 };
    const places = new Map();
    for (const one of all) {
      const [kind] = one.key.split(' ', 1);
      const name = one.key.slice(kind.length + 1);
      if (kind === 'port') {
        const nic = one.from[0].nics[0];
        const y = Math.max(free.port, one.y - 15);
        free.port = y + 36;
        boxes.append(this.port(nic.port, portAt, portWide, y));
        this.link(lines, one.from, nicAt + nicWide, portAt, y + 15, 1);
        continue;
      }
      const ports = kind === 'switch' ? this.shape.ports.map((port, at) => ({ ...port, at })).filter((port) => port.switch === name) : [];
      const tall = Math.max(46, 34 * ports.length, Math.min(320, one.from.length * 11));
      const y = Math.max(free.goal, ports.length ? free.port - 4 : 0, one.y - tall / 2);
      free.goal = y + tall + 10;
      places.set(one.key, { y, tall });
      boxes.append(this.goal(kind, name, goalAt, goalWide, y, tall));
      this.link(lines, one.from, nicAt + nicWide, goalAt, y, tall);
      ports.forEach((port, n) => {
        const at = y + (tall / ports.length) * (n + 0.5);
        free.port = Math.max(free.port, at + 20);
        boxes.append(this.port(port.port, portAt, portWide, at - 15, name));
        const line = svg('path', { d: curve(goalAt + goalWide, at, portAt, at) });
        lines.append(line);
        this.lines.push({ line, port: port.at });
      });
    }
    for (const { name, chips } of this.shape.switches) {
      const to = places.get(`switch ${name}`);
      for (const chip of chips) {
        const from = places.get(`chip ${chip}`);
        if (!to || !from) continue;
        const [x, y1, y2] = [goalAt + goalWide, from.y + from.tall / 2, to.y + to.tall / 2];
        lines.append(svg('path', { class: 'wire', d: `M${x} ${y1}C${x + 26} ${y1} ${x + 26} ${y2} ${x} ${y2}` }));
      }
    }
    return Math.max(free.goal, free.port);
  }

  link(lines, from, x, to, y, tall) {
    from.forEach((one, at) => {
      const end = tall > 1 ? y + (tall / from.length) * (at + 0.5) : y;
      const line = svg('path', { d: curve(one.x || x, one.y, to, end) });
      lines.append(line);
      this.lines.push({ line, nics: one.nics });
    });
  }

  goal(kind, name, x, wide, y, tall) {
    const nics = this.shape.nics.filter((nic) => goal(nic) === `${kind} ${name}`).length;
    const most = Math.floor((wide - 16) / 7.6);
    return svg('g', { class: `goal ${kind}` }, svg('title', {}, `${kind} ${name}: ${nics} NICs`),
      svg('rect', { x, y, width: wide, height: tall, rx: 5 }),
      svg('text', { x: x + wide / 2, y: y + tall / 2 - 2, class: 'name', 'text-anchor': 'middle' }, short(name, most)),
      svg('text', { x: x + wide / 2, y: y + tall / 2 + 14, class: 'model', 'text-anchor': 'middle' },
        short(wide < 100 ? String(nics) : `${kind}, ${nics} NIC${nics === 1 ? '' : 's'}`, most)));
  }

  port(name, x, wide, y, ofSwitch) {
    const may = ofSwitch !== undefined && this.closable;
    const button = may ? { role: 'button', tabindex: 0, 'data-port': name, 'aria-label': `Close the port ${name} of ${ofSwitch}`,
      ...pressed(() => this.closePort(ofSwitch, name)) } : {};
    return svg('g', { class: 'port', ...button }, svg('title', {}, may ? `${name}: press to close it` : name),
      svg('rect', { x, y, width: wide, height: 30, rx: 5 }),
      svg('text', { x: x + 8, y: y + 19 }, short(name, Math.floor((wide - 14) / 7))));
  }

  /** New numbers. */
  move() {
    for (const { nic, element, goes, title, brief } of this.rows) {
      const rates = this.of(nic);
      const words = nic.state === 'up' ? `↓ ${bits(rates[1])}  ↑ ${bits(rates[3])}` : nic.state;
      const lost = rates[4] ? `  ✕ ${each(rates[4])}` : '';
      say(goes, brief && lost ? `${words.replaceAll('bit/s', '').replaceAll(' k', 'k').replaceAll(' M', 'M').replaceAll(' G', 'G')}${lost}` : words + lost);
      goes.classList.toggle('losing', rates[4] > 0);
      const text = told(nic, rates);
      say(title, text);
      mark(element, 'aria-label', text);
    }
    for (const { nic, element } of this.tiles) {
      const rates = this.of(nic);
      mark(element, 'class', `tile ${stateClass(nic.state)} busy${level(traffic(rates))}${rates[4] ? ' losing' : ''}`);
    }
    for (const { line, nics, port } of this.lines) {
      let [bytes, lost, dead] = [0, 0, false];
      if (nics) {
        for (const nic of nics) {
          const rates = this.of(nic);
          bytes += traffic(rates);
          lost += rates[4];
        }
        dead = nics.every((nic) => nic.state !== 'up');
      } else {
        const rates = this.ports.get(port) || NOTHING;
        bytes = rates[1] + rates[3];
        lost = rates[4];
      }
      mark(line, 'stroke-width', width(bytes).toFixed(1));
      mark(line, 'class', dead ? 'dead' : lost > 0 ? 'losing' : bytes > 0 ? 'busy' : 'idle');
    }
  }
}
