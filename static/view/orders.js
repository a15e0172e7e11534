/** The user's orders, of all sales. */

import { t } from '../i18n.js';
import { byId, el, setText } from './dom.js';
import { moment, money, span } from './format.js';
import { payButtons } from './panel.js';

export class OrdersView {
  #actions;
  #shown = '';

  /** @param {{pay: Function, cancel: Function, busy: (orderNo: string) => boolean, more: () => void}} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  render(model) {
    const { orders, nextCursor } = model;
    const busy = orders.map((o) => this.#actions.busy(o.orderNo));
    const key = JSON.stringify([model.language, model.user, orders, nextCursor, busy, model.result?.orderNo]);
    if (key === this.#shown) return this.tick(model);
    this.#shown = key;
    const list = orders.length
      ? el('ul', {}, ...orders.map((o) => this.#row(o, model)))
      : el('p', { class: 'none' }, t('orders.none'));
    const more = nextCursor
      ? el('button', { type: 'button', class: 'quiet', on: { click: () => this.#actions.more() } }, t('orders.more'))
      : null;
    byId('orders').hidden = !model.user;
    byId('orders').replaceChildren(el('h2', { id: 'orders-title' }, t('orders.title')), list, ...(more ? [more] : []));
    this.tick(model);
  }

  tick(model) {
    for (const timer of byId('orders').querySelectorAll('[data-until]')) {
      const left = Number(timer.dataset.until) - model.now();
      setText(timer, left > 0 ? t('orders.payWithin', { time: span(left) }) : t('orders.overdue'));
    }
  }

  #row(o, model) {
    const title = model.titles.get(`${o.activityId}/${o.commodityId}`) ?? o.commodityId;
    const waits = o.status === 'pending_payment';
    return el('li', { dataset: { order: o.orderNo, status: o.status } },
      el('div', { class: 'order-head' },
        el('b', {}, o.quantity > 1 ? `${title} × ${o.quantity}` : title),
        el('span', { class: 'amount' }, money(o.payAmount))),
      el('div', { class: 'order-facts' },
        el('code', {}, o.orderNo),
        el('span', { class: 'badge', dataset: { state: o.status } }, t(`short.${o.status}`))),
      el('div', { class: 'order-facts' },
        el('small', {}, moment(o.createdAt)),
        waits ? el('small', { class: 'timer', dataset: { until: o.payBefore } }) : null),
      waits && o.orderNo !== model.result?.orderNo ? payButtons(o, this.#actions) : null); // the panel has those of its order
  }
}
