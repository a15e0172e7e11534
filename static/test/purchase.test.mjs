import assert from 'node:assert/strict';
import { test } from 'node:test';
import { problem, reply, result, setUp, START } from './fakes.mjs';

const ORDERS = 'POST /v1/activities/A/orders';
const TOKENS = 'POST /v1/activities/A/request-token';

/** Answers one after the other; the last one stays. */
function inTurn(...answers) {
  return () => (answers.length > 1 ? answers.shift() : answers[0])();
}

test('FS-088: clicks while a purchase is under way join it', async () => {
  const { client, server, clock } = setUp();
  server.answers[ORDERS] = () => reply(202, result('processing', 0));
  const clicks = [1, 2, 3, 4, 5].map(() => client.buy('C'));
  await clock.advance(300);
  const results = await Promise.all(clicks);
  assert.equal(server.asked(ORDERS).length, 1);
  assert.ok(results.every((r) => r.requestToken === 'T1'));
});

test('FS-088: a retry after a lost reply carries the same token', async () => {
  const { client, server, clock, events } = setUp();
  server.answers[ORDERS] = inTurn(() => { throw new TypeError('reset'); }, () => reply(202, result('processing', 0)));
  const bought = client.buy('C');
  await clock.advance(20_000);
  assert.equal((await bought).status, 'processing');
  assert.deepEqual(server.asked(ORDERS).map((r) => r.body), Array(2).fill({ requestToken: 'T1', commodityId: 'C' }));
  assert.equal(server.asked(TOKENS).length, 1);
  assert.equal(events.retry[0].code, 'network');
});

test('a server that is busy is asked again no sooner than it says', async () => {
  for (const [answer, soonest] of [
    [() => problem(503, 'overloaded', { retryAfterMs: 1500 }), 1500],
    [() => problem(503, 'not_ready', {}, { 'Retry-After': '2' }), 2000],
    [() => problem(429, 'rate_limited', { retryAfterMs: 400 }), 400],
    [() => new Response('<html>bad gateway', { status: 502, headers: { 'Retry-After': '3' } }), 3000],
  ]) {
    const { client, server, clock } = setUp();
    server.answers[ORDERS] = inTurn(answer, () => reply(202, result('processing', 0)));
    const bought = client.buy('C', { quantity: 2 });
    await clock.advance(soonest - 1);
    assert.equal(server.asked(ORDERS).length, 1, 'too soon');
    await clock.advance(soonest);
    await bought;
    assert.equal(server.asked(ORDERS).length, 2);
    assert.equal(server.asked(ORDERS)[1].body.quantity, 2);
  }
});

test('R9: pending is processing, and the same request is repeated', async () => {
  const { client, server, clock, events } = setUp();
  server.answers[ORDERS] = inTurn(
    () => problem(503, 'pending', { requestToken: 'T1', retryAfterMs: 2000 }), () => reply(200, result('pending_payment', 1, { orderNo: '1' })));
  const bought = client.buy('C');
  await clock.advance(100);
  assert.deepEqual(events.result.map((r) => r.status), ['processing']);
  await clock.advance(5000);
  assert.equal((await bought).status, 'pending_payment');
  assert.equal(server.asked(ORDERS)[1].body.requestToken, 'T1');
});

test('a refusal is thrown and its token is kept for the next attempt', async () => {
  const { client, server, clock } = setUp();
  server.answers[ORDERS] = inTurn(() => problem(409, 'sold_out'), () => reply(202, result('processing', 0)));
  await assert.rejects(client.buy('C'), { code: 'sold_out' });
  const again = client.buy('C');
  await clock.advance(0);
  assert.equal((await again).requestToken, 'T1');
  assert.equal(server.asked(TOKENS).length, 1);
});

test('R14: sold_out after a lost reply is no decision on that attempt', async () => {
  const { client, server, clock, events } = setUp();
  server.answers[ORDERS] = inTurn(() => { throw new TypeError('reset'); }, () => problem(409, 'sold_out'));
  server.answers['GET /v1/results/T1'] = () => reply(200, result('processing', 0));
  const bought = client.buy('C');
  await clock.advance(20_000);
  assert.equal((await bought).status, 'processing');
  assert.deepEqual(events.result.map((r) => r.status), ['processing']);
});

test('who takes part already is shown the first request', async () => {
  const { client, server, clock } = setUp();
  server.answers[ORDERS] = () => problem(409, 'already_participated', { requestToken: 'T0' });
  server.answers['GET /v1/results/T0'] = () => reply(200, result('paid', 2, { requestToken: 'T0', orderNo: '7' }));
  const bought = client.buy('C');
  await clock.advance(0);
  assert.equal((await bought).orderNo, '7');
  assert.equal(client.result.requestToken, 'T0');
});

test('a token that is no longer good is replaced once', async () => {
  const { client, server, clock } = setUp();
  server.answers[ORDERS] = () => problem(400, 'invalid_token');
  const bought = client.buy('C');
  const failed = assert.rejects(bought, { code: 'invalid_token' });
  await clock.advance(20_000);
  await failed;
  assert.deepEqual(server.asked(ORDERS).map((r) => r.body.requestToken), ['T1', 'T2']);
});

test('a click a moment too early waits for the start', async () => {
  const { client, server, clock } = setUp();
  server.answers[ORDERS] = inTurn(
    () => problem(409, 'not_started', { startsAt: START + 800, serverTime: START }), () => reply(202, result('processing', 0)));
  const bought = client.buy('C');
  await clock.advance(799);
  assert.equal(server.asked(ORDERS).length, 1);
  await clock.advance(1000);
  await bought;
  server.answers[ORDERS] = () => problem(409, 'not_started', { startsAt: START + 60_000, serverTime: START });
  const { client: other, server: s2 } = setUp();
  s2.answers[ORDERS] = server.answers[ORDERS];
  await assert.rejects(other.buy('C'), { code: 'not_started' });
});

test('S33: a purchase outlives a reload with the same token', async () => {
  const kept = new Map();
  const store = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v), removeItem: (k) => kept.delete(k) };
  const first = setUp({ store });
  first.server.down = false;
  first.server.answers[ORDERS] = () => { throw new TypeError('page is closed'); };
  first.client.buy('C').catch(() => {});
  await first.clock.advance(10);
  first.client.stop();

  const second = setUp({ store });
  second.server.granted = 1;
  second.server.answers[ORDERS] = () => reply(202, result('processing', 0));
  const bought = second.client.buy('C');
  await second.clock.advance(0);
  assert.equal((await bought).requestToken, 'T1');
  assert.equal(second.server.asked(TOKENS).length, 0);
});

test('a refusal of an earlier purchase does not stand for a new one', async () => {
  const kept = new Map([['seckill.purchase.42.A', JSON.stringify({ requestToken: 'T0', expiresAt: START + 1e6, posted: true })]]);
  const store = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v), removeItem: (k) => kept.delete(k) };
  const { client, server, clock } = setUp({ store });
  server.answers[ORDERS] = (body) =>
    body.requestToken === 'T0' ? reply(200, result('sold_out', 1, { requestToken: 'T0' })) : reply(202, result('processing', 0));
  const bought = client.buy('C');
  await clock.advance(0);
  assert.equal((await bought).requestToken, 'T1');
});

test('the token is fetched before the start, not by everyone at once', async () => {
  const { client, server, clock } = setUp();
  server.activity.startsAt = START + 120_000;
  client.start();
  await clock.advance(60_000);
  assert.equal(server.asked(TOKENS).length, 0);
  await clock.advance(59_000);
  assert.equal(server.asked(TOKENS).length, 1);
  client.stop();
});

test('a stopped client gives up its purchase', async () => {
  const { client, server, clock } = setUp();
  server.answers[ORDERS] = () => problem(503, 'overloaded', { retryAfterMs: 60_000 });
  const bought = client.buy('C');
  await clock.advance(10);
  client.stop();
  await assert.rejects(bought, { code: 'stopped' });
});

test('a payment is asked for again after a lost answer', async () => {
  const { client, server, clock, events } = setUp();
  server.answers['POST /v1/orders/77/pay'] = inTurn(() => { throw new TypeError('reset'); }, () =>
    reply(200, { ...result('paid', 2), orderNo: '77', payAmount: '9.90', createdAt: START, payBefore: START, paidAt: START }));
  const paid = client.pay('77');
  await clock.advance(5000);
  assert.equal((await paid).status, 'paid');
  assert.equal(events.result[0].status, 'paid');
});
