/** The user's purchase in the chosen sale: one clear line, the order, and what can be done with it. */

import { has, t } from '../i18n.js';
import { undecided } from '../seckill-client.js';
import { byId, carefulButton, el, setText } from './dom.js';
import { span } from './format.js';

const LONG_MS = 20_000; // after which the queue is called long
const CALM_MS = 500; // for which new buttons take no click: it was meant for what was there before

/** What the status line says. @returns {{text: string, tone: 'none'|'wait'|'good'|'bad'}} */
export function statusLine(model) {
  const { result, buying, refusal, place } = model;
  if (buying?.retry) {
    const seconds = Math.max(1, Math.ceil((buying.retry.at - model.deviceNow()) / 1000));
    const offline = buying.retry.code === 'network';
    return { text: t(offline ? 'status.offline' : 'status.retrying', { seconds }), tone: 'wait' };
  }
  if (buying) return { text: t('status.sending'), tone: 'wait' };
  if (undecided(result)) {
    if (result.etaMs > 0) return { text: t('status.processing.eta', { seconds: Math.ceil(result.etaMs / 1000) }), tone: 'wait' };
    const long = model.deviceNow() - model.resultAt > LONG_MS;
    return { text: t(long ? 'status.processing.long' : 'status.processing'), tone: 'wait' };
  }
  if (refusal && !result?.orderNo) return { text: errorText(refusal), tone: 'bad' };
  if (place) return { text: t('status.waiting', { position: place.position, item: titleOf(model, place.commodityId) }), tone: 'wait' };
  if (!result) return { text: t(model.user ? 'panel.empty' : 'panel.signin'), tone: 'none' };
  const text = [t(`status.${result.status}`)];
  if (result.status === 'failed' && has(`reason.${result.reason}`)) text.push(t(`reason.${result.reason}`));
  const tone = { pending_payment: 'good', paid: 'good' }[result.status] ?? 'bad';
  return { text: text.join(' '), tone };
}

/** The name of an item of the sale. */
function titleOf(model, commodityId) {
  return model.activity?.items.find((it) => it.commodityId === commodityId)?.title ?? commodityId;
}

/** The text of an error, by its code. @param {{code: string}} err */
export function errorText(err) {
  return has(`error.${err.code}`) ? t(`error.${err.code}`) : t('error.other', { code: err.code });
}

/** The buttons of an order that waits for its payment. */
export function payButtons(order, actions) {
  const busy = actions.busy(order.orderNo);
  const pay = order.payUrl && /^https?:/.test(order.payUrl)
    ? el('a', { class: 'button pay', href: order.payUrl }, t('orders.pay'))
    : el('button', { type: 'button', class: 'button pay', disabled: busy, on: { click: () => actions.pay(order.orderNo) } },
      t(busy ? 'orders.paying' : 'orders.pay'));
  const cancel = carefulButton({
    text: t('orders.cancel'), sure: t('orders.cancel.sure'), class: 'quiet cancel', disabled: busy, onSure: () => actions.cancel(order.orderNo),
  });
  return el('div', { class: 'act' }, pay, cancel);
}

export class PanelView {
  #actions;
  #shown = '';
  #offered = ''; // number of the order whose buttons have been shown
  #calmUntil = 0;
  #parts = null;

  /** @param {{pay: Function, cancel: Function, busy: (orderNo: string) => boolean}} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  render(model) {
    if (!this.#parts) this.#build();
    const r = model.result;
    const key = JSON.stringify([model.language, r, model.promoted, r?.orderNo && this.#actions.busy(r.orderNo)]);
    if (key !== this.#shown) this.#renderOrder(model);
    this.#shown = key;
    setText(this.#parts.title, t('panel.title'));
    this.tick(model);
  }

  tick(model) {
    if (!this.#parts) return;
    const { text, tone } = statusLine(model);
    setText(this.#parts.status, text);
    const panel = byId('panel');
    panel.dataset.tone = tone;
    panel.dataset.status = model.result?.status ?? '';
    const timer = panel.querySelector('[data-until]');
    if (timer) setText(timer, span(Number(timer.dataset.until) - model.now()));
  }

  #build() {
    this.#parts = {
      title: el('h2', { id: 'panel-title' }),
      status: el('p', { id: 'status', class: 'status', role: 'status', 'aria-live': 'polite' }),
      order: el('div'),
    };
    byId('panel').replaceChildren(...Object.values(this.#parts));
  }

  #renderOrder(model) {
    const r = model.result;
    const { order } = this.#parts;
    if (!r || !(r.orderNo || undecided(r))) return order.replaceChildren();
    const title = titleOf(model, r.commodityId);
    const waits = r.status === 'pending_payment';
    const rows = [
      [t('panel.item'), r.quantity > 1 ? `${title} × ${r.quantity}` : title],
      r.orderNo ? [t('panel.orderNo'), el('code', { id: 'order-no' }, r.orderNo)] : null,
      waits ? [t('panel.payBefore'), el('b', { class: 'timer', dataset: { until: r.payBefore } })] : null,
    ];
    order.replaceChildren(
      ...(model.promoted ? [el('p', { class: 'promoted' }, t('panel.promoted'))] : []),
      steps(r),
      el('dl', {}, ...rows.filter(Boolean).map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value)))),
      ...(waits ? [this.#buttons(r)] : []));
  }

  #buttons(r) {
    const buttons = payButtons(r, this.#actions);
    if (this.#offered !== r.orderNo) this.#calmUntil = Date.now() + CALM_MS;
    this.#offered = r.orderNo;
    const calm = this.#calmUntil - Date.now();
    if (calm > 0) {
      buttons.inert = true;
      setTimeout(() => (buttons.inert = false), calm);
    }
    return buttons;
  }
}

/** How far the purchase has come. */
function steps(r) {
  const reached = undecided(r) ? 1 : r.status === 'paid' ? 3 : 2;
  const over = r.status === 'cancelled' || r.status === 'closed';
  const names = ['request', 'order', 'paid'];
  return el('ol', { class: `steps${over ? ' over' : ''}` }, ...names.map((name, i) =>
    el('li', { class: i < reached ? 'done' : i === reached ? 'next' : null }, t(`panel.step.${name}`))));
}
