import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventStream } from '../client/stream.js';
import { JWT, problem, reply, result, settle, setUp } from './fakes.mjs';

const SSE = 'GET /v1/sse';

/** Streams that the test plays the server of. */
class FakeStreams {
  all = [];

  answer = () => {
    const stream = { closed: false };
    const encoder = new TextEncoder();
    const body = new ReadableStream({
      start(controller) {
        stream.write = (text) => controller.enqueue(encoder.encode(text));
        stream.end = () => controller.close();
      },
      cancel() {
        stream.closed = true;
      },
    });
    stream.tell = (frame) => stream.write(`event: ${frame.type}\ndata: ${JSON.stringify(frame)}\n\n`);
    this.all.push(stream);
    return new Response(body, { status: 200, headers: { 'Content-Type': 'text/event-stream' } });
  };

  last = () => this.all.at(-1);
}

/** A client whose sockets are blocked and whose stream has told the state. */
async function streaming() {
  const all = setUp();
  const streams = new FakeStreams();
  all.server.answers[SSE] = streams.answer;
  all.client.start();
  await all.clock.advance(10);
  for (let i = 0; i < 20 && streams.all.length === 0; i++) {
    all.sockets.last().end(1006);
    await all.clock.advance(1_000);
  }
  streams.last().tell({ type: 'synced', serverTime: all.clock.time });
  await settle();
  return { ...all, streams };
}

test('sockets blocked: an event stream tells the same, and nothing is polled meanwhile', async () => {
  const { sockets, server, streams, events, clock } = await streaming();
  assert.equal(sockets.all.length, 2, 'sockets were tried first');
  assert.equal(server.asked(SSE)[0].authorization, `Bearer ${JWT}`);
  assert.equal(events.link.at(-1), 'socket');
  streams.last().tell({ type: 'result', ...result('pending_payment', 1, { orderNo: '7' }) });
  await settle();
  assert.equal(events.result.at(-1).orderNo, '7');
  await clock.advance(3_000); // what the gap may have hidden is read once
  const asked = server.log.length;
  for (let i = 0; i < 10; i++) {
    streams.last().write(':\n\n'); // a sign of life
    await clock.advance(4_000);
  }
  assert.equal(server.log.length, asked, 'nothing is polled while the stream lives');
});

test('a lost stream comes back as a stream, and its end may ask to sign in', async () => {
  const { sockets, streams, events, clock, client } = await streaming();
  streams.last().end();
  for (let i = 0; i < 20 && streams.all.length === 1; i++) await clock.advance(1_000);
  assert.equal(streams.all.length, 2);
  assert.equal(sockets.all.length, 2, 'what works is tried first');
  streams.last().tell({ type: 'synced', serverTime: clock.time });
  await settle();
  streams.last().tell({ type: 'close', code: 4401, reason: 'token has expired' });
  await clock.advance(120_000);
  assert.equal(events.signin.length, 1);
  assert.equal(streams.all.length, 2);
  client.stop();
});

test('FS-090: a check replaces a stream by a new one without a gap', async () => {
  const { streams, events, client, clock } = await streaming();
  const links = events.link.length;
  await clock.advance(1_000);
  client.check();
  await settle();
  assert.equal(streams.all.length, 2);
  streams.last().tell({ type: 'result', ...result('paid', 2, { orderNo: '7' }) });
  streams.last().tell({ type: 'synced', serverTime: clock.time });
  await settle();
  streams.all[0].write(':\n\n');
  await settle();
  assert.ok(streams.all[0].closed, 'the old one is ended');
  await clock.advance(6_000);
  assert.equal(events.result.at(-1).status, 'paid');
  assert.equal(events.link.length, links, 'the link was never down');
});

test('neither sockets nor streams: both are tried in turn, and polling serves', async () => {
  const { client, server, sockets, clock, events } = setUp();
  server.answers['GET /v1/activities/A/me'] = () => reply(200, { activityId: 'A', state: 'open', result: result('paid', 2, { orderNo: '5' }) });
  client.start();
  await clock.advance(10);
  for (let i = 0; i < 200; i++) {
    sockets.last().end(1006);
    await clock.advance(1_000);
  }
  assert.equal(events.result[0].orderNo, '5');
  assert.deepEqual(events.link, ['polling']);
  const streams = server.asked(SSE).length;
  assert.ok(streams > 2 && Math.abs(sockets.all.length - streams) <= 3, `${sockets.all.length} sockets, ${streams} streams`);
});

test('a stream arrives in any pieces; what is no frame is passed over', async () => {
  const streams = new FakeStreams();
  const stream = new EventStream('wss://push.test/x/v1/ws?activity=A&u=42', ['seckill.v1', 'bearer.j.w.t'], async (url, { headers }) => {
    assert.equal(url, 'https://push.test/x/v1/sse?activity=A&u=42');
    assert.equal(headers.Authorization, 'Bearer j.w.t');
    return streams.answer();
  });
  const got = [];
  let code = null;
  stream.onmessage = (e) => got.push(JSON.parse(e.data));
  stream.onclose = (e) => (code = e.code);
  await settle();
  const text = ':\n\nevent: a\ndata: {"type":"a","text":"é"}\n\ndata: no frame\n\nevent: b\nid: t:1\ndata: {"type":"b"}\n\n';
  for (const byte of text.match(/.{1,3}/gs)) {
    streams.last().write(byte);
    await settle();
  }
  assert.deepEqual(got, [{ type: 'a', text: 'é' }, { type: 'b' }]);
  streams.last().end();
  await settle();
  assert.equal(code, 1006);
});

test('a stream that is refused ends as a socket would', async () => {
  for (const [status, code] of [[401, 4401], [403, 1008], [429, 4429], [503, 1013], [404, 1006], [500, 1006]]) {
    const stream = new EventStream('ws://push.test/v1/ws?activity=A', ['bearer.x'], async () => problem(status, 'x'));
    const ended = await new Promise((resolve) => (stream.onclose = (e) => resolve(e.code)));
    assert.equal(ended, code, `status ${status}`);
  }
});

test('a stream closed before it was answered stays closed', async () => {
  const streams = new FakeStreams();
  let answer;
  const stream = new EventStream('ws://push.test/v1/ws?activity=A', ['bearer.x'], () => new Promise((resolve) => (answer = resolve)));
  let heard = 0;
  stream.onmessage = stream.onclose = () => heard++;
  stream.close();
  answer(streams.answer());
  await settle();
  assert.equal(heard, 0);
});

test('a working stream is not given up for one that is refused', async () => {
  const streams = new FakeStreams();
  const stream = new EventStream('ws://push.test/v1/ws?activity=A', ['bearer.x'], async () => streams.answer());
  const got = [];
  let code = null;
  stream.onmessage = (e) => got.push(JSON.parse(e.data).type);
  stream.onclose = (e) => (code = e.code);
  await settle();
  streams.last().tell({ type: 'synced' });
  await settle();
  stream.send();
  await settle();
  streams.all[1].tell({ type: 'close', code: 4429, reason: 'too many connections' });
  await settle();
  streams.all[0].tell({ type: 'result' });
  await settle();
  assert.deepEqual(got, ['synced', 'result']);
  assert.equal(code, null);
  stream.send(); // and what the first one says at its end counts, also while another is asked for
  await settle();
  streams.all[0].tell({ type: 'close', code: 4401, reason: 'expired' });
  await settle();
  streams.all[2].end();
  await settle();
  assert.equal(code, 4401);
});
