/**
 * One connection to a pusher, kept up: opened again after a loss, found out when dead, given up when that is asked. It is a
 * WebSocket, or, where those do not get through, an event stream.
 */

import { EventStream } from './stream.js';
import { around, fullJitter, subjectOf } from './util.js';

const SYNC_WAIT_MS = 5_000; // for the answer to a sync on an open socket
const OPEN_WAIT_MS = 10_000; // from the attempt until the state has been sent
const STABLE_MS = 5_000; // a socket that lived so long resets the back-off
const BASE_MS = 1_000;
const RESTART_BASE_MS = 5_000; // first window after a restart of the server, which hits many at once
const CAP_MS = 30_000;
const TOO_MANY_MS = 120_000; // until the user may have closed other tabs
const QUIET_MS = 35_000; // silence after which the socket is tried
const SOCKET_TRIES = 2; // attempts with a WebSocket that came to nothing, before a stream has its turn
const WAITING_QUIET_MS = 5_000; // the same while a decision is awaited; doubles up to QUIET_MS

/** Close codes of the API. */
const SIGN_IN = 4401;
const TOO_MANY = 4429;
const POLICY = 1008;
const RESTARTS = [1001, 1012, 1013];

/** The address of a sale's socket at a pusher; without a pusher, at the page's own server. @param {string|undefined} base */
export function socketUrl(base, activityId) {
  const url = base || globalThis.location?.origin || '';
  return `${url.replace(/^http/, 'ws').replace(/\/$/, '')}/v1/ws?activity=${encodeURIComponent(activityId)}`;
}

export class Link {
  #o;
  #socket = null;
  #up = false;
  #attempt = 0;
  #failed = 0; // attempts in a row that came to nothing
  #streams = false; // the present connection is a stream, or the last was
  #syncSentAt = 0;
  #quietRounds = 0;
  #timers = { retry: null, deadline: null, stable: null, quiet: null };
  #stopped = true;

  /**
   * @param {object} o
   * @param {() => string} o.url of the pusher, with the query but without u
   * @param {() => (string|null|Promise<string|null>)} o.getToken
   * @param {typeof WebSocket|undefined|null} o.WebSocket undefined: streams only; null: neither
   * @param {typeof fetch} o.fetch for streams
   * @param {{set: Function, clear: Function}} o.timers
   * @param {() => number} o.random
   * @param {() => number} o.now
   * @param {() => boolean} o.awaiting whether a decision is awaited
   * @param {() => boolean} o.visible whether anybody looks
   * @param {(frame: object) => void} o.onFrame
   * @param {() => void} o.onUp after the state has been told
   * @param {(code: number) => void} o.onDown
   * @param {() => void} o.onSignIn
   * @param {(sentAt: number, receivedAt: number, serverTime: number) => void} o.onServerTime
   */
  constructor(o) {
    this.#o = o;
  }

  /** Whether the socket is open and the state has been told over it. */
  get up() {
    return this.#up;
  }

  /** Whether there is any use in waiting for the socket. */
  get possible() {
    return !this.#stopped && this.#o.WebSocket !== null;
  }

  start() {
    if (!this.#stopped) return;
    this.#stopped = false;
    this.#attempt = this.#failed = 0;
    this.#open();
  }

  stop() {
    this.#stopped = true;
    this.#drop(1000);
    for (const name of Object.keys(this.#timers)) this.#clear(name);
  }

  /** Finds out whether the link still lives; opens it now if it waits for its next attempt. */
  check() {
    if (this.#stopped) return;
    if (this.#up) this.#sync();
    else if (!this.#socket) this.#open();
  }

  /** A decision is awaited from now on: silence means more than before. */
  expect() {
    this.#quietRounds = 0;
    this.#listen();
  }

  async #open() {
    this.#clear('retry');
    const { WebSocket } = this.#o;
    if (WebSocket === null || this.#socket) return;
    const placeholder = (this.#socket = {}); // one attempt at a time, also while the token is fetched
    let token;
    let failed = false;
    try {
      token = await this.#o.getToken();
    } catch {
      failed = true; // such as a refresh without a network: not the same as nobody being signed in
    }
    if (this.#socket !== placeholder) return;
    this.#socket = null;
    if (this.#stopped) return;
    if (failed) return this.#lost(0);
    if (!token) return this.#o.onSignIn();
    let socket;
    try {
      const user = subjectOf(token);
      const to = [this.#o.url() + (user && `&u=${user}`), ['seckill.v1', `bearer.${token}`]];
      this.#streams = this.#nextIsStream();
      socket = this.#streams ? new EventStream(...to, this.#o.fetch) : new WebSocket(...to);
    } catch {
      return this.#lost(0); // a policy of the page, or a wrong address
    }
    this.#socket = socket;
    this.#set('deadline', () => this.#lost(0), OPEN_WAIT_MS);
    socket.onmessage = (event) => this.#socket === socket && this.#receive(event.data);
    socket.onclose = (event) => this.#socket === socket && this.#lost(event.code);
    if (this.#streams) socket.onalive = () => this.#socket === socket && this.#listen();
  }

  /** A stream that works is kept; when sockets come to nothing, each has its turn. */
  #nextIsStream() {
    if (!this.#o.WebSocket) return true;
    if (this.#failed === 0) return this.#streams;
    return this.#failed >= SOCKET_TRIES && !this.#streams;
  }

  #receive(data) {
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return;
    }
    if (frame.type === 'synced') this.#synced(frame);
    else this.#o.onFrame(frame);
    this.#listen();
  }

  #synced(frame) {
    this.#clear('deadline');
    if (this.#syncSentAt) this.#o.onServerTime(this.#syncSentAt, this.#o.now(), frame.serverTime);
    this.#syncSentAt = 0;
    if (this.#up) return;
    this.#up = true;
    this.#failed = 0;
    this.#set('stable', () => (this.#attempt = 0), STABLE_MS);
    this.#o.onUp();
  }

  #sync() {
    if (this.#syncSentAt) return; // one is under way
    try {
      this.#socket.send('{"type":"sync"}');
    } catch {
      return this.#lost(0);
    }
    this.#syncSentAt = this.#o.now();
    this.#set('deadline', () => this.#lost(0), SYNC_WAIT_MS);
  }

  /** (Re)starts the wait for silence. Nobody looks: nothing is tried until somebody does. */
  #listen() {
    if (!this.#up) return;
    let quiet = QUIET_MS;
    if (this.#o.awaiting()) quiet = Math.min(quiet, WAITING_QUIET_MS * 2 ** this.#quietRounds);
    this.#set('quiet', () => {
      if (!this.#o.visible()) return this.#listen();
      this.#quietRounds++;
      this.#sync();
    }, around(this.#o.random, quiet));
  }

  /** The socket is gone, or is given up. */
  #lost(code) {
    if (!this.#up) this.#failed++;
    this.#drop(code === 0 ? 4000 : 1000);
    if (this.#stopped) return;
    this.#o.onDown(code);
    if (code === SIGN_IN) {
      this.#stopped = true;
      this.#o.onSignIn();
      return;
    }
    this.#set('retry', () => this.#open(), this.#delay(code));
    this.#attempt++;
  }

  #delay(code) {
    const { random } = this.#o;
    if (code === TOO_MANY) return around(random, TOO_MANY_MS);
    if (code === POLICY) return around(random, CAP_MS);
    return fullJitter(random, this.#attempt, RESTARTS.includes(code) ? RESTART_BASE_MS : BASE_MS, CAP_MS);
  }

  /** Forgets the socket at once: a dead one would take minutes to say that it is closed. */
  #drop(code) {
    const socket = this.#socket;
    this.#socket = null;
    this.#up = false;
    this.#syncSentAt = 0;
    for (const name of ['deadline', 'stable', 'quiet']) this.#clear(name);
    if (!socket?.close) return;
    socket.onmessage = socket.onclose = socket.onalive = null;
    try {
      socket.close(code);
    } catch {
      // it had been closed
    }
  }

  #set(name, what, ms) {
    this.#clear(name);
    this.#timers[name] = this.#o.timers.set(() => {
      this.#timers[name] = null;
      what();
    }, ms);
  }

  #clear(name) {
    if (this.#timers[name] !== null) this.#o.timers.clear(this.#timers[name]);
    this.#timers[name] = null;
  }
}
