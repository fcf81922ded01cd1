// Runs the script of a web page with what the page needs of a browser: a document, storage, and a `fetch` that lets it do and read
// what CORS allows. `browser.mjs PAGE ORIGIN`: prints what the page shows in the end. What it stores is in the file `storage.json`.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [page, origin] = process.argv.slice(2);
const STORAGE = "storage.json";
const SIMPLE = ["accept", "accept-language", "content-language"];

const out = { textContent: "" };
globalThis.document = { querySelector: () => out };

globalThis.localStorage = new Proxy(existsSync(STORAGE) ? JSON.parse(readFileSync(STORAGE, "utf8")) : {}, {
  set(kept, name, value) {
    kept[name] = String(value);
    writeFileSync(`${STORAGE}.new`, JSON.stringify(kept));
    renameSync(`${STORAGE}.new`, STORAGE);
    return true;
  },
});

const send = globalThis.fetch;
const words = (answer, name) => (answer.headers.get(name) ?? "").split(",").map((word) => word.trim().toLowerCase());

function check(allowed) {
  if (!allowed) throw new TypeError("Failed to fetch");
}

globalThis.fetch = async (url, { headers, ...init }) => {
  const own = [...new Headers(headers).keys()].filter((name) => !SIMPLE.includes(name));
  const method = init.method ?? "GET";
  const asks = { "Access-Control-Request-Method": method, "Access-Control-Request-Headers": own.join(",") };
  const asked = await send(url, { method: "OPTIONS", headers: { Origin: origin, ...asks } });
  check(asked.ok && asked.headers.get("access-control-allow-origin") === origin);
  check(words(asked, "access-control-allow-methods").includes(method.toLowerCase()));
  check(own.every((name) => words(asked, "access-control-allow-headers").includes(name)));
  const answer = await send(url, { ...init, headers: { ...headers, Origin: origin } });
  check(answer.headers.get("access-control-allow-origin") === origin);
  return answer;
};

const [, script] = /<script type="module">(.*)<\/script>/s.exec(readFileSync(page, "utf8"));
const file = resolve(dirname(page), "page.mjs");
writeFileSync(file, script);
await import(pathToFileURL(file));
console.log(out.textContent);
