/** The page's texts in English and Chinese. A text that the server sends is never shown in place of one of these. */

import { en } from './text-en.js';
import { zh } from './text-zh.js';

const TEXTS = { en, zh };
const STORE_KEY = 'seckill.language';

let language = initial();

function initial() {
  const kept = read();
  if (kept in TEXTS) return kept;
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

function read() {
  try {
    return localStorage.getItem(STORE_KEY);
  } catch {
    return null;
  }
}

/** The language in use: 'en' or 'zh'. */
export function currentLanguage() {
  return language;
}

/** Changes the language, for the next visits too. @param {string} to 'en' or 'zh' */
export function setLanguage(to) {
  language = to in TEXTS ? to : 'en';
  try {
    localStorage.setItem(STORE_KEY, language);
  } catch {
    // for this visit then
  }
}

/**
 * A text with its {placeholders} filled.
 * @param {string} key
 * @param {Record<string, string|number>} [values]
 */
export function t(key, values = {}) {
  const text = TEXTS[language][key] ?? TEXTS.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ''));
}

/** Whether there is a text of this key. @param {string} key */
export function has(key) {
  return key in TEXTS.en;
}

/** Fills every element that names its text: data-text, data-label (aria-label), data-hint (placeholder). */
export function translate(root = document) {
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  for (const e of root.querySelectorAll('[data-text]')) e.textContent = t(e.dataset.text);
  for (const e of root.querySelectorAll('[data-label]')) e.setAttribute('aria-label', t(e.dataset.label));
  for (const e of root.querySelectorAll('[data-hint]')) e.setAttribute('placeholder', t(e.dataset.hint));
}
