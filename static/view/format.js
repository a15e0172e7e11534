/** Times and amounts as texts. Ids and amounts stay the texts that they are: no number may round them (FS-087). */

import { currentLanguage } from '../i18n.js';

/** An amount, as the server writes it. @param {string} decimal */
export function money(decimal) {
  return `¥${decimal}`;
}

/** A span as days, hours, minutes and seconds; a started second counts whole. @param {number} ms */
export function parts(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  return { days: Math.floor(s / 86_400), hours: Math.floor(s / 3600) % 24, minutes: Math.floor(s / 60) % 60, seconds: s % 60 };
}

export function two(n) {
  return String(n).padStart(2, '0');
}

/** A span such as 14:59 or 1:02:03. @param {number} ms */
export function span(ms) {
  const { days, hours, minutes, seconds } = parts(ms);
  const h = days * 24 + hours;
  return h > 0 ? `${h}:${two(minutes)}:${two(seconds)}` : `${two(minutes)}:${two(seconds)}`;
}

/** A moment in the viewer's time zone. @param {number} ms epoch milliseconds */
export function moment(ms) {
  const locale = currentLanguage() === 'zh' ? 'zh-CN' : 'en-GB';
  return new Intl.DateTimeFormat(locale, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(ms);
}
