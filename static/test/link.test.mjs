import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock, JWT, connected, problem, reply, result, setUp, START } from './fakes.mjs';

const ORDERS = 'POST /v1/activities/A/orders';
const RESULT = 'GET /v1/results/T1';
const ME = 'GET /v1/activities/A/me';

test('S28: the socket carries the token as a subprotocol, never in the address', async () => {
  const { sockets, events, server, clock } = await connected();
  const socket = sockets.last();
  assert.equal(socket.url, 'ws://push.test/v1/ws?activity=A&u=42');
  assert.deepEqual(socket.protocols, ['seckill.v1', `bearer.${JWT}`]);
  assert.equal(events.link.at(-1), 'socket');
  const asked = server.log.length;
  await clock.advance(30_000);
  assert.equal(server.log.length, asked, 'nothing is polled while the socket is open');
});

test('S29, FS-084: an older version never replaces a newer one', async () => {
  const { sockets, events, client } = await connected();
  const socket = sockets.last();
  for (const r of [result('processing', 0), result('paid', 2, { orderNo: '1' }), result('pending_payment', 1, { orderNo: '1' }),
    result('processing', 0), result('paid', 2, { orderNo: '1' })]) {
    socket.tell({ type: 'result', ...r });
  }
  assert.deepEqual(events.result.map((r) => r.status), ['processing', 'paid']);
  assert.equal(client.result.status, 'paid');
});

test('a refusal of a second attempt does not hide the order of the first', async () => {
  const { sockets, client } = await connected();
  sockets.last().tell({ type: 'result', ...result('pending_payment', 1, { orderNo: '1' }) });
  sockets.last().tell({ type: 'result', ...result('failed', 1, { requestToken: 'T2', reason: 'already_participated' }) });
  assert.equal(client.result.orderNo, '1');
});

test('pushed stock and state are shown; an operator\'s change of times is read', async () => {
  const { sockets, events, server, clock } = await connected();
  const live = (state, remaining) =>
    sockets.last().tell({ type: 'activity', activityId: 'A', state, items: [{ commodityId: 'C', remaining }], serverTime: clock.time });
  live('open', 3);
  assert.equal(events.state.at(-1).items[0].remaining, 3);
  const asked = server.asked('GET /v1/activities/A').length;
  live('ended', 3);
  await clock.advance(3000);
  assert.equal(server.asked('GET /v1/activities/A').length, asked + 1);
});

test('a pusher that knows less than the gateway does not have the last word', async () => {
  const { client, server, sockets, clock, events } = setUp();
  client.start();
  await clock.advance(10);
  sockets.last().tell({ type: 'activity', activityId: 'A', state: 'not_ready', items: [], serverTime: clock.time });
  sockets.last().tell({ type: 'synced', serverTime: clock.time });
  assert.equal(client.link, 'socket');
  server.activity.state = 'not_ready'; // it was right after all
  assert.equal(client.activity.state, 'scheduled');
  await clock.advance(2_000);
  assert.deepEqual(events.state.map((a) => a.state), ['scheduled', 'not_ready']);
});

test('sockets blocked: the result is polled at the pace the server names', async () => {
  const { client, server, sockets, clock, events } = setUp();
  server.answers[ORDERS] = () => reply(202, result('processing', 0, { pollAfterMs: 3000 }));
  let polls = 0;
  server.answers[RESULT] = () =>
    ++polls < 3 ? reply(200, result('processing', 0, { pollAfterMs: 3000 })) : reply(200, result('pending_payment', 1, { orderNo: '9' }));
  client.start();
  await clock.advance(10);
  sockets.last().end(1006);
  const bought = client.buy('C');
  await clock.advance(2500);
  await bought;
  const before = polls;
  await clock.advance(2400);
  assert.ok(polls - before <= 1, 'not sooner than asked');
  for (let i = 0; i < 30; i++) {
    await clock.advance(1000);
    const socket = sockets.last();
    socket.end?.(1006);
  }
  assert.deepEqual(events.result.map((r) => r.status), ['processing', 'pending_payment']);
  assert.ok(events.link.includes('polling') && !events.link.includes('socket'));
});

test('no WebSocket at all: polling only', async () => {
  const { client, server, clock, events } = setUp({ WebSocket: null });
  server.answers[ME] = () => reply(200, { activityId: 'A', state: 'open', result: result('pending_payment', 1, { orderNo: '5' }) });
  client.start();
  await clock.advance(2000);
  assert.equal(events.result[0].orderNo, '5');
  assert.deepEqual(events.link, ['polling']);
  server.down = true;
  await clock.advance(20_000);
  assert.deepEqual(events.link, ['polling', 'offline']);
});

test('FS-093: a request that stays undecided is never called failed, and one the server lost is sent again', async () => {
  const { client, server, clock, events } = setUp({ WebSocket: null });
  server.answers[ORDERS] = () => reply(202, result('processing', 0, { pollAfterMs: 2000 }));
  server.answers[RESULT] = () => reply(200, result('processing', 0, { pollAfterMs: 2000 }));
  client.start();
  const bought = client.buy('C');
  await clock.advance(10);
  await bought;
  await clock.advance(120_000);
  assert.deepEqual(events.result.map((r) => r.status), ['processing']);
  server.answers[RESULT] = () => problem(404, 'not_found');
  await clock.advance(10_000);
  const orders = server.asked(ORDERS);
  assert.ok(orders.length > 1);
  assert.ok(orders.every((r) => r.body.requestToken === 'T1' && r.body.commodityId === 'C'));
  server.answers[ORDERS] = () => problem(409, 'sold_out'); // no decision about this token
  await clock.advance(10_000);
  assert.deepEqual(events.result.map((r) => r.status), ['processing']);
  assert.equal(events.error.length > 0, true);
  server.answers[RESULT] = () => reply(200, result('pending_payment', 1, { orderNo: '3' }));
  await clock.advance(10_000);
  assert.deepEqual(events.result.map((r) => r.status), ['processing', 'pending_payment']);
});

test('FS-081: attempts spread and slow down, up to 30 s', async () => {
  const { client, sockets, server, clock } = setUp({ random: () => 1 });
  const attempts = () => sockets.all.length + server.asked('GET /v1/sse').length; // a stream fails by itself here
  client.start();
  await clock.advance(10);
  const gaps = [];
  for (let i = 0; i < 8; i++) {
    const n = attempts();
    const from = clock.time;
    sockets.last().end(1006);
    while (attempts() === n) await clock.advance(100);
    gaps.push(Math.round((clock.time - from) / 1000));
  }
  assert.deepEqual(gaps, [1, 2, 4, 8, 16, 30, 30, 30]);
});

test('close codes: who is told to sign in stays away, who has too many sockets polls', async () => {
  const signIn = await connected();
  signIn.sockets.last().end(4401);
  await signIn.clock.advance(120_000);
  assert.equal(signIn.sockets.all.length, 1);
  assert.equal(signIn.events.signin.length, 1);
  signIn.client.start(); // with another token
  await signIn.clock.advance(10);
  assert.equal(signIn.sockets.all.length, 2);

  const tooMany = await connected();
  tooMany.sockets.last().end(4429);
  await tooMany.clock.advance(60_000);
  assert.equal(tooMany.sockets.all.length, 1);
  assert.equal(tooMany.events.link.at(-1), 'polling');
  assert.ok(tooMany.server.asked(ME).length > 2);

  for (const code of [4408, 1012, 1013, 1001, 1006]) {
    const other = await connected();
    other.sockets.last().end(code);
    await other.clock.advance(6000);
    assert.equal(other.sockets.all.length, 2, `after ${code}`);
    other.sockets.last().tell({ type: 'synced', serverTime: other.clock.time });
    await other.clock.advance(0);
    assert.equal(other.events.link.at(-1), 'socket');
    const asked = other.server.asked(ME).length;
    await other.clock.advance(30_000);
    assert.equal(other.server.asked(ME).length, asked, 'polling ends');
  }
});

test('FS-090: a dead link is found within 5 s of the return, and the result is polled at once', async () => {
  const listeners = {};
  const target = { hidden: false, addEventListener: (type, f) => (listeners[type] = f), removeEventListener: () => {} };
  const { client, server, sockets, clock, events } = await connected({ page: { document: target, window: target } });
  server.answers[ORDERS] = () => reply(202, result('processing', 0));
  await Promise.all([client.buy('C'), clock.advance(0)]);
  server.answers[RESULT] = () => reply(200, result('pending_payment', 1, { orderNo: '8' }));
  target.hidden = true;
  clock.time += 60_000; // asleep: no timer runs
  target.hidden = false;
  listeners.visibilitychange();
  await clock.advance(100);
  assert.equal(events.result.at(-1).orderNo, '8');
  assert.ok(sockets.all[0].sent.some((f) => f.type === 'sync'));
  await clock.advance(5000);
  assert.ok(sockets.all[0].closed, 'the dead socket is given up');
  await clock.advance(1000);
  assert.equal(sockets.all.length, 2);
});

test('FS-090: a socket that answers the sync stays, and its round trip sets the clock', async () => {
  const { client, sockets, clock, server } = await connected();
  server.answers['GET /v1/activities/A'] = () => problem(503, 'overloaded');
  client.check();
  await clock.advance(40);
  sockets.last().tell({ type: 'synced', serverTime: clock.time - 20 });
  await clock.advance(10_000);
  assert.equal(sockets.all.length, 1);
});

test('a silent socket is tried soon while a decision is awaited, seldom otherwise', async () => {
  const { client, sockets, clock, server } = await connected();
  await clock.advance(30_000);
  assert.equal(sockets.last().sent.length, 0);
  server.answers[ORDERS] = () => reply(202, result('processing', 0));
  await Promise.all([client.buy('C'), clock.advance(0)]);
  await clock.advance(5_100);
  assert.equal(sockets.last().sent.length, 1);
});

test('FS-089: back from the history, the state is read and the socket opened, and nothing is bought', async () => {
  const listeners = {};
  const target = { hidden: false, addEventListener: (type, f) => (listeners[type] = f), removeEventListener: () => {} };
  const { server, sockets, clock } = await connected({ page: { document: target, window: target } });
  sockets.last().end(1006); // the browser closes it when the page is frozen
  const asked = server.asked(ME).length;
  listeners.pageshow({ persisted: true });
  await clock.advance(10);
  assert.equal(sockets.all.length, 2);
  assert.equal(server.asked(ME).length, asked + 1);
  assert.equal(server.asked(ORDERS).length, 0);
});

test('FS-085: the device\'s clock may be ten minutes off, and may be changed', async () => {
  for (const offset of [600_000, -600_000]) {
    const { client, server, clock } = setUp({ WebSocket: null });
    server.offset = offset;
    client.start();
    await clock.advance(100);
    assert.ok(Math.abs(client.serverNow() - (clock.time + offset)) < 1000);
    server.offset += 300_000; // the device is set back
    await clock.advance(20_000);
    assert.ok(Math.abs(client.serverNow() - (clock.time + server.offset)) < 1000);
  }
});

test('FS-085: the shortest round trip is believed', async () => {
  const { ServerClock } = await import('../client/clock.js');
  const clock = new FakeClock();
  const server = new ServerClock(clock.now);
  server.sample(START, START + 3000, START + 5000); // the stamp may be 3 s old
  server.sample(START + 3000, START + 3040, START + 5020);
  server.sample(START + 4000, START + 6000, START + 6050);
  assert.equal(server.offset, 2000);
});

test('signed out: the sale is followed, nobody\'s result is asked for', async () => {
  const { client, clock, server, sockets, events } = setUp({ getToken: () => null });
  client.start();
  await clock.advance(40_000);
  assert.ok(events.state.length === 1 && server.asked('GET /v1/activities/A').length > 2);
  assert.equal(server.asked(ME).length, 0);
  assert.equal(sockets.all.length, 0);
  await assert.rejects(client.buy('C'), { code: 'signed_out' });
  assert.equal(events.signin.length, 1);
});

test('ids and money stay text', async () => {
  const { sockets, client } = await connected();
  sockets.last().onmessage({ data: '{"type":"result","requestToken":"T1","activityId":"A","commodityId":"C","quantity":1,"status":"paid","orderNo":"63650796718526464107","version":2}' });
  assert.equal(client.result.orderNo, '63650796718526464107');
});

test('a getToken that fails once, throws, or never answers is asked again; it is no sign-out', async () => {
  const faults = [() => Promise.reject(new Error('no network')), () => { throw new Error('not ready'); }, () => new Promise(() => {})];
  for (const fault of faults) {
    let asked = 0;
    const { client, clock, sockets, events } = setUp({ getToken: () => (++asked <= 2 ? fault() : JWT) });
    client.start();
    for (let i = 0; i < 60 && sockets.all.length === 0; i++) await clock.advance(1_000);
    assert.ok(sockets.all.length > 0, 'a socket is opened in the end');
    assert.equal(events.signin.length, 0);
    client.stop();
  }
});
