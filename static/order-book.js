/** The list of the user's orders, kept up to date by results. The newest version of an order stays (S29). */

const PAGE = 20;
const GATHER_MS = 300; // several results may come at once

export class OrderBook {
  #client;
  #onChange;
  #orders = new Map(); // by order number
  #results = new Map(); // by order number: what may be newer than the list
  #nextCursor = '';
  #timer = null;
  #round = 0; // raised when another user signs in: late answers are dropped

  /**
   * @param {() => import('./seckill-client.js').SeckillClient} client
   * @param {(orders: object[], nextCursor: string) => void} onChange
   */
  constructor(client, onChange) {
    this.#client = client;
    this.#onChange = onChange;
  }

  /** Forgets everything. */
  clear() {
    this.#round++;
    clearTimeout(this.#timer);
    this.#orders.clear();
    this.#results.clear();
    this.#nextCursor = '';
    this.#tell();
  }

  /** Reads the newest orders. */
  async load() {
    await this.#page('');
  }

  /** Reads the page after the last one. */
  async more() {
    await this.#page(this.#nextCursor);
  }

  /** Takes a result. An order that is not in the list yet is read soon. @param {object} r */
  hear(r) {
    if (!r.orderNo) return;
    this.#results.set(r.orderNo, r);
    if (this.#orders.has(r.orderNo)) return this.#tell();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load().catch(() => {}), GATHER_MS);
  }

  async #page(cursor) {
    const round = this.#round;
    const { orders, nextCursor } = await this.#client().orders({ limit: PAGE, cursor });
    if (round !== this.#round) return;
    if (cursor || this.#orders.size <= PAGE) this.#nextCursor = nextCursor;
    for (const o of orders) this.#orders.set(o.orderNo, newer(this.#orders.get(o.orderNo), o));
    this.#tell();
  }

  #tell() {
    const orders = [...this.#orders.values()].map((o) => newer(o, this.#results.get(o.orderNo)));
    orders.sort((a, b) => b.createdAt - a.createdAt);
    this.#onChange(orders, this.#nextCursor);
  }
}

/** The order with whatever the other says if that is newer. */
function newer(o, other) {
  if (!o || !other) return o ?? other;
  if (other.version <= o.version) return o;
  return { ...o, ...other, payAmount: o.payAmount, createdAt: o.createdAt };
}
