/**
 * Who uses the page. The demo login gives a token for any user number; a shop replaces this module by its own sign-in
 * and hands the token to the client. The token lives as long as the tab.
 */

import { SeckillError } from './seckill-client.js';

const KEY = 'seckill.session';

export class Session {
  #kept = read();

  /** The user number, or null. */
  get user() {
    return this.token && this.#kept.userId;
  }

  /** The JWT, or null. Whether it is still good is for the server to say: the device's clock may be wrong. */
  get token() {
    return this.#kept?.token ?? null;
  }

  /** The user number of last time, as a suggestion. */
  get last() {
    return this.#kept?.userId ?? '';
  }

  /** Signs in as a demo user. @param {string} userId */
  async signIn(userId) {
    const response = await fetch('/demo/login', {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ userId }), cache: 'no-store',
    }).catch((err) => {
      throw new SeckillError('network', String(err.message));
    });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) {
      const code = { 400: 'invalid_user', 404: 'no_demo' }[response.status] ?? answer.code ?? 'internal';
      throw new SeckillError(code, answer.detail, { status: response.status });
    }
    this.#keep({ userId, token: answer.token });
  }

  /** Forgets the token, not the number. */
  signOut() {
    this.#keep({ userId: this.last, token: null });
  }

  #keep(session) {
    this.#kept = session;
    try {
      sessionStorage.setItem(KEY, JSON.stringify(session));
    } catch {
      // until the page is left, then
    }
  }
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY));
  } catch {
    return null;
  }
}
