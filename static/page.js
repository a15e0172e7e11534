/** The buy page: it holds what is known, hears the client's events, and has the views show it. */

import { currentLanguage, setLanguage, t, translate } from './i18n.js';
import { SeckillClient, takesPart } from './seckill-client.js';
import { OrderBook } from './order-book.js';
import { Session } from './session.js';
import { byId, el, setText } from './view/dom.js';
import { PanelView, errorText } from './view/panel.js';
import { OrdersView } from './view/orders.js';
import { SaleView } from './view/sale.js';

const TICK_MS = 200;
const SALES_MS = 15_000; // between looks for new sales
const NOTICE_MS = 8_000;
const MAX_SALES = 30; // to choose among

const session = new Session();
const shop = new SeckillClient({ activityId: '', getToken: () => null }); // only asks for the list
let client = null; // of the chosen sale
let noticeTimer = null;

/** What is shown. The views read it, only this module changes it. */
const model = {
  language: currentLanguage(),
  user: null,
  sales: [],
  titles: new Map(), // of items, by "activity/commodity"
  activity: null,
  result: undefined,
  resultAt: 0,
  buying: null, // {commodityId, retry?: {code, at}} while a purchase is being asked for
  refusal: null, // of the last attempt to buy
  place: null, // in the waitlist: {commodityId, position}
  promoted: false, // the result came of the waitlist
  asking: null, // commodityId while the place in line is being asked for or given up
  closed: false, // the waitlist takes nobody any more
  orders: [],
  nextCursor: '',
  link: null,
  now: () => (client ?? shop).serverNow(),
  deviceNow: () => Date.now(),
};

const busyOrders = new Set();
const actions = {
  busy: (orderNo) => busyOrders.has(orderNo),
  pay: (orderNo) => change(orderNo, 'pay'),
  cancel: (orderNo) => change(orderNo, 'cancel'),
  more: () => book.more().catch(showError),
};
const book = new OrderBook(() => client, (orders, nextCursor) => {
  Object.assign(model, { orders, nextCursor });
  render();
});
const views = { sale: new SaleView({ buy, join: (id) => changePlace(id, 'joinWaitlist'), leave: (id) => changePlace(id, 'leaveWaitlist') }), panel: new PanelView(actions), orders: new OrdersView(actions) };

function render() {
  model.user = session.user;
  byId('signin').hidden = Boolean(model.user);
  byId('signed').hidden = !model.user;
  setText(byId('signed').querySelector('.who'), t('user.name', { id: model.user ?? '' }));
  const link = byId('link');
  link.dataset.link = String(model.link);
  link.title = t(`link.hint.${model.link}`);
  setText(link.querySelector('span'), t(`link.${model.link}`));
  for (const button of document.querySelectorAll('[data-language]')) {
    button.setAttribute('aria-pressed', String(button.dataset.language === model.language));
  }
  renderSales();
  for (const view of Object.values(views)) view.render(model);
}

function renderSales() {
  const nav = byId('sales');
  nav.hidden = model.sales.length < 2;
  const shown = JSON.stringify([model.language, Boolean(model.buying), model.activity?.activityId,
    model.sales.map((a) => [a.activityId, a.title, a.state])]);
  if (nav.dataset.shown === shown) return;
  nav.dataset.shown = shown;
  const focused = nav.contains(document.activeElement) ? document.activeElement.dataset.sale : null;
  nav.replaceChildren(...model.sales.map((a) => el('button', {
    type: 'button', dataset: { sale: a.activityId }, disabled: Boolean(model.buying),
    'aria-current': a.activityId === model.activity?.activityId ? 'true' : null, on: { click: () => choose(a) },
  }, el('span', {}, a.title), el('small', { class: 'badge', dataset: { state: a.state } }, t(`state.${a.state}`)))));
  if (focused) nav.querySelector(`[data-sale="${focused}"]`)?.focus();
  const current = nav.querySelector('[aria-current]');
  if (current) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - 20;
}

/** Looks for sales, and chooses one if none is chosen. */
async function loadSales() {
  const empty = byId('empty');
  try {
    const all = await shop.activities();
    model.sales = ordered(all).slice(0, MAX_SALES);
    for (const a of all) for (const it of a.items) model.titles.set(`${a.activityId}/${it.commodityId}`, it.title);
    empty.dataset.text = 'sales.none';
    if (!client && all.length) choose(all.find((a) => `#${a.activityId}` === location.hash) ?? model.sales[0]);
  } catch (err) {
    if (!client) empty.dataset.text = 'app.unreachable';
    if (!err.temporary) showError(err);
  }
  empty.hidden = Boolean(client);
  setText(empty, t(empty.dataset.text));
  render();
}

/** Sales that are on come first, then the coming ones, the next first, then those that are over, the last first. */
function ordered(all) {
  const rank = { open: 0, paused: 0, not_ready: 0, scheduled: 1 };
  const of = (a) => rank[a.state] ?? 2;
  return [...all].sort((a, b) => of(a) - of(b) || (of(a) === 1 ? a.startsAt - b.startsAt : b.startsAt - a.startsAt));
}

/** Follows a sale from now on. */
function choose(activity) {
  client?.stop();
  const { activityId } = activity;
  const mine = (client = new SeckillClient({ activityId, getToken: () => session.token, store: storage() }));
  Object.assign(model, { activity, result: undefined, buying: null, refusal: null, link: null, place: null, promoted: false, asking: null, closed: false });
  const hear = (type, listener) => mine.on(type, (value) => {
    if (client !== mine) return; // another sale has been chosen
    listener(value);
    render();
  });
  hear('state', (a) => (model.activity = a));
  hear('link', (link) => (model.link = link));
  hear('result', hearResult);
  hear('waitlist', () => {
    model.refusal = null;
    hearPlace();
  });
  hear('retry', ({ code, delayMs }) => {
    if (model.buying) model.buying.retry = { code, at: Date.now() + delayMs };
  });
  hear('signin', () => {
    if (session.user) showError({ code: 'unauthenticated' });
    session.signOut();
  });
  hear('error', (err) => console.warn('seckill:', err.message));
  mine.start();
  history.replaceState(null, '', `#${activityId}`);
  book.clear();
  if (session.user) book.load().catch(showError);
  render();
}

function hearResult(r) {
  book.hear(r);
  const before = model.result;
  model.result = client.result;
  if (before?.requestToken !== model.result?.requestToken) model.resultAt = Date.now();
  if (r.activityId === model.activity.activityId) model.refusal = null;
  hearPlace();
}

function hearPlace() {
  model.place = client.waitlist;
  model.promoted = client.promoted;
}

/** Whether somebody is signed in; asks for it otherwise. */
function signedIn() {
  if (session.user) return true;
  showError({ code: 'signed_out' });
  byId('user').focus();
  return false;
}

/** A click on a buy button. The button is off from here on, in the same moment. */
async function buy(commodityId, quantity) {
  if (!signedIn()) return;
  const mine = client;
  if (model.buying) {
    delete model.buying.retry;
    mine.buy(commodityId, quantity).catch(() => {}); // joins the purchase under way; the first call hears its end
    return render();
  }
  model.buying = { commodityId };
  model.refusal = null;
  render();
  try {
    await mine.buy(commodityId, { quantity });
  } catch (err) {
    if (client === mine && err.code !== 'stopped') model.refusal = err;
  }
  if (client !== mine) return;
  model.buying = null;
  model.result = mine.result;
  render();
}

/** A click on a waitlist button. */
async function changePlace(commodityId, verb) {
  if (!signedIn() || model.asking) return;
  const mine = client;
  Object.assign(model, { asking: commodityId, refusal: null });
  render();
  try {
    await mine[verb](commodityId);
  } catch (err) {
    if (client !== mine) return;
    model.closed ||= err.code === 'waitlist_closed';
    if (!takesPart(mine.result)) showError(err); // else the panel tells how he takes part
  }
  if (client !== mine) return;
  model.asking = null;
  hearPlace();
  render();
}

/** Pays or cancels. */
async function change(orderNo, verb) {
  if (busyOrders.has(orderNo)) return;
  busyOrders.add(orderNo);
  render();
  try {
    await client[verb](orderNo);
  } catch (err) {
    showError(verb === 'pay' && err.code === 'not_found' ? { code: 'no_demo_pay' } : err);
    book.load().catch(() => {});
  } finally {
    busyOrders.delete(orderNo);
    render();
  }
}

function showError(err) {
  const notice = byId('notice');
  notice.hidden = false;
  setText(notice, errorText(err));
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (notice.hidden = true), NOTICE_MS);
}

/** Where a purchase is kept over a reload, where the browser allows it. */
function storage() {
  try {
    return sessionStorage;
  } catch {
    return undefined;
  }
}

function begin() {
  translate();
  byId('user').value = session.last || String(100_000 + Math.floor(Math.random() * 900_000));
  byId('signin').addEventListener('submit', async (event) => {
    event.preventDefault();
    try {
      await session.signIn(byId('user').value.trim());
      byId('notice').hidden = true;
      if (model.activity) choose(model.activity);
      render();
    } catch (err) {
      showError(err);
    }
  });
  byId('signed').querySelector('button').addEventListener('click', () => {
    session.signOut();
    if (model.activity) choose(model.activity);
    render();
  });
  for (const button of document.querySelectorAll('[data-language]')) {
    button.addEventListener('click', () => {
      setLanguage(button.dataset.language);
      model.language = currentLanguage();
      translate();
      render();
    });
  }
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) return;
    loadSales();
    if (session.user && client) book.load().catch(() => {});
  });
  setInterval(() => {
    for (const view of Object.values(views)) view.tick(model);
  }, TICK_MS);
  setInterval(() => document.hidden || loadSales(), SALES_MS);
  render();
  loadSales();
}

begin();
