/**
 * A client of one sale, for pages and for programs: it needs no DOM, no build step and no other code.
 *
 *   const client = new SeckillClient({ baseUrl: 'https://shop.example', activityId: 'SALE1', getToken: () => jwt });
 *   client.on('result', (r) => console.log(r.status, r.orderNo));
 *   client.start();
 *   await client.buy('PHONE');
 *
 * It tells what happens by events:
 *   state   the Activity, whenever it or its stock changes
 *   result  a Result of any sale of the user, each version once, never an older one after a newer one
 *   link    'socket' (pushed: by a WebSocket, or an event stream), 'polling' (asked for, held where that gets through),
 *           'offline' (no server is reached)
 *   waitlist {commodityId, position}: the user's place in line; 0: no longer in it
 *   retry   {code, delayMs, attempt}: a purchase is tried again, with the same request token
 *   signin  the token is missing, wrong or expired: get another and call start()
 *   error   a SeckillError of background work
 */

import { sameActivity, stateAt, withStock } from './client/activity.js';
import { Api, SeckillError, tokenGetter } from './client/http.js';
import { Hold } from './client/hold.js';
import { Link, socketUrl } from './client/link.js';
import { Purchase } from './client/purchase.js';
import { Results, resultOf, takesPart, undecided } from './client/results.js';
import { ServerClock } from './client/clock.js';
import { readStanding, standingPace } from './client/standing.js';
import { Emitter, Loop, around, insist, subjectOf } from './client/util.js';
import { Waitlist } from './client/waitlist.js';
import { watch } from './client/watch.js';

export { SeckillError, stateAt, takesPart, undecided };

/** @typedef {import('./client/results.js').Result} Result */
/** @typedef {import('./client/activity.js').Activity} Activity */
/** @typedef {import('./client/waitlist.js').Place} Place */

const BOUGHT_MS = 2_000; // after a purchase, until its result is asked for
const STOCK_POLL_MS = 3_000; // of a sale that is on
const CALM_POLL_MS = 15_000; // of one that is not
const SOCKET_GRACE_MS = 1_000; // for the socket to tell the state before it is asked for
const LIVE_TRUST_MS = 2_000; // stock that was pushed so recently is newer than what a gateway remembers
const CHECK_MS = 300; // within which several signs of a return are one
const SPREAD_MS = 2_000; // over which all who heard the same at once ask about it

export class SeckillClient {
  #o;
  #api;
  #clock;
  #link;
  #purchase;
  #results;
  #waitlist;
  #emitter = new Emitter();
  #activity = null;
  #liveAt = 0;
  #linkState = null;
  #reached = null;
  #started = false;
  #checkedAt = 0;
  #hold = new Hold();
  #gap = false; // something was missed: the sale is read again once the socket is up
  #signedOut = false; // the token was refused, and start has not been called since
  #loops;
  #unwatch = () => {};

  /**
   * @param {object} options
   * @param {string} options.activityId the sale
   * @param {() => (string|null|Promise<string|null>)} options.getToken the user's JWT, or null when nobody is signed in
   * @param {string} [options.baseUrl] of the gateway; default: the page's own
   * @param {string} [options.pushUrl] of the pusher; default: what the gateway says
   * @param {typeof fetch} [options.fetch]
   * @param {typeof WebSocket|null} [options.WebSocket] null: poll only
   * @param {Pick<Storage, 'getItem'|'setItem'|'removeItem'>} [options.store] keeps a purchase over a reload; default: none
   * @param {() => number} [options.now] the device's clock, epoch milliseconds
   * @param {() => number} [options.random] numbers from 0 to 1
   * @param {{set: Function, clear: Function}} [options.timers]
   * @param {{document: Document, window: Window}|null} [options.page] what tells of sleep and return; default: the browser's
   */
  constructor(options) {
    const o = (this.#o = {
      baseUrl: '',
      fetch: (...args) => globalThis.fetch(...args),
      WebSocket: globalThis.WebSocket,
      now: () => Date.now(),
      random: Math.random,
      timers: { set: (f, ms) => setTimeout(f, ms), clear: (id) => clearTimeout(id) },
      page: globalThis.document ? { document: globalThis.document, window: globalThis } : null,
      ...options,
    });
    o.getToken = tokenGetter(o);
    this.#clock = new ServerClock(o.now);
    this.#results = new Results((r) => this.#news(r));
    const onSignIn = () => this.#signIn();
    const onServerTime = (...s) => this.#clock.sample(...s);
    this.#api = new Api({ ...o, onServerTime, onSignIn, onReach: (ok) => this.#reach(ok) });
    const user = async () => subjectOf((await o.getToken()) ?? '');
    const shared = { api: this.#api, activityId: o.activityId, timers: o.timers, random: o.random, store: o.store, user };
    this.#purchase = new Purchase({
      ...shared, results: this.#results, serverNow: () => this.serverNow(),
      wanted: async () => !takesPart(this.result) && this.#signedIn(),
      onRetry: (retry) => this.#emitter.emit('retry', retry),
    });
    this.#waitlist = new Waitlist({ ...shared, result: () => this.result, onChange: (p) => this.#emitter.emit('waitlist', p) });
    this.#link = new Link({
      getToken: o.getToken, WebSocket: o.WebSocket, fetch: o.fetch, timers: o.timers, random: o.random, now: o.now, onSignIn, onServerTime,
      url: () => socketUrl(o.pushUrl || this.#activity?.pushUrl || o.baseUrl, o.activityId),
      awaiting: () => undecided(this.result),
      visible: () => !o.page?.document.hidden,
      onFrame: (frame) => this.#frame(frame),
      onUp: () => this.#pushed(),
      onDown: () => this.#fallBack(around(o.random, SOCKET_GRACE_MS)),
    });
    const standing = { ...shared, results: this.#results, purchase: this.#purchase, waitlist: this.#waitlist };
    this.#loops = {
      activity: new Loop(() => this.#pollActivity(), o),
      result: new Loop(() => this.#pollResult(standing), o),
    };
  }

  /** Listens to an event; the answer removes the listener. @param {string} type @param {(value: any) => void} listener */
  on(type, listener) {
    return this.#emitter.on(type, listener);
  }

  /** The sale as last heard of, or null. @returns {Activity|null} */
  get activity() {
    return this.#activity;
  }

  /** How the user stands in this sale, if that is known. @returns {Result|undefined} */
  get result() {
    return this.#results.of(this.#o.activityId);
  }

  /** The user's place in this sale's waitlist, or null. @returns {Place|null} */
  get waitlist() {
    return this.#waitlist.place;
  }

  /** Whether the user's request in this sale came of the waitlist. */
  get promoted() {
    return this.result !== undefined && this.result.requestToken === this.#waitlist.promoted;
  }

  /** 'socket', 'polling', 'offline', or null before anything is known. */
  get link() {
    return this.#linkState;
  }

  /** Whether a purchase is being asked for. */
  get buying() {
    return this.#purchase.running;
  }

  /** The server's time now, epoch milliseconds. */
  serverNow() {
    return this.#clock.now();
  }

  /** Begins to follow the sale and the user's results; also after a new sign-in. */
  start() {
    this.#started = true;
    this.#signedOut = false;
    this.#unwatch();
    this.#unwatch = watch(this.#o.page, () => this.check(), () => (this.#reach(false), this.#link.check()));
    if (this.#activity) this.#prepareSoon();
    this.#loops.activity.now();
    this.#loops.result.in(SOCKET_GRACE_MS);
  }

  /** Ends all of it. A stopped client cannot buy any more; make another one. */
  stop() {
    this.#started = false;
    this.#unwatch();
    this.#link.stop();
    this.#hold.stop();
    this.#purchase.stop();
    for (const loop of Object.values(this.#loops)) loop.stop();
  }

  /** Looks at everything again: after sleep, a change of network, a return to the page. */
  check() {
    const now = this.#o.now();
    if (!this.#started || Math.abs(now - this.#checkedAt) < CHECK_MS) return;
    this.#checkedAt = now;
    this.#purchase.wake();
    this.#link.check();
    this.#hold.stop();
    this.#loops.activity.now();
    this.#loops.result.now();
  }

  /** All sales. @returns {Promise<Activity[]>} */
  async activities() {
    return (await this.#api.call('GET', '/v1/activities', { anonymous: true })).activities;
  }

  /** Gets the request token ahead of time. @returns {Promise<string>} */
  requestToken() {
    return this.#purchase.prepare();
  }

  /**
   * Buys, trying again until the server has taken the request or refused it. A second call meanwhile joins the first.
   * @param {string} commodityId
   * @param {{quantity?: number}} [how]
   * @returns {Promise<Result>} often still "processing": the decision comes as a result event
   * @throws {SeckillError} for a refusal
   */
  async buy(commodityId, { quantity = 1 } = {}) {
    try {
      return await this.#purchase.buy(commodityId, quantity);
    } finally {
      this.#link.expect();
      if (this.#started && !this.#link.up) this.#loops.result.in(BOUGHT_MS);
    }
  }

  /**
   * Gets in line for a unit that comes back. The place comes as waitlist events, and a unit as a result event, under a
   * request token of its own.
   * @param {string} commodityId
   * @returns {Promise<Place|null>} null: a unit has come already, or the place is not known yet
   * @throws {SeckillError} for a refusal
   */
  async joinWaitlist(commodityId) {
    try {
      return await this.#waitlist.join(commodityId);
    } catch (err) {
      if (err.code === 'already_participated') this.#loops.result.now(); // and this is how
      throw err;
    }
  }

  /** Gets out of line. */
  leaveWaitlist() {
    return this.#waitlist.leave();
  }

  /** A page of the user's orders, newest first. @returns {Promise<{orders: object[], nextCursor: string}>} */
  orders({ limit = 20, cursor = '' } = {}) {
    return this.#api.call('GET', `/v1/orders?limit=${limit}&cursor=${encodeURIComponent(cursor)}`);
  }

  /** One order of the user. @param {string} orderNo */
  order(orderNo) {
    return this.#api.call('GET', `/v1/orders/${encodeURIComponent(orderNo)}`);
  }

  /** Pays an order, where the demo payment is on. @param {string} orderNo @returns {Promise<object>} the order */
  pay(orderNo) {
    return this.#change(orderNo, 'pay');
  }

  /** Cancels an unpaid order. @param {string} orderNo @returns {Promise<object>} the order */
  cancel(orderNo) {
    return this.#change(orderNo, 'cancel');
  }

  /** Pays or cancels. A repeat is answered as the first, so that a lost answer is asked for again. */
  async #change(orderNo, verb) {
    try {
      const order = await insist(() => this.#api.call('POST', `/v1/orders/${encodeURIComponent(orderNo)}/${verb}`), this.#o);
      this.#results.apply(resultOf(order));
      return order;
    } catch (err) {
      if (err.code === 'wrong_status') this.#loops.result.now();
      throw err;
    }
  }

  /** A frame of the socket. */
  #frame(frame) {
    if (frame.type === 'result') this.#results.apply(frame);
    if (frame.activityId !== this.#o.activityId) return;
    if (frame.type === 'activity') this.#live(frame);
    if (frame.type === 'waitlist') this.#waitlist.frame(frame);
  }

  /** Puts pushed stock and state into what is known of the sale. */
  #live(frame) {
    const a = this.#activity;
    if (!a || frame.serverTime < a.serverTime - LIVE_TRUST_MS) return;
    // Without stock, the pusher does not know the sale yet, or Redis has lost it: the gateway knows which.
    if (frame.items.length < a.items.length) return this.#askSoon();
    this.#liveAt = this.#o.now();
    const before = stateAt(a, this.serverNow());
    this.#setActivity({ ...withStock(a, frame.items), state: frame.state, serverTime: Math.max(a.serverTime, frame.serverTime) });
    // An operator moved it: its times are not in the frame.
    if (before !== stateAt(this.#activity, this.serverNow())) this.#askSoon();
  }

  /** Reads the sale again. All viewers have heard the same at once, so they do not ask at once. */
  #askSoon() {
    if (this.#link.up) this.#loops.activity.in(this.#o.random() * SPREAD_MS);
    else this.#gap = true; // as soon as the socket is up
  }

  #setActivity(a) {
    const was = this.#activity;
    this.#activity = a;
    if (sameActivity(was, a)) return;
    this.#emitter.emit('state', a);
    this.#prepareSoon();
  }

  #prepareSoon() {
    if (this.#started) this.#purchase.prepareBefore(this.#activity.startsAt);
  }

  #news(r) {
    this.#purchase.settled(r).then((own) => this.#waitlist.settled(r, own)).catch((err) => this.#emitter.emit('error', err));
    this.#emitter.emit('result', r);
    this.#link.expect();
  }

  async #pollActivity() {
    const { random, activityId } = this.#o;
    try {
      const a = await this.#api.call('GET', `/v1/activities/${encodeURIComponent(activityId)}`, { anonymous: true });
      const pushed = this.#link.up && this.#o.now() - this.#liveAt < LIVE_TRUST_MS;
      if (this.#started) this.#setActivity(pushed && this.#activity ? withStock(a, this.#activity.items) : a);
    } catch (err) {
      if (!err.temporary) this.#emitter.emit('error', err);
      return around(random, err.retryAfterMs ?? (this.#link.up ? CALM_POLL_MS : STOCK_POLL_MS));
    }
    if (!this.#started) return null;
    if (await this.#signedIn()) this.#link.start();
    if (this.#link.up) return null;
    return around(random, stateAt(this.#activity, this.serverNow()) === 'open' ? STOCK_POLL_MS : CALM_POLL_MS);
  }

  /** Reads the user's result; says when to do so again, or null while the socket tells. */
  async #pollResult(standing) {
    if (!(await this.#signedIn())) return null;
    let wait = null;
    try {
      await readStanding({ ...standing, hold: this.#link.up ? undefined : this.#hold.begin() });
      this.#hold.end();
    } catch (err) {
      this.#hold.end(err);
      if (err.code === 'stopped') return this.#link.up ? null : 0;
      if (err.code === 'unauthenticated' || err.code === 'signed_out') return null;
      if (!err.temporary && err.code !== 'not_found') this.#emitter.emit('error', err);
      wait = err.retryAfterMs ?? 0;
    }
    if (this.#link.up && !(wait !== null && this.#mayWait())) return null;
    return Math.max(wait, standingPace(this.result, this.#o.random));
  }

  async #signedIn() {
    if (this.#signedOut) return false;
    return Boolean(await this.#o.getToken().catch(() => 'not known')); // a failure is not a sign-out
  }

  #signIn() {
    this.#signedOut = true;
    this.#link.stop();
    this.#loops.result.stop();
    this.#emitter.emit('signin');
  }

  /** The socket tells from now on. What it does not tell, such as changed times, is read once after a gap. */
  #pushed() {
    this.#hold.stop();
    this.#tellLink();
    for (const loop of Object.values(this.#loops)) loop.stop();
    if (this.#gap) this.#loops.activity.in(this.#o.random() * SPREAD_MS);
    this.#gap = false;
    if (this.#mayWait()) this.#loops.result.in(this.#o.random() * SPREAD_MS); // a place is pushed only when it changes
  }

  /** Whether the user may be in line, as far as is known. */
  #mayWait() {
    const { state, items } = this.#activity;
    return Boolean(this.waitlist) || (!takesPart(this.result) && state !== 'settled' && items.some((it) => it.remaining <= 0));
  }

  #fallBack(delayMs) {
    this.#gap = true;
    this.#tellLink();
    if (!this.#started) return;
    this.#loops.activity.in(delayMs);
    this.#loops.result.in(delayMs);
  }

  #reach(ok) {
    this.#reached = ok;
    this.#tellLink();
  }

  #tellLink() {
    const state = this.#link.up ? 'socket' : this.#reached === null ? null : this.#reached ? 'polling' : 'offline';
    if (state === this.#linkState) return;
    this.#linkState = state;
    this.#emitter.emit('link', state);
  }
}
