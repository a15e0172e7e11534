/**
 * An event stream that looks like a WebSocket to the link: the same frames, for networks that let no socket through. It is
 * read by fetch, since the browser's own EventSource can set no Authorization header.
 */

const STATUS_CODES = { 401: 4401, 403: 1008, 429: 4429, 503: 1013 }; // what a socket would have been closed with
const LOST = 1006;

export class EventStream {
  onmessage = null;
  onclose = null;
  onalive = null; // bytes came, if only a sign of life
  #fetch;
  #url;
  #token;
  #abort = null; // of the stream that is read
  #opening = null; // of the one that is asked for
  #closed = false;

  /**
   * @param {string} url of the socket
   * @param {string[]} protocols of the socket, with the token
   * @param {typeof fetch} fetch
   */
  constructor(url, protocols, fetch) {
    this.#fetch = fetch;
    const at = new URL(url.replace(/^ws/, 'http'));
    at.pathname = at.pathname.replace(/\/v1\/ws$/, '/v1/sse');
    this.#url = at.href;
    this.#token = protocols.find((p) => p.startsWith('bearer.')).slice('bearer.'.length);
    this.#open();
  }

  /** A stream cannot be asked for the state: another one begins with it, and replaces this one once it is there. */
  send() {
    this.#open();
  }

  close() {
    this.#closed = true;
    this.#abort?.abort();
    this.#opening?.abort();
    this.onmessage = this.onclose = this.onalive = null;
  }

  async #open() {
    this.#opening?.abort();
    const abort = (this.#opening = new AbortController());
    let code = LOST;
    try {
      const response = await this.#fetch(this.#url, {
        method: 'GET', headers: { Accept: 'text/event-stream', Authorization: `Bearer ${this.#token}` },
        cache: 'no-store', credentials: 'omit', signal: abort.signal,
      });
      if (this.#closed || this.#opening !== abort) return abort.abort();
      this.#opening = null;
      if (response.status === 200 && response.body) {
        this.#abort?.abort();
        this.#abort = abort;
        code = await this.#read(response.body, abort);
      } else {
        code = STATUS_CODES[response.status] ?? LOST;
      }
    } catch {
      // of the network, or our own abort
    }
    if (this.#opening === abort) this.#opening = null;
    // Another one is read or asked for: this end does not matter.
    if (this.#closed || this.#opening || (this.#abort && this.#abort !== abort)) return;
    this.#closed = true;
    this.onclose?.({ code });
  }

  /** Reads events to the end of the stream and returns the code it ends with. */
  async #read(body, abort) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      let text = '';
      let data = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done || this.#closed || this.#abort !== abort) return LOST;
        this.onalive?.();
        const lines = (text + value).split('\n');
        text = lines.pop();
        for (const line of lines) {
          if (line.startsWith('data: ')) data += line.slice('data: '.length);
          else if (line === '' && data) {
            const code = this.#event(data);
            if (code) return code;
            data = '';
          }
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** Passes on a frame; one of type close ends the stream with its code. */
  #event(data) {
    try {
      const frame = JSON.parse(data);
      if (frame.type === 'close') return frame.code;
    } catch {
      return 0;
    }
    this.onmessage?.({ data });
    return 0;
  }
}
