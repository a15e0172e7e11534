import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connected, setUp } from './fakes.mjs';

const ME = 'GET /v1/activities/A/me';

/** A window and its document, which tell of sleep, return and the network. */
function fakePage() {
  return { window: new EventTarget(), document: Object.assign(new EventTarget(), { hidden: false }) };
}

test('FS-090: offline, a dead socket is found within 5 s; online again, everything is read at once', async () => {
  const page = fakePage();
  const { sockets, server, events, clock } = await connected({ page });
  server.down = true;
  page.window.dispatchEvent(new Event('offline'));
  assert.deepEqual(sockets.last().sent, [{ type: 'sync' }]);
  assert.equal(events.link.at(-1), 'socket', 'it may still live');
  await clock.advance(5_000);
  assert.equal(events.link.at(-1), 'offline');
  await clock.advance(61_000);
  const asked = server.asked(ME).length;
  server.down = false;
  page.window.dispatchEvent(new Event('online'));
  await clock.advance(0);
  assert.equal(server.asked(ME).length, asked + 1);
  assert.equal(events.link.at(-1), 'polling');
});

test('without a socket, offline is told at once', async () => {
  const page = fakePage();
  const { client, events, clock } = setUp({ page, WebSocket: null });
  client.start();
  await clock.advance(10);
  page.window.dispatchEvent(new Event('offline'));
  assert.deepEqual(events.link, ['polling', 'offline']);
});

test('FS-090: while nobody looks, a silent socket is left alone; it is tried when somebody does', async () => {
  const page = fakePage();
  const { sockets, server, clock } = await connected({ page });
  const asked = server.log.length;
  page.document.hidden = true;
  page.document.dispatchEvent(new Event('visibilitychange'));
  await clock.advance(120_000);
  assert.deepEqual(sockets.last().sent, []);
  assert.equal(server.log.length, asked);
  page.document.hidden = false;
  page.document.dispatchEvent(new Event('visibilitychange'));
  assert.deepEqual(sockets.last().sent, [{ type: 'sync' }]);
});

test('the first show of a page is no return, and a stopped client hears nothing', async () => {
  const page = fakePage();
  const { client, sockets, server, events, clock } = await connected({ page });
  const asked = server.log.length;
  page.window.dispatchEvent(Object.assign(new Event('pageshow'), { persisted: false }));
  await clock.advance(0);
  assert.deepEqual(sockets.last().sent, []);
  assert.equal(server.log.length, asked);
  client.stop();
  const told = events.link.length;
  page.window.dispatchEvent(new Event('offline'));
  page.window.dispatchEvent(new Event('online'));
  await clock.advance(60_000);
  assert.equal(events.link.length, told);
  assert.equal(server.log.length, asked);
});
