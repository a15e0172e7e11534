import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connected, fakeStore, problem, reply, result, setUp, START } from './fakes.mjs';

const ME = 'GET /v1/activities/A/me';
const JOIN = 'POST /v1/activities/A/waitlist';
const LEAVE = 'DELETE /v1/activities/A/waitlist';
const ORDERS = 'POST /v1/activities/A/orders';

/** What /me answers, with a place or a result. */
const me = (more = {}) => () => reply(200, { activityId: 'A', state: 'open', ...more });
const waits = (position) => me({ waitlist: { commodityId: 'C', position, joinedAt: START } });
const promoted = (status = 'pending_payment', version = 1) => result(status, version, { requestToken: 'P1', ...(version && { orderNo: '77' }) });

/** A client that waits at place 3, over an open socket. */
async function waiting(options) {
  const all = await connected(options);
  all.server.activity.items[0].remaining = 0;
  all.server.answers[JOIN] = () => reply(200, { position: 3 });
  all.server.answers[LEAVE] = () => reply(204);
  const [place] = await Promise.all([all.client.joinWaitlist('C'), all.clock.advance(0)]);
  assert.deepEqual(place, { commodityId: 'C', position: 3 });
  all.place = (position) => all.sockets.last().tell({ type: 'waitlist', activityId: 'A', commodityId: 'C', position });
  return all;
}

test('S33: who joins is told the place, and each new one by the socket alone', async () => {
  const { client, server, clock, events, place, sockets } = await waiting();
  assert.deepEqual(server.asked(JOIN).map((r) => r.body), [{ commodityId: 'C' }]);
  const asked = server.log.length;
  place(2);
  place(2);
  sockets.last().tell({ type: 'waitlist', activityId: 'OTHER', commodityId: 'C', position: 9 });
  sockets.last().tell({ type: 'waitlist', activityId: 'A', commodityId: 'D', position: 9 });
  place(1);
  await clock.advance(30_000);
  assert.deepEqual(events.waitlist.map((p) => p.position), [3, 2, 1]);
  assert.deepEqual(client.waitlist, { commodityId: 'C', position: 1 });
  assert.equal(server.log.length, asked, 'nothing is asked for');
  place(0);
  assert.equal(client.waitlist, null);
  assert.deepEqual(events.waitlist.at(-1), { commodityId: 'C', position: 0 });
});

test('S24, S33: a result under a token that was never posted is shown, ends the wait, and tells where it came from', async () => {
  const { client, server, clock, events, place, sockets } = await waiting();
  sockets.last().tell({ type: 'result', ...promoted() });
  assert.equal(client.waitlist, null, 'at once');
  await clock.advance(0);
  assert.equal(client.result.orderNo, '77');
  assert.equal(client.promoted, true);
  assert.deepEqual(events.waitlist.at(-1), { commodityId: 'C', position: 0 });
  const told = events.waitlist.length;
  place(1); // it was on its way before
  place(0);
  assert.equal(client.waitlist, null);
  assert.equal(events.waitlist.length, told);
  sockets.last().tell({ type: 'result', ...promoted('paid', 2) });
  await clock.advance(0);
  assert.equal(client.promoted, true);
  assert.equal(server.asked(ORDERS).length, 0);
});

test('a unit for somebody who was told before that he is out of the line', async () => {
  const { client, clock, place, sockets } = await waiting();
  place(0);
  sockets.last().tell({ type: 'result', ...promoted() });
  await clock.advance(0);
  assert.equal(client.promoted, true);
});

test('S33: a reload keeps the place, and later the order with where it came from', async () => {
  const store = fakeStore();
  const first = await waiting({ store });
  first.client.stop();

  const second = setUp({ store });
  second.server.activity.items[0].remaining = 0;
  second.server.answers[ME] = waits(2);
  second.client.start();
  await second.clock.advance(10);
  second.sockets.last().tell({ type: 'synced', serverTime: second.clock.time });
  await second.clock.advance(2_000);
  assert.deepEqual(second.client.waitlist, { commodityId: 'C', position: 2 });
  assert.equal(second.server.asked(ME).length, 1);
  second.client.stop();

  for (let reload = 0; reload < 2; reload++) {
    const later = await connected({ store });
    later.sockets.last().tell({ type: 'result', ...promoted() });
    await later.clock.advance(0);
    assert.equal(later.client.promoted, true);
    later.client.stop();
  }
});

test('a place is asked for after each gap, and again when the gateway does not answer', async () => {
  const { client, server, clock, sockets } = await waiting();
  server.answers[ME] = waits(2);
  sockets.last().end(1006);
  await clock.advance(600);
  sockets.last().tell({ type: 'synced', serverTime: clock.time });
  server.down = true;
  await clock.advance(2_000);
  assert.equal(client.waitlist.position, 3);
  server.down = false;
  await clock.advance(12_000);
  assert.equal(client.waitlist.position, 2);
  const asked = server.asked(ME).length;
  await clock.advance(15_000); // not so long that the silence is taken for a dead socket
  assert.equal(server.asked(ME).length, asked);
});

test('nobody asks for a place where nothing is sold out', async () => {
  const { server, clock } = await connected();
  await clock.advance(30_000);
  assert.equal(server.asked(ME).length, 0);
});

test('S33: without a socket /me tells the place and the order, at the usual pace', async () => {
  const { client, server, clock, events } = setUp({ WebSocket: null });
  server.answers[JOIN] = () => reply(200, { position: 2 });
  client.start();
  await clock.advance(1_500);
  await Promise.all([client.joinWaitlist('C'), clock.advance(0)]);
  server.answers[ME] = waits(1);
  const asked = server.asked(ME).length;
  await clock.advance(40_000);
  const polls = server.asked(ME).length - asked;
  assert.ok(polls >= 3 && polls <= 5, `${polls} in 40 s`);
  server.answers[ME] = me({ result: promoted('processing', 0) });
  await clock.advance(12_000);
  server.answers['GET /v1/results/P1'] = () => reply(200, promoted());
  await clock.advance(12_000);
  assert.deepEqual(events.result.map((r) => r.status), ['processing', 'pending_payment']);
  assert.deepEqual(events.waitlist.map((p) => p.position), [2, 1, 0]);
  assert.equal(client.promoted, true);
});

test('a promotion that the server does not know any more is not bought by the client', async () => {
  const { client, server, clock, events, sockets } = await waiting();
  sockets.last().tell({ type: 'result', ...promoted('processing', 0) });
  sockets.last().end(1006);
  await clock.advance(30_000);
  assert.ok(server.asked('GET /v1/results/P1').length > 1);
  assert.equal(server.asked(ORDERS).length, 0);
  assert.deepEqual(events.error, []);
  assert.equal(client.result.status, 'processing');
});

test('a purchase of his own ends the wait and is no promotion', async () => {
  const { client, server, clock } = await waiting();
  server.answers[ORDERS] = () => reply(200, result('pending_payment', 1, { orderNo: '5' }));
  await Promise.all([client.buy('C'), clock.advance(0)]);
  assert.equal(client.waitlist, null);
  assert.equal(client.promoted, false);
});

test('refusals of the waitlist; who waits already is told the place', async () => {
  const { client, server, clock } = await connected();
  server.answers[JOIN] = () => problem(409, 'waitlist_closed');
  await assert.rejects(client.joinWaitlist('C'), { code: 'waitlist_closed' });
  assert.equal(client.waitlist, null);
  server.answers[JOIN] = () => problem(409, 'already_waiting');
  server.answers[ME] = waits(4);
  assert.deepEqual(await client.joinWaitlist('C'), { commodityId: 'C', position: 4 });
  server.answers[JOIN] = () => problem(409, 'already_participated', { requestToken: 'P1' });
  server.answers[ME] = me({ result: promoted() });
  await assert.rejects(client.joinWaitlist('C'), { code: 'already_participated' });
  await clock.advance(0);
  assert.equal(client.result.orderNo, '77');
  assert.equal(client.promoted, true);
});

test('joining and leaving are repeated after a lost answer', async () => {
  const { client, server, clock, events } = await waiting();
  server.down = true;
  const left = client.leaveWaitlist();
  await clock.advance(10);
  server.down = false;
  await clock.advance(5_000);
  await left;
  assert.equal(server.asked(LEAVE).length, 2);
  assert.equal(client.waitlist, null);
  assert.deepEqual(events.waitlist.map((p) => p.position), [3, 0]);
});

test('an answer that a frame has overtaken does not bring an old place back', async () => {
  const { client, server, clock, place, sockets } = await waiting();
  let answer;
  server.answers[ME] = () => new Promise((resolve) => (answer = resolve));
  client.check();
  await clock.advance(0);
  place(1);
  answer(waits(3)());
  await clock.advance(0);
  assert.equal(client.waitlist.position, 1);
  sockets.last().tell({ type: 'synced', serverTime: clock.time });
});

test('a refusal of another attempt, which hides the place in the answer, does not end the wait', async () => {
  const { client, server, clock } = await waiting();
  server.answers[ME] = me({ result: result('sold_out', 1) });
  client.check();
  await clock.advance(0);
  assert.equal(client.result.status, 'sold_out');
  assert.equal(client.waitlist.position, 3);
});

test('who leaves and comes back reads the place once more: a place as before is not pushed', async () => {
  const { client, server, clock, place } = await waiting();
  place(2);
  await Promise.all([client.leaveWaitlist(), clock.advance(0)]);
  await Promise.all([client.joinWaitlist('C'), clock.advance(0)]);
  assert.equal(client.waitlist.position, 3);
  server.answers[ME] = waits(2);
  await clock.advance(6_000);
  assert.equal(client.waitlist.position, 2);
  assert.equal(server.asked(ME).length, 1);
});
