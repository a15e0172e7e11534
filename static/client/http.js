/** HTTP calls of the public API: one attempt each, problems as errors with their code. */

/** A refusal by the server, or no answer at all (code "network"). */
export class SeckillError extends Error {
  /**
   * @param {string} code a code of the API, or network, signed_out, stopped
   * @param {string} [detail] a sentence in English for developers
   * @param {object} [more] status, traceId, retryAfterMs, requestToken, startsAt, serverTime, orderStatus
   */
  constructor(code, detail = '', more = {}) {
    super(detail ? `${code}: ${detail}` : code);
    this.name = 'SeckillError';
    this.code = code;
    this.detail = detail;
    Object.assign(this, more);
  }

  /** Whether the same request may be answered otherwise a little later, and whether it may have had its effect. */
  get temporary() {
    return this.code === 'network' || this.status === 429 || [502, 503, 504].includes(this.status);
  }
}

const TIMEOUT_MS = 10_000;

/**
 * Makes the page's getToken one that always answers: with a token, null for nobody, or a temporary error when it fails or takes
 * too long.
 * @param {{getToken: () => (string|null|Promise<string|null>), timers: {set: Function, clear: Function}}} o
 * @returns {() => Promise<string|null>}
 */
export function tokenGetter({ getToken, timers }) {
  return () =>
    new Promise((resolve, reject) => {
      const fail = (why) => reject(new SeckillError('network', `no token: ${why}`, { status: 0 }));
      const timer = timers.set(() => fail('getToken does not answer'), TIMEOUT_MS);
      Promise.resolve()
        .then(getToken)
        .then(resolve, (err) => fail(err?.message ?? err))
        .finally(() => timers.clear(timer));
    });
}

export class Api {
  #options;

  /**
   * @param {object} o
   * @param {string} o.baseUrl
   * @param {() => (string|null|Promise<string|null>)} o.getToken
   * @param {typeof fetch} o.fetch
   * @param {() => number} o.now
   * @param {{set: Function, clear: Function}} o.timers
   * @param {(sentAt: number, receivedAt: number, serverTime: number) => void} o.onServerTime
   * @param {(reached: boolean) => void} o.onReach called after each attempt: did any server answer
   * @param {() => void} o.onSignIn called when the token is missing, wrong or expired
   */
  constructor(o) {
    this.#options = o;
  }

  /**
   * Makes one request and returns the decoded answer, or throws a SeckillError.
   * @param {string} method
   * @param {string} path
   * @param {{body?: object, anonymous?: boolean, hold?: {ms: number, signal: AbortSignal}}} [how] hold: the server may keep
   *   the answer back for so long, and nobody may want it any more: then the error has the code stopped
   */
  async call(method, path, { body, anonymous = false, hold } = {}) {
    const o = this.#options;
    const headers = { Accept: 'application/json' };
    if (!anonymous) {
      const token = await o.getToken();
      if (!token) {
        o.onSignIn();
        throw new SeckillError('signed_out', 'nobody is signed in');
      }
      headers.Authorization = `Bearer ${token}`;
    }
    if (body) headers['Content-Type'] = 'application/json';
    const sentAt = o.now();
    const { response, text } = await this.#attempt(method, path, headers, body, hold);
    const answer = parse(text);
    o.onReach(true);
    if (answer?.serverTime) o.onServerTime(sentAt, o.now(), answer.serverTime);
    if (response.ok) {
      if (answer === undefined && response.status !== 204) throw new SeckillError('network', 'the answer is no JSON', { status: 0 });
      return answer;
    }
    if (response.status === 401) o.onSignIn();
    throw problem(response, answer);
  }

  /** The request and the whole answer, within one deadline. */
  async #attempt(method, path, headers, body, hold) {
    const o = this.#options;
    const abort = new AbortController();
    const timer = o.timers.set(() => abort.abort(), TIMEOUT_MS + (hold?.ms ?? 0));
    const stopped = () => abort.abort();
    hold?.signal.addEventListener('abort', stopped);
    try {
      const response = await o.fetch(o.baseUrl + path, {
        method,
        headers,
        body: body && JSON.stringify(body),
        cache: 'no-store', // an answer from a cache would stay "processing" (FS-092)
        credentials: 'omit',
        signal: abort.signal,
      });
      return { response, text: await response.text() };
    } catch (err) {
      if (hold?.signal.aborted) throw new SeckillError('stopped', 'the answer is not wanted any more');
      if (!hold) o.onReach(false); // a held answer may be cut off by something on the way, while the server is well
      throw new SeckillError('network', String(err?.message ?? err), { status: 0 });
    } finally {
      o.timers.clear(timer);
      hold?.signal.removeEventListener('abort', stopped);
    }
  }
}

function parse(text) {
  try {
    return text ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}

/** The error of an answer. A proxy on the way may answer without a code of ours. */
function problem(response, answer) {
  const { code, detail, title, type, ...more } = answer ?? {};
  const seconds = Number(response.headers.get('Retry-After'));
  if (!more.retryAfterMs && seconds > 0) more.retryAfterMs = seconds * 1000;
  more.status = response.status;
  const own = { 401: 'unauthenticated', 404: 'not_found', 429: 'rate_limited', 502: 'overloaded', 503: 'overloaded', 504: 'overloaded' };
  return new SeckillError(code ?? own[response.status] ?? 'internal', detail, more);
}
