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
  #current = null; // AbortController of the stream that tells
  #opening = null; // of the one that is to take its place
  #code = LOST; // what the last one ended with
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

  /** A stream cannot be asked for the state: another one begins with it, and takes this one's place with its first frame. */
  send() {
    this.#open();
  }

  close() {
    this.#closed = true;
    this.#current?.abort();
    this.#opening?.abort();
    this.onmessage = this.onclose = this.onalive = null;
  }

  async #open() {
    this.#opening?.abort();
    const stream = (this.#opening = new AbortController());
    let code = LOST;
    try {
      const response = await this.#fetch(this.#url, {
        method: 'GET', headers: { Accept: 'text/event-stream', Authorization: `Bearer ${this.#token}` },
        cache: 'no-store', credentials: 'omit', signal: stream.signal,
      });
      if (!this.#wanted(stream)) stream.abort();
      else if (response.status === 200 && response.body) code = await this.#read(response.body, stream);
      else code = STATUS_CODES[response.status] ?? LOST;
    } catch {
      // of the network, or our own abort
    }
    this.#over(stream, code);
  }

  #wanted(stream) {
    return !this.#closed && (this.#current === stream || this.#opening === stream);
  }

  /** Reads events to the end of the stream and returns the code it ends with. */
  async #read(body, stream) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      let text = '';
      let data = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done || !this.#wanted(stream)) return LOST;
        if (this.#current === stream) this.onalive?.();
        const lines = (text + value).split('\n');
        text = lines.pop();
        for (const line of lines) {
          if (line.startsWith('data: ')) data += line.slice('data: '.length);
          else if (line === '' && data) {
            const code = this.#event(data, stream);
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
  #event(data, stream) {
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return 0;
    }
    if (frame.type === 'close') return frame.code;
    if (this.#opening === stream) {
      this.#opening = null;
      this.#current?.abort();
      this.#current = stream;
    }
    this.onmessage?.({ data });
    return 0;
  }

  /** A stream has ended. It is the end of all when no other one tells or is to tell. */
  #over(stream, code) {
    if (!this.#wanted(stream)) return;
    if (this.#current === stream) {
      this.#current = null;
      this.#code = code;
    } else {
      this.#opening = null;
      if (this.#code === LOST && !this.#current) this.#code = code;
    }
    if (this.#current || this.#opening) return;
    this.#closed = true;
    this.onclose?.({ code: this.#code });
  }
}
