/** Doubles for the tests of the client: a clock that moves when told, a server, and sockets. */

import { SeckillClient } from '../seckill-client.js';

export const START = 1_717_200_000_000;

/** Comes after the tasks that are due, without the wait that a browser adds to a timer. */
const afterTasks = globalThis.setImmediate ?? ((f) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => (port1.close(), f());
  port2.postMessage(null);
});

/** Lets everything that is ready run. */
export async function settle() {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => afterTasks(resolve));
}

/** A clock whose timers fire as it is moved on. */
export class FakeClock {
  time = START;
  #timers = new Map();
  #last = 0;

  now = () => this.time;
  timers = {
    set: (f, ms) => {
      this.#timers.set(++this.#last, { f, due: this.time + Math.max(0, ms) });
      return this.#last;
    },
    clear: (id) => this.#timers.delete(id),
  };

  async advance(ms) {
    const end = this.time + ms;
    await settle();
    for (;;) {
      const [id, timer] = [...this.#timers].filter(([, t]) => t.due <= end).sort((a, b) => a[1].due - b[1].due)[0] ?? [];
      if (!timer) break;
      this.#timers.delete(id);
      this.time = Math.max(this.time, timer.due);
      timer.f();
      await settle();
    }
    this.time = end;
    await settle();
  }
}

/** An answer as fetch gives it. */
export function reply(status, body, headers = {}) {
  return new Response(body === undefined ? null : JSON.stringify(body), { status, headers });
}

export function problem(status, code, more = {}, headers = {}) {
  return reply(status, { type: 'about:blank', title: code, status, code, detail: code, traceId: 't', ...more }, headers);
}

/** A gateway: answers by "METHOD path", each a function of the request's body; the log keeps what was asked. */
export class FakeServer {
  log = [];
  down = false;

  constructor(clock) {
    this.clock = clock;
    this.offset = 0; // of the server's clock
    this.granted = 0;
    this.activity = {
      activityId: 'A', title: 'Sale', state: 'scheduled', startsAt: START - 1000, endsAt: START + 3_600_000, payWithinMs: 900_000,
      pushUrl: 'ws://push.test', items: [{ commodityId: 'C', title: 'Item', price: '9.90', total: 10, remaining: 10, maxPerUser: 1 }],
    };
    this.answers = {
      'GET /v1/activities/A': () => reply(200, { ...this.activity, serverTime: clock.time + this.offset }),
      'GET /v1/activities/A/me': () => reply(200, { activityId: 'A', state: 'open' }),
      'POST /v1/activities/A/request-token': () =>
        reply(200, { requestToken: `T${++this.granted}`, expiresAt: clock.time + this.offset + 600_000 }),
    };
  }

  fetch = async (url, { method, body, headers, signal }) => {
    const key = `${method} ${new URL(url).pathname}`;
    this.log.push({ key, search: new URL(url).search, body: body && JSON.parse(body), authorization: headers.Authorization });
    if (this.down) throw new TypeError('failed to fetch');
    const answer = this.answers[key];
    if (!answer) return problem(404, 'not_found');
    const ended = new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError'))));
    return Promise.race([answer(body && JSON.parse(body)), ended]);
  };

  /** The requests made to a path. */
  asked(key) {
    return this.log.filter((r) => r.key === key);
  }
}

/** Sockets that the test plays the server of. */
export function fakeSockets() {
  const all = [];
  class FakeSocket {
    sent = [];
    closed = null;
    constructor(url, protocols) {
      Object.assign(this, { url, protocols });
      all.push(this);
    }
    send(text) {
      this.sent.push(JSON.parse(text));
    }
    close(code) {
      this.closed = code;
    }
    /** A frame of the server. */
    tell(frame) {
      this.onmessage?.({ data: JSON.stringify(frame) });
    }
    /** The server, or the network, ends it. */
    end(code) {
      this.onclose?.({ code });
    }
  }
  return { FakeSocket, all, last: () => all.at(-1) };
}

/** The JWT of user 42; nobody checks its signature here. */
export const JWT = `e30.${btoa('{"sub":"42"}')}.x`;

/** A client with all its doubles; events are collected by type. */
export function setUp(options = {}) {
  const clock = new FakeClock();
  const server = new FakeServer(clock);
  const sockets = fakeSockets();
  const client = new SeckillClient({
    baseUrl: 'http://gateway.test', activityId: 'A', getToken: () => JWT, fetch: server.fetch, WebSocket: sockets.FakeSocket,
    now: clock.now, timers: clock.timers, random: () => 0.5, page: null, ...options,
  });
  const events = { state: [], result: [], waitlist: [], link: [], retry: [], signin: [], error: [] };
  for (const type of Object.keys(events)) client.on(type, (value) => events[type].push(value));
  return { clock, server, sockets, client, events };
}

/** A result of token T1. */
export function result(status, version, more = {}) {
  return { requestToken: 'T1', activityId: 'A', commodityId: 'C', quantity: 1, status, version, ...more };
}

/** A store such as sessionStorage. */
export function fakeStore(entries = []) {
  const kept = new Map(entries);
  return { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v), removeItem: (k) => kept.delete(k) };
}

/** A client whose socket is open and has told the state. */
export async function connected(options) {
  const all = setUp(options);
  all.client.start();
  await all.clock.advance(10);
  all.sockets.last().tell({ type: 'synced', serverTime: all.clock.time });
  await all.clock.advance(0);
  return all;
}
