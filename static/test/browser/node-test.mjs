/** What our tests use of node:test, for a browser: page.html gives it that name. A page runs one file of tests. */

const tests = [];
let running = null; // while a test runs: how to make it fail
const strays = []; // errors that nobody caught while no test ran

/**
 * @param {string} name
 * @param {() => void|Promise<void>} body
 */
export function test(name, body, ...more) {
  if (typeof name !== 'string' || typeof body !== 'function' || body.length > 0 || more.length > 0) {
    throw new TypeError('test(name, body) is all that is known here');
  }
  tests.push({ name, body });
}

/**
 * Runs the tests of a file one after the other.
 * @param {string} file its address
 * @param {number} limitMs for each test
 * @returns {Promise<{name: string, error: string}[]>} in the order of the file; error is "" when the test passed
 */
export async function run(file, limitMs) {
  addEventListener('error', (event) => uncaught(event.error ?? event.message));
  addEventListener('unhandledrejection', (event) => uncaught(event.reason));
  await import(file);
  const ended = [];
  for (const { name, body } of tests) ended.push({ name, error: await outcome(body, limitMs) });
  if (strays.length > 0) throw new Error(`outside of the tests: ${strays.join('\n')}`);
  return ended;
}

function uncaught(err) {
  if (running) running(err);
  else strays.push(text(err));
}

/** Runs a test and says what is wrong, or "". An error that nobody catches is the error of the test that runs. */
async function outcome(body, limitMs) {
  let failed;
  const failure = new Promise((_, reject) => (failed = reject));
  running = failed;
  const limit = setTimeout(() => failed(new Error(`no end within ${limitMs} ms`)), limitMs);
  try {
    await Promise.race([(async () => body())(), failure]);
    await Promise.race([new Promise((resolve) => setTimeout(resolve)), failure]); // a rejection is told of a little later
    return '';
  } catch (err) {
    return text(err);
  } finally {
    clearTimeout(limit);
    running = null;
  }
}

/** An error as text, never "". */
function text(err) {
  return String(err?.stack ?? err) || 'an empty error';
}
