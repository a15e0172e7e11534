/** A small note that outlives a reload, one for each user and sale. */

export class Memo {
  #o;
  #value = null;

  /**
   * @param {object} o
   * @param {string} o.name what is noted
   * @param {string} o.activityId
   * @param {() => Promise<string>} o.user whose note it is
   * @param {Pick<Storage, 'getItem'|'setItem'|'removeItem'>|undefined} o.store without one the note ends with the page
   */
  constructor(o) {
    this.#o = o;
  }

  /** The note as last read or written, or null. */
  get value() {
    return this.#value;
  }

  /** Reads the note, from the store when it is not known yet. @returns {Promise<object|null>} */
  async read() {
    if (this.#value || !this.#o.store) return this.#value;
    try {
      this.#value = JSON.parse(this.#o.store.getItem(await this.#key()));
    } catch {
      this.#value = null; // spoiled, or the store is not to be used
    }
    return this.#value;
  }

  /** Notes a value. It counts at once. @param {object} value */
  async write(value) {
    this.#value = value;
    try {
      this.#o.store?.setItem(await this.#key(), JSON.stringify(value));
    } catch {
      // a full or forbidden store costs the memory over a reload only
    }
  }

  async clear() {
    this.#value = null;
    try {
      this.#o.store?.removeItem(await this.#key());
    } catch {
      // as above
    }
  }

  async #key() {
    return `seckill.${this.#o.name}.${await this.#o.user()}.${this.#o.activityId}`;
  }
}
