// @ts-check
/** Places of the console: `#/memories/ID?type=semantic`. */

/** @typedef {{page: string, id: string, query: URLSearchParams}} Route */

/** @returns {Route} */
export function readRoute() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...rest] = path.split("/");
  return { page: page || "overview", id: decode(rest.join("/")), query: new URLSearchParams(search) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a place. @param {string} page @param {string} [id] @param {Record<string, any> | URLSearchParams} [query] */
export function place(page, id = "", query) {
  const params = query instanceof URLSearchParams ? query : new URLSearchParams();
  if (query && !(query instanceof URLSearchParams)) {
    for (const [name, value] of Object.entries(query)) {
      for (const each of Array.isArray(value) ? value : [value]) if (each !== undefined && each !== "") params.append(name, String(each));
    }
  }
  const search = params.toString();
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${search ? `?${search}` : ""}`;
}

/** @param {string} address */
export function go(address) {
  if (location.hash === address) dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = address;
}

/** Open the same page with another query, without a new step in the history. @param {(query: URLSearchParams) => void} alter */
export function alterQuery(alter) {
  const route = readRoute();
  alter(route.query);
  history.replaceState(null, "", place(route.page, route.id, route.query));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
