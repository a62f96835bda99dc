// Keys of the review, search as one types, and a look every three seconds at what changed. Every page works without.
'use strict';

const $ = (/** @type {string} */ selector) => document.querySelector(selector);
const typing = () => ['INPUT', 'TEXTAREA', 'SELECT'].includes(document.activeElement?.tagName ?? '') &&
  /** @type {HTMLInputElement} */ (document.activeElement).type !== 'radio';

/** The text at an address, or null: also where the page is left before all of it came. */
const textOf = (/** @type {string | URL} */ address) =>
  fetch(address).then((reply) => reply.ok ? reply.text() : null).catch(() => null);

/** Keys that every page has. */
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/' && !typing()) {
    event.preventDefault();
    /** @type {HTMLInputElement | null} */ (document.getElementById('q') ?? document.getElementById('find'))?.focus();
  }
});

/** The review: a card has the focus, a key marks it, and one Apply sends all marks. */
const form = /** @type {HTMLFormElement | null} */ (document.getElementById('review'));
if (form) {
  const cards = /** @type {HTMLElement[]} */ ([...form.querySelectorAll('[data-card]')]);
  let at = -1;
  const go = (/** @type {number} */ to) => {
    at = Math.max(0, Math.min(cards.length - 1, to));
    cards[at].focus();
    cards[at].scrollIntoView({block: 'nearest'});
  };
  const mark = (/** @type {HTMLElement} */ card, /** @type {string} */ value) => {
    /** @type {HTMLInputElement} */ (card.querySelector(`input[value="${value}"]`)).checked = true;
    tally();
  };
  const tally = () => {
    const count = (/** @type {string} */ value) => form.querySelectorAll(`[name^=mark-][value="${value}"]:is(:checked, [type=hidden])`).length;
    /** @type {HTMLElement} */ (document.getElementById('tally')).textContent =
      `${count('accept')} accepted, ${count('reject')} rejected, ${count('later')} later`;
  };
  cards.forEach((card, number) => card.addEventListener('focusin', () => { at = number; }));
  form.addEventListener('change', tally);
  document.addEventListener('keydown', (event) => {
    if (typing()) {
      if (event.key === 'Escape') cards[Math.max(at, 0)]?.focus();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || !cards.length) return;
    const name = {a: 'accept', r: 'reject', l: 'later'}[event.key];
    if (event.key === 'j') go(at + 1);
    else if (event.key === 'k') go(at - 1);
    else if (name) {
      if (at < 0) at = 0;
      mark(cards[at], name);
      go(at + 1);
    } else if (event.key === 'A') {
      const type = cards[Math.max(at, 0)].dataset.type;
      cards.filter((card) => card.dataset.type === type).forEach((card) => mark(card, 'accept'));
    } else if (event.key === 'e') {
      event.preventDefault();
      const edit = cards[Math.max(at, 0)].querySelector('details.edit');
      if (edit) {
        /** @type {HTMLDetailsElement} */ (edit).open = true;
        /** @type {HTMLElement} */ (edit.querySelector('textarea')).focus();
      }
    } else return;
  });
  tally();
}

/** Search as one types: the last answer wins, nothing typed is lost. */
const field = /** @type {HTMLInputElement | null} */ (document.getElementById('q'));
const results = document.getElementById('results');
if (field && results) {
  let wanted = 0;
  let timer = 0;
  const ask = async () => {
    const mine = ++wanted;
    const address = new URL(location.href);
    address.searchParams.set('q', field.value);
    const asked = new URL(address);
    asked.searchParams.set('partial', '1');
    const found = await textOf(asked);
    if (mine !== wanted || found === null) return;
    results.innerHTML = found;
    history.replaceState(null, '', address);
  };
  field.addEventListener('input', () => { clearTimeout(timer); timer = window.setTimeout(ask, 120); });
  document.addEventListener('keydown', (event) => {
    const links = /** @type {HTMLElement[]} */ ([...results.querySelectorAll('h2 a')]);
    const at = links.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (event.key === 'ArrowDown' && (at >= 0 || document.activeElement === field)) links[at + 1]?.focus();
    else if (event.key === 'ArrowUp' && at >= 0) (links[at - 1] ?? field).focus();
    else if (event.key === 'e' && at >= 0) links[at].closest('article')?.querySelector('details')?.toggleAttribute('open');
    else return;
    event.preventDefault();
  });
}

/** The nearest unit is looked for when its card comes into view; its line is there before, so that nothing moves. */
const seen = new IntersectionObserver((entries) => entries.filter((one) => one.isIntersecting).forEach(async ({target}) => {
  seen.unobserve(target);
  const near = await textOf(/** @type {HTMLAnchorElement} */ (target).href + '&partial=1');
  if (near !== null && target.parentElement) target.parentElement.innerHTML = near;
}));
document.querySelectorAll('a[data-near]').forEach((link) => seen.observe(link));

/** What was said around a quote unfolds below it. */
document.addEventListener('click', async (event) => {
  const link = /** @type {HTMLElement} */ (event.target).closest?.('a[data-around]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const asked = new URL(/** @type {HTMLAnchorElement} */ (link).href);
  asked.hash = '';
  asked.searchParams.set('partial', '1');
  const said = await textOf(asked);
  const box = document.createElement('div');
  box.className = 'around';
  box.innerHTML = said ?? '';
  if (!box.textContent?.trim()) return location.assign(/** @type {HTMLAnchorElement} */ (link).href);
  link.removeAttribute('data-around');
  link.textContent = 'the whole session';
  link.closest('li')?.append(box);
});

/** What changed elsewhere is said, never put in place of what one is reading. */
const main = /** @type {HTMLElement | null} */ ($('main[data-pulse]'));
const banner = document.getElementById('banner');
if (main && banner) {
  let etag = '';
  let known = main.dataset.pulse;
  const say = (/** @type {string} */ text, /** @type {boolean} */ again) => {
    banner.textContent = text + ' ';
    if (again) {
      const link = document.createElement('a');
      link.href = location.href;
      link.textContent = 'Show';
      banner.append(link);
    }
    banner.hidden = false;
  };
  setInterval(async () => {
    if (document.hidden) return;
    const reply = await fetch('/pulse', {headers: etag ? {'If-None-Match': etag} : {}}).catch(() => null);
    if (!reply) return say('The page of Nugget has ended; what you marked is still here. Run `nugget web` again.', false);
    if (reply.status === 401) return say('Nugget was started again: open the address that it printed.', false);
    if (reply.status !== 200) return;
    etag = reply.headers.get('etag') ?? '';
    const part = main.dataset.part ?? 'index';
    const read = await reply.json().catch(() => null);
    if (!read) return;
    const now = read[part];
    if (known !== now) say(part === 'review' ? 'Proposals changed.' : 'Something is new.', true);
    known = now;
  }, 3000);
}
