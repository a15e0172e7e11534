/** The operator console: sales with their state and stock, the commands on them, and a form for a new one. */

import { currentLanguage, has, setLanguage, t, translate } from '../i18n.js';
import { Api } from '../client/http.js';
import { byId, carefulButton, el, setText } from '../view/dom.js';
import { moment, money } from '../view/format.js';

const LOOK_MS = 2_000;
const NOTICE_MS = 10_000;
const TOKEN_KEY = 'seckill.admin';
const PATH = '/admin/v1/activities';

/** What can be done with a sale in each state. */
const COMMANDS = {
  draft: ['warm-up', 'open', 'end'],
  scheduled: ['open', 'pause', 'end'],
  open: ['pause', 'end'],
  paused: ['resume', 'end'],
  not_ready: ['pause', 'end'],
};

const api = new Api({
  baseUrl: '',
  getToken: () => token(),
  fetch: (...args) => fetch(...args),
  now: () => Date.now(),
  timers: { set: (f, ms) => setTimeout(f, ms), clear: (id) => clearTimeout(id) },
  onServerTime: () => {},
  onReach: () => {},
  onSignIn: () => {},
});

let activities = [];
let busy = null; // id of the sale on which a command runs
let shown = '';
let noticeTimer = null;

function token() {
  return sessionStorage.getItem(TOKEN_KEY);
}

function render() {
  const inside = Boolean(token());
  byId('enter').hidden = inside;
  byId('desk').hidden = !inside;
  byId('leave').hidden = !inside;
  byId('none').hidden = activities.length > 0;
  for (const button of document.querySelectorAll('[data-language]')) {
    button.setAttribute('aria-pressed', String(button.dataset.language === currentLanguage()));
  }
  const still = (a) => ({ ...a, serverTime: 0, items: a.items.map((it) => ({ ...it, remaining: 0 })) });
  const now = JSON.stringify([currentLanguage(), busy, activities.map(still)]);
  if (now !== shown) byId('list').replaceChildren(...activities.map(card));
  shown = now;
  // Stock that changes all the time must not take away a button that is being pressed.
  for (const a of activities) for (const it of a.items) renderStock(a, it);
}

function renderStock(a, it) {
  const row = document.querySelector(`[data-stock="${a.activityId}/${it.commodityId}"]`);
  row.querySelector('progress').value = it.remaining;
  setText(row.lastChild, t('console.left', it));
}

function card(a) {
  const row = (it) => el('tr', { dataset: { stock: `${a.activityId}/${it.commodityId}` } },
    el('td', {}, it.title),
    el('td', { class: 'number' }, money(it.price)),
    el('td', { class: 'meter' }, el('progress', { max: Math.max(1, it.total), 'aria-hidden': 'true' })),
    el('td', { class: 'number' }));
  return el('article', { class: 'card work', dataset: { sale: a.activityId, state: a.state } },
    el('header', {},
      el('h3', {}, a.title),
      el('span', { class: 'badge', dataset: { state: a.state } }, t(`state.${a.state}`)),
      el('code', {}, a.activityId)),
    el('p', { class: 'times' }, `${moment(a.startsAt)} – ${moment(a.endsAt)}`),
    el('table', {}, el('tbody', {}, ...a.items.map(row))),
    el('div', { class: 'act' }, ...(COMMANDS[a.state] ?? []).map((verb) => commandButton(a, verb))));
}

function commandButton(a, verb) {
  const props = { class: `quiet ${verb}`, dataset: { verb }, disabled: busy === a.activityId };
  if (verb === 'end') {
    return carefulButton({ ...props, text: t('console.end'), sure: t('console.sure'), onSure: () => command(a, verb) });
  }
  return el('button', { type: 'button', ...props, on: { click: () => command(a, verb) } }, t(`console.${verb}`));
}

async function command(a, verb) {
  busy = a.activityId;
  render();
  try {
    await api.call('POST', `${PATH}/${encodeURIComponent(a.activityId)}/${verb}`);
    say(t('console.done', { title: a.title, verb: t(`console.${verb}`) }), true);
  } catch (err) {
    sayError(err);
  } finally {
    busy = null;
  }
  await look();
}

/** Reads the sales. */
async function look() {
  if (!token()) return;
  try {
    activities = (await api.call('GET', PATH)).activities;
  } catch (err) {
    if (err.status === 401 || err.status === 404) leave();
    sayError(err);
  }
  render();
}

function leave() {
  sessionStorage.removeItem(TOKEN_KEY);
  activities = [];
  render();
}

function say(text, good) {
  const notice = byId('notice');
  notice.hidden = false;
  notice.classList.toggle('good', good);
  setText(notice, text);
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (notice.hidden = true), NOTICE_MS);
}

/** Operators see the server's own words too: they say which field is wrong. */
function sayError(err) {
  if (err.status === 401) return say(t('console.wrongToken'), false);
  if (err.status === 404 && !token()) return say(t('console.off'), false);
  const text = has(`error.${err.code}`) ? t(`error.${err.code}`) : t('error.other', { code: err.code });
  say(err.detail ? `${text} (${err.detail})` : text, false);
}

function addRow(values = {}) {
  const field = (name, label, attributes) =>
    el('label', { class: attributes.class }, el('span', { dataset: { text: label } }),
      el('input', { name, required: true, value: values[name], ...attributes, class: null }));
  const row = el('div', { class: 'row' },
    field('commodityId', 'console.itemId', { pattern: '[A-Za-z0-9_\\-]{1,32}', maxlength: 32, autocomplete: 'off' }),
    field('itemTitle', 'console.itemTitle', { maxlength: 128, class: 'wide' }),
    el('button', {
      type: 'button', class: 'quiet remove', dataset: { label: 'console.removeItem' },
      on: { click: () => byId('rows').children.length > 1 && row.remove() },
    }, '×'),
    field('price', 'console.price', { pattern: '[0-9]{1,8}(\\.[0-9]{1,2})?', inputmode: 'decimal' }),
    field('total', 'console.total', { type: 'number', min: 1 }),
    field('maxPerUser', 'console.max', { type: 'number', min: 1 }));
  byId('rows').append(row);
  translate(row);
}

async function create(event) {
  event.preventDefault();
  const form = byId('create');
  const f = form.elements;
  const startsAt = new Date(f.startsAt.value).getTime();
  const endsAt = new Date(f.endsAt.value).getTime();
  if (!(endsAt > startsAt)) return say(t('console.badTimes'), false);
  const value = (row, name) => row.querySelector(`[name=${name}]`).value.trim();
  const body = {
    title: f.title.value.trim(), startsAt, endsAt, payWithin: `${f.payWithin.value}m`,
    items: [...byId('rows').children].map((row) => ({
      commodityId: value(row, 'commodityId'), title: value(row, 'itemTitle'), price: value(row, 'price'),
      total: Number(value(row, 'total')), maxPerUser: Number(value(row, 'maxPerUser')),
    })),
  };
  if (f.activityId.value) body.activityId = f.activityId.value;
  try {
    await api.call('POST', PATH, { body });
    say(t('console.created', { title: body.title }), true);
    form.reset();
    suggest();
  } catch (err) {
    sayError(err);
  }
  await look();
}

/** A start in ten minutes and an end an hour later, and one item. */
function suggest() {
  const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  const start = Math.ceil((Date.now() + 600_000) / 60_000) * 60_000;
  const f = byId('create').elements;
  f.startsAt.value = local(start);
  f.endsAt.value = local(start + 3_600_000);
  byId('rows').replaceChildren();
  addRow({ commodityId: 'ITEM1', total: 100, maxPerUser: 1 });
}

function begin() {
  translate();
  suggest();
  byId('enter').addEventListener('submit', async (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN_KEY, byId('token').value.trim());
    byId('token').value = '';
    byId('notice').hidden = true;
    await look();
  });
  byId('leave').addEventListener('click', leave);
  byId('add').addEventListener('click', () => addRow({ commodityId: `ITEM${byId('rows').children.length + 1}`, total: 100, maxPerUser: 1 }));
  byId('create').addEventListener('submit', create);
  for (const button of document.querySelectorAll('[data-language]')) {
    button.addEventListener('click', () => {
      setLanguage(button.dataset.language);
      translate();
      render();
    });
  }
  document.addEventListener('visibilitychange', () => document.hidden || look());
  setInterval(() => document.hidden || busy || look(), LOOK_MS);
  render();
  look();
}

begin();
