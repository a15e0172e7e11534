import assert from 'node:assert/strict';
import { test } from 'node:test';
import { problem, reply, result, setUp } from './fakes.mjs';

const ORDERS = 'POST /v1/activities/A/orders';
const RESULT = 'GET /v1/results/T1';

/** A client without a socket whose purchase is under way. */
async function waiting(answer) {
  const all = setUp({ WebSocket: null });
  all.server.answers[ORDERS] = () => reply(202, result('processing', 0));
  all.server.answers[RESULT] = answer;
  all.client.start();
  const bought = all.client.buy('C');
  await all.clock.advance(10);
  await bought;
  return all;
}

test('without a socket the result is awaited by a held answer', async () => {
  let decide;
  const { clock, server, events } = await waiting(() => new Promise((resolve) => (decide = resolve)));
  await clock.advance(15_000); // longer than any other answer may take
  assert.equal(server.asked(RESULT).length, 1);
  assert.equal(server.asked(RESULT)[0].search, '?wait=20s');
  decide(reply(200, result('pending_payment', 1, { orderNo: '4' })));
  await clock.advance(0);
  assert.equal(events.result.at(-1).orderNo, '4');
  assert.ok(!events.link.includes('offline'));
});

test('held answers that are cut off on the way are asked for without a hold, and tried again later', async () => {
  let asked = 0;
  const { clock, server, events } = await waiting(() => (++asked % 2 ? problem(504, 'overloaded') : reply(200, result('processing', 0))));
  await clock.advance(20_000);
  const searches = server.asked(RESULT).map((r) => r.search);
  assert.deepEqual(searches.slice(0, 4), ['?wait=20s', '', '?wait=20s', '']);
  assert.deepEqual(events.result.map((r) => r.status), ['processing']);
});

test('FS-090: back after sleep, a held answer that hangs is given up and asked for again at once', async () => {
  let answers = 0;
  const { client, clock, server, events } = await waiting(() =>
    answers++ ? reply(200, result('paid', 2, { orderNo: '4' })) : new Promise(() => {}));
  await clock.advance(5_000);
  client.check();
  await clock.advance(100);
  assert.equal(server.asked(RESULT).length, 2);
  assert.equal(events.result.at(-1).status, 'paid');
  assert.ok(!events.link.includes('offline'), 'our own end of a wait says nothing about the server');
});
