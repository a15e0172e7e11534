/** The sale: its clock, its items and their buy buttons. */

import { t } from '../i18n.js';
import { stateAt, takesPart, undecided } from '../seckill-client.js';
import { byId, el, setText } from './dom.js';
import { moment, money, parts, two } from './format.js';

const LOOKS = 6; // of items, which have no pictures
const MAX_CHOICES = 10; // of the quantity
const CALM_MS = 500; // for which a new button takes no click: it was meant for the one before in its place
const WAITS = ['open', 'paused', 'ended']; // states with a waitlist; units of unpaid orders come back after the end too

/**
 * What the buy button of an item says and whether it can be pressed.
 * @param {object} model see page.js
 * @param {object} item
 * @returns {{text: string, can: boolean, busy?: boolean}}
 */
export function buyButton(model, item) {
  const { result, buying } = model;
  const state = stateAt(model.activity, model.now());
  const gone = item.remaining <= 0;
  if (buying) {
    if (buying.commodityId !== item.commodityId) return { text: gone ? 'buy.sold_out' : 'buy.now', can: false };
    return buying.retry ? { text: 'buy.retry', can: true, busy: true } : { text: 'buy.sending', can: false, busy: true };
  }
  if (takesPart(result)) {
    if (result.commodityId !== item.commodityId) return { text: gone ? 'buy.sold_out' : 'buy.taken', can: false };
    return { text: undecided(result) ? 'buy.queued' : 'buy.yours', can: false, busy: undecided(result) };
  }
  if (state !== 'open') return { text: `buy.${state}`, can: false };
  if (gone) return { text: 'buy.sold_out', can: false };
  return { text: model.user ? 'buy.now' : 'buy.signin', can: true };
}

/**
 * What the waitlist button of an item does and says, or null where there is nothing to wait for.
 * @param {object} model see page.js
 * @param {object} item
 * @returns {{does: 'join'|'leave', text: string, can: boolean}|null}
 */
export function waitButton(model, item) {
  const { result, buying, place, asking, closed } = model;
  if (buying || takesPart(result)) return null;
  const does = place?.commodityId === item.commodityId ? 'leave' : 'join';
  const offered = item.remaining <= 0 && !place && !closed && WAITS.includes(stateAt(model.activity, model.now()));
  if (does === 'join' && !offered) return null;
  return { does, text: asking === item.commodityId ? 'buy.sending' : `wait.${does}`, can: !asking };
}

/** The heading and the items of a sale; built once a sale, then kept up to date. */
export class SaleView {
  #cards = new Map();
  #shown = '';
  #actions;

  /**
   * @param {{buy: (commodityId: string, quantity: number) => void, join: (commodityId: string) => void,
   *   leave: (commodityId: string) => void}} actions
   */
  constructor(actions) {
    this.#actions = actions;
  }

  /** Shows the model as it is now. @param {object} model */
  render(model) {
    const a = model.activity;
    byId('sale').hidden = !a;
    if (!a) return;
    const key = [model.language, a.activityId, ...a.items.map((it) => `${it.commodityId}:${it.maxPerUser}`)].join(' ');
    if (key !== this.#shown) this.#build(a);
    this.#shown = key;
    setText(byId('sale-title'), a.title);
    setText(byId('sale-times'), `${moment(a.startsAt)} – ${moment(a.endsAt)}`);
    for (const item of a.items) this.#renderItem(model, item);
    this.tick(model);
  }

  /** What changes with time alone. */
  tick(model) {
    const a = model.activity;
    if (!a) return;
    const now = model.now();
    const state = stateAt(a, now);
    const badge = byId('sale-state');
    setText(badge, t(`state.${state}`));
    badge.dataset.state = state;
    const until = state === 'scheduled' ? a.startsAt : state === 'open' ? a.endsAt : null;
    const label = { scheduled: 'starts', open: 'ends', paused: 'paused', not_ready: 'not_ready', draft: 'not_ready' }[state] ?? 'ended';
    setText(byId('clock-label'), t(`countdown.${label}`));
    this.#renderClock(until === null ? null : until - now);
    for (const item of a.items) this.#renderButton(model, item);
  }

  #build(a) {
    this.#cards.clear();
    const holder = byId('items');
    holder.replaceChildren(...a.items.map((item, i) => this.#card(item, i % LOOKS)));
    const unit = (name) => el('span', { class: 'unit', dataset: { unit: name } }, el('b'), el('small', {}, t(`countdown.${name}`)));
    byId('clock').replaceChildren(unit('days'), unit('hours'), unit('minutes'), unit('seconds'));
  }

  #card(item, look) {
    const title = el('h3');
    const price = el('p', { class: 'price' });
    const left = el('p', { class: 'left' });
    const meter = el('progress', { max: 1, value: 0, 'aria-hidden': 'true' });
    const quantity = this.#quantity(item);
    const button = el('button', { type: 'button', class: 'button buy', dataset: { buy: item.commodityId }, on: {
      click: () => this.#actions.buy(item.commodityId, Number(quantity?.value ?? 1)),
    } });
    const wait = el('button', { type: 'button', class: 'quiet wait', hidden: true, dataset: { wait: item.commodityId }, on: {
      click: () => this.#actions[wait.dataset.does](item.commodityId),
    } });
    const letter = [...item.title.trim()][0] ?? '?';
    const card = el('article', { class: 'card item', dataset: { item: item.commodityId } },
      el('div', { class: `picture look-${look}`, 'aria-hidden': 'true' }, letter),
      el('div', { class: 'facts' }, title, price, meter, left),
      el('div', { class: 'act' }, quantity, button, wait));
    this.#cards.set(item.commodityId, { title, price, left, meter, quantity, button, wait, card });
    return card;
  }

  #quantity(item) {
    const most = Math.min(item.maxPerUser, MAX_CHOICES);
    if (most < 2) return null;
    const options = Array.from({ length: most }, (_, i) => el('option', { value: i + 1 }, String(i + 1)));
    return el('select', { 'aria-label': t('item.quantity') }, ...options);
  }

  #renderItem(model, item) {
    const c = this.#cards.get(item.commodityId);
    setText(c.title, item.title);
    setText(c.price, money(item.price));
    setText(c.left, t('item.left', item) + (item.maxPerUser > 1 ? ` · ${t('item.limit', { n: item.maxPerUser })}` : ''));
    c.meter.max = Math.max(1, item.total);
    c.meter.value = item.remaining;
    c.meter.classList.toggle('low', item.remaining * 5 <= item.total);
    c.card.classList.toggle('gone', item.remaining <= 0);
    c.card.classList.toggle('mine', takesPart(model.result) && model.result.commodityId === item.commodityId);
  }

  #renderButton(model, item) {
    const { button, quantity, wait } = this.#cards.get(item.commodityId);
    const { text, can, busy } = buyButton(model, item);
    setText(button, t(text));
    button.disabled = !can;
    button.classList.toggle('busy', Boolean(busy));
    const line = waitButton(model, item);
    this.#renderWait(wait, line);
    button.hidden = line !== null && !can; // the other takes its place
    if (!quantity) return;
    quantity.hidden = !can && !model.buying;
    quantity.disabled = Boolean(model.buying);
  }

  #renderWait(button, line) {
    if (line && (button.hidden || button.dataset.does !== line.does)) {
      button.inert = true;
      setTimeout(() => (button.inert = false), CALM_MS);
    }
    button.hidden = line === null;
    if (!line) return;
    setText(button, t(line.text));
    button.disabled = !line.can;
    button.dataset.does = line.does;
  }

  #renderClock(ms) {
    const clock = byId('clock');
    clock.hidden = ms === null;
    if (ms === null) return;
    const p = parts(ms);
    for (const unit of clock.children) {
      const name = unit.dataset.unit;
      unit.hidden = name === 'days' && p.days === 0;
      setText(unit.firstChild, name === 'days' ? String(p.days) : two(p[name]));
    }
  }
}
