/**
 * Building the page. Texts only ever become text nodes, so that no name of an item and no reason of the server can be
 * markup (FS-091).
 */

/**
 * Makes an element.
 * @param {string} tag
 * @param {Record<string, any>} [props] class, dataset, on (listeners by event), or an attribute; false and null leave out
 * @param {...(Node|string|null)} children
 */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === false || value === undefined) continue;
    if (name === 'dataset') Object.assign(e.dataset, value);
    else if (name === 'on') for (const [type, listener] of Object.entries(value)) e.addEventListener(type, listener);
    else e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== null));
  return e;
}

/** Sets a text if it changed, so that nothing is announced or painted twice. @param {Element} e @param {string} text */
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/** The element of this id. @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/**
 * A button for what cannot be undone: the first click asks, the second within four seconds does it.
 * @param {{text: string, sure: string, class: string, onSure: () => void}} o
 */
export function carefulButton({ text, sure, onSure, ...props }) {
  let armed = null;
  const disarm = () => {
    clearTimeout(armed);
    armed = null;
    button.textContent = text;
  };
  const button = el('button', { type: 'button', ...props, on: {
    blur: disarm,
    click: () => {
      if (armed) {
        disarm();
        return onSure();
      }
      button.textContent = sure;
      armed = setTimeout(disarm, 4_000);
    },
  } }, text);
  return button;
}
