/**
 * The user's place in the sale's waitlist. A unit that comes back is ordered for the first in line, under a request
 * token that this client never posted: it is known by that, and by the wait before it.
 */

import { Memo } from './memo.js';
import { takesPart } from './results.js';
import { insist } from './util.js';

const REJOIN_MS = 5_000; // longer than two rounds of the pushed places

/** @typedef {{commodityId: string, position: number}} Place position 1 is the head; 0: no longer in line */

export class Waitlist {
  #o;
  #path;
  #place = null;
  #heard = 0; // counts what was heard, so that an answer that was overtaken by a frame is known
  #left = false;
  #memo; // {commodityId, requestToken?} of the wait, and of what came of it

  /**
   * @param {object} o
   * @param {import('./http.js').Api} o.api
   * @param {string} o.activityId
   * @param {{set: Function, clear: Function}} o.timers
   * @param {() => number} o.random
   * @param {Pick<Storage, 'getItem'|'setItem'|'removeItem'>|undefined} o.store keeps the wait over a reload
   * @param {() => Promise<string>} o.user who waits
   * @param {() => import('./results.js').Result|undefined} o.result how the user stands in the sale
   * @param {(place: Place) => void} o.onChange called when the place changes, and when a unit came of the wait
   */
  constructor(o) {
    this.#o = o;
    this.#path = `/v1/activities/${encodeURIComponent(o.activityId)}`;
    this.#memo = new Memo({ ...o, name: 'waitlist' });
  }

  /** The place, or null. Who takes part in the sale does not wait. @returns {Place|null} */
  get place() {
    return takesPart(this.#o.result()) ? null : this.#place;
  }

  /** The token of the request that came of the wait, if one did. */
  get promoted() {
    return this.#memo.value?.requestToken;
  }

  /** Gets in line; who is in it already stays where he is. @param {string} commodityId @returns {Promise<Place|null>} */
  async join(commodityId) {
    const heard = this.#heard;
    const post = () => this.#o.api.call('POST', `${this.#path}/waitlist`, { body: { commodityId } });
    try {
      const { position } = await insist(post, this.#o);
      await this.#memo.write({ commodityId });
      if (heard === this.#heard || !this.#place) this.#take(commodityId, position);
      // Places are pushed when they change. One as before the user left looks unchanged, and is read.
      if (this.#left) this.#o.timers.set(() => this.read().catch(() => {}), REJOIN_MS);
    } catch (err) {
      if (err.code !== 'already_waiting') throw err;
      await this.read();
    }
    return this.place;
  }

  /** Gets out of line. */
  async leave() {
    await insist(() => this.#o.api.call('DELETE', `${this.#path}/waitlist`), this.#o);
    this.#left = true;
    if (!this.promoted) await this.#memo.clear(); // else it was too late
    if (this.#place) this.#take(this.#place.commodityId, 0);
  }

  /** Asks how the user stands in the sale, and takes the place from the answer. @returns {Promise<object>} the answer */
  async read() {
    const heard = this.#heard;
    const me = await this.#o.api.call('GET', `${this.#path}/me`);
    if (heard !== this.#heard) return me; // a frame is newer
    if (me.waitlist) this.#take(me.waitlist.commodityId, me.waitlist.position);
    // The answer that tells a refusal does not tell the place.
    else if (this.#place && !me.result) this.#take(this.#place.commodityId, 0);
    return me;
  }

  /** Takes a frame of the socket. @param {Place} frame */
  frame({ commodityId, position }) {
    // A user may have got into several lines by other means: one at a time is told.
    if (this.#place && this.#place.commodityId !== commodityId) return;
    this.#take(commodityId, position);
  }

  /**
   * Takes a result: whoever takes part does not wait any more.
   * @param {import('./results.js').Result} r
   * @param {boolean} own whether it is of this client's own purchase
   */
  async settled(r, own) {
    if (r.activityId !== this.#o.activityId || !takesPart(r)) return;
    const { promoted } = this;
    const waited = Boolean(this.#place);
    this.#place = null;
    const memo = await this.#memo.read();
    if (own) await this.#memo.clear();
    else if (memo?.commodityId === r.commodityId && !memo.requestToken) await this.#memo.write({ ...memo, requestToken: r.requestToken });
    if (waited || this.promoted !== promoted) this.#o.onChange({ commodityId: r.commodityId, position: 0 });
  }

  #take(commodityId, position) {
    this.#heard++;
    const was = this.#place;
    if (takesPart(this.#o.result())) return;
    if (position === (was?.position ?? 0) && (!was || was.commodityId === commodityId)) return;
    this.#place = position > 0 ? { commodityId, position } : null;
    if (!was) this.#memo.write({ commodityId });
    this.#o.onChange({ commodityId, position });
  }
}
