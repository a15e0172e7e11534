/**
 * One attempt to buy at a time. Every retry carries the same request token, so that the server takes it for the same
 * purchase; what is undecided is never called failed.
 */

import { Memo } from './memo.js';
import { SeckillError } from './http.js';
import { fullJitter } from './util.js';
import { takesPart, undecided } from './results.js';

const TOKEN_MARGIN_MS = 30_000; // a token that expires sooner is not used for a new purchase
const PREPARE_MS = 60_000; // before the start, the request token is fetched somewhere in this window
const EARLY_MS = 2_000; // a purchase that comes so much too early waits for the start
const MAX_INTERNAL = 3; // retries after an error of the server that says nothing of its cause
const BASE_MS = 500;
const CAP_MS = 10_000;

export class Purchase {
  #o;
  #running = null; // {commodityId, quantity, promise}
  #memo; // {requestToken, expiresAt, commodityId?, quantity?, posted}
  #ahead = null; // the timer of a token that is fetched before the start
  #wake = null; // ends the wait before the next attempt
  #stopped = false;

  /**
   * @param {object} o
   * @param {import('./http.js').Api} o.api
   * @param {import('./results.js').Results} o.results
   * @param {string} o.activityId
   * @param {{set: Function, clear: Function}} o.timers
   * @param {() => number} o.random
   * @param {() => number} o.serverNow
   * @param {Pick<Storage, 'getItem'|'setItem'|'removeItem'>|undefined} o.store keeps the token over a reload
   * @param {() => Promise<string>} o.user whose purchase it is
   * @param {() => Promise<boolean>} o.wanted whether a token fetched ahead of time may be of use
   * @param {(retry: {code: string, delayMs: number, attempt: number}) => void} o.onRetry
   */
  constructor(o) {
    this.#o = o;
    this.#memo = new Memo({ ...o, name: 'purchase' });
  }

  /** Whether a purchase is being asked for. */
  get running() {
    return this.#running !== null;
  }

  /** The token that was posted and whose fate is not known; undefined when there is none. */
  async open() {
    const memo = await this.#memo.read();
    return memo?.posted ? memo.requestToken : undefined;
  }

  /**
   * Gets a request token ahead of time, so that the first click costs one request only.
   * @returns {Promise<string>}
   */
  async prepare() {
    const memo = await this.#memo.read();
    if (memo && (memo.posted || memo.expiresAt - this.#o.serverNow() > TOKEN_MARGIN_MS)) return memo.requestToken;
    const { api, activityId } = this.#o;
    const granted = await api.call('POST', `/v1/activities/${activityId}/request-token`);
    await this.#memo.write({ ...granted, posted: false });
    return granted.requestToken;
  }

  /** Gets the token before the start of the sale, at a moment of this client's own. @param {number} startsAt */
  prepareBefore(startsAt) {
    const { timers, random, serverNow, wanted } = this.#o;
    timers.clear(this.#ahead);
    const wait = startsAt - serverNow();
    if (wait <= 0) return;
    const early = Math.min(PREPARE_MS, wait) * (0.05 + 0.9 * random());
    this.#ahead = timers.set(async () => {
      if (await wanted()) this.prepare().catch(() => {}); // the purchase itself asks again
    }, Math.min(wait - early, 2 ** 31 - 1));
  }

  /**
   * Buys. A second call while the first is under way joins it, and ends its wait for the next attempt.
   * @param {string} commodityId
   * @param {number} quantity
   * @returns {Promise<import('./results.js').Result>}
   */
  buy(commodityId, quantity) {
    const running = this.#running;
    if (running) {
      this.wake();
      if (running.commodityId === commodityId && running.quantity === quantity) return running.promise;
      return Promise.reject(new SeckillError('in_flight', 'another purchase is under way'));
    }
    const promise = this.#run(commodityId, quantity).finally(() => (this.#running = null));
    this.#running = { commodityId, quantity, promise };
    return promise;
  }

  /**
   * Posts an order again that the server accepted once and does not know any more.
   * @param {import('./results.js').Result} r
   */
  async resubmit(r) {
    if (this.#running) return;
    this.#o.results.apply(await this.#post(r.requestToken, r.commodityId, r.quantity));
  }

  /** A result came in: a token that is decided is not used again. The answer is whether it is this purchase's own. */
  async settled(r) {
    const own = (await this.#memo.read())?.requestToken === r.requestToken;
    if (own && !undecided(r)) await this.#memo.clear();
    return own;
  }

  /** Ends the wait before the next attempt, if there is one. */
  wake() {
    this.#wake?.();
  }

  stop() {
    this.#stopped = true;
    this.#o.timers.clear(this.#ahead);
    this.wake();
  }

  async #run(commodityId, quantity) {
    const state = { attempt: 0, internal: 0, uncertain: false, renewed: false };
    const old = (await this.#memo.read())?.posted; // by an earlier purchase, perhaps of a page that was closed
    for (;;) {
      if (this.#stopped) throw new SeckillError('stopped', 'the client was stopped');
      try {
        const token = await this.prepare();
        await this.#memo.write({ ...this.#memo.value, posted: true, commodityId, quantity });
        const result = this.#o.results.apply(await this.#post(token, commodityId, quantity));
        if (!old || state.renewed || takesPart(result)) return result;
        state.renewed = true; // that was the refusal of the earlier one
        await this.#memo.clear();
        continue;
      } catch (err) {
        if (!(err instanceof SeckillError)) throw err;
        const known = await this.#judge(err, state, commodityId, quantity);
        if (known) return known;
      }
      state.attempt++;
    }
  }

  #post(requestToken, commodityId, quantity) {
    const body = { requestToken, commodityId };
    if (quantity !== 1) body.quantity = quantity;
    return this.#o.api.call('POST', `/v1/activities/${this.#o.activityId}/orders`, { body });
  }

  /**
   * Decides what an error means: a result that is known after all is returned; undefined means to try again, after the
   * wait that is due; a refusal is thrown.
   */
  async #judge(err, state, commodityId, quantity) {
    const memo = this.#memo.value;
    const { results, activityId } = this.#o;
    switch (err.code) {
      case 'pending': // held, but its place in the queue is not confirmed
        state.uncertain = true;
        results.apply({ requestToken: memo.requestToken, activityId, commodityId, quantity, status: 'processing', version: 0 });
        return void (await this.#pause(err, state));
      case 'already_participated':
        return await this.#lookUp(err.requestToken ?? memo?.requestToken, err, state);
      case 'token_mismatch': // this token bought something else before
        return await this.#lookUp(memo.requestToken, err, state);
      case 'invalid_token': // not used in time: another one cannot buy twice, since the server counts users
        if (state.renewed) throw err;
        state.renewed = true;
        return void (await this.#memo.clear());
      case 'not_started':
        if (!(err.startsAt - err.serverTime <= EARLY_MS)) return await this.#refused(err);
        err.retryAfterMs = Math.max(20, err.startsAt - err.serverTime);
        return void (await this.#pause(err, state));
      case 'internal':
        state.uncertain = true;
        if (++state.internal > MAX_INTERNAL) throw err;
        return void (await this.#pause(err, state));
    }
    if (err.temporary) {
      if (err.status !== 429 && err.code !== 'not_ready') state.uncertain = true;
      return void (await this.#pause(err, state));
    }
    // A refusal of this attempt is no decision on an earlier one with the same token.
    if (state.uncertain) return await this.#lookUp(memo.requestToken, err, state);
    return await this.#refused(err);
  }

  /** A refusal does not use up the token: it serves the next attempt. */
  async #refused(err) {
    if (this.#memo.value) await this.#memo.write({ ...this.#memo.value, posted: false });
    throw err;
  }

  /** Reads how a token stands; one that is unknown leaves the refusal as it is. */
  async #lookUp(token, refusal, state) {
    if (!token) throw refusal;
    for (;;) {
      try {
        return this.#o.results.apply(await this.#o.api.call('GET', `/v1/results/${token}`));
      } catch (err) {
        if (err.code === 'not_found') return await this.#refused(refusal);
        if (!err.temporary || this.#stopped) throw err;
        await this.#pause(err, state);
      }
    }
  }

  /** Waits as long as the server asks, a little more so that not all come back at once, or backs off. */
  async #pause(err, state) {
    const { random, timers, onRetry } = this.#o;
    const asked = err.retryAfterMs;
    const delayMs = Math.round(asked ? asked + random() * Math.min(1000, asked / 2) : fullJitter(random, state.attempt, BASE_MS, CAP_MS));
    onRetry({ code: err.code, delayMs, attempt: state.attempt });
    if (this.#stopped) return;
    await new Promise((resolve) => {
      const timer = timers.set(resolve, delayMs);
      this.#wake = () => {
        timers.clear(timer);
        resolve();
      };
    });
    this.#wake = null;
  }
}
