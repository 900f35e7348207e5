// Elements made and kept up to date without markup: whatever a simulator says stays text.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const element = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const drawn = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Makes the children of `parent` those of `items`, in their order; a child stays the same for as long as its key does,
// and keeps the focus. `make(item)` gives a new one, `update(node, item)` says in it how the item is now.
export function keep(parent, items, keyOf, make, update) {
  const before = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = before.get(key);
    if (node === undefined) {
      node = make(item);
      node.dataset.key = key;
    }
    before.delete(key);
    update(node, item);
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
  for (const node of before.values()) node.remove();
}

// Rows of a description list: [term, value] each.
export function keepFacts(list, facts) {
  keep(
    list,
    facts,
    ([term]) => term,
    ([term]) => element("div", {}, element("dt", { text: term }), element("dd")),
    (node, [, value]) => setText(node.lastElementChild, value),
  );
}
